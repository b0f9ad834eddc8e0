"""Programs for those who work on Turnledger; none of them is part of what is installed."""
