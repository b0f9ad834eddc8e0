"""Check that the contents of a store keep the ledger's promises."""
