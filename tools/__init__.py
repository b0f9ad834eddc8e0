"""Programs for developers of Turnledger; none is installed."""
