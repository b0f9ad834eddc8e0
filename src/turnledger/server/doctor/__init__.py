"""`turnledger doctor`: check everything a server needs."""
