"""What the tasks of one process share: its lease, its running turns, its caches."""
