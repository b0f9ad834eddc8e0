"""The reference pages, written from the code itself: `make reference` writes them, a test compares them."""
