"""Who may run on a branch: the queue, the leases of processes, and writes that outlive a cancelled caller."""
