"""Lanes: one running turn per branch, its queue, process leases, and writes that survive cancellation."""
