"""Who may do what, and how much of it: guard, authentication, limits, cursors, the audit log."""
