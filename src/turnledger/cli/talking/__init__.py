"""`turnledger chat`: talking to a model in a terminal, on a server or straight on a store."""
