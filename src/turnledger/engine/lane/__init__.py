"""Lanes: one running turn per branch, the queue, process leases, and writes that outlive a cancelled
caller."""
