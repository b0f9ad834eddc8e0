"""Tools for testing code that is built on turnledger."""
