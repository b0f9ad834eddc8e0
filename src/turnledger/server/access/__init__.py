"""Access: guard, authentication, limits, cursors, the audit log."""
