"""`turnledger chat`: chat with a model in a terminal, on a server or on a store."""
