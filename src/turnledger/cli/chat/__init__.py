"""`turnledger chat`: talk to a model in a terminal, on a server or on a store."""
