"""The reference pages, generated from the code: `make reference` writes them, a test compares them."""
