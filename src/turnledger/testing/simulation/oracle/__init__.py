"""What the simulator holds a ledger against."""
