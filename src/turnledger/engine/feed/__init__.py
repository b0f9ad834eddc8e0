"""Changes of an owner: recorded in the transaction that makes them, and followed from any process."""
