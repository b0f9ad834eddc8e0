"""What happens to a whole conversation: create, undo, switch, fork, reset, delete, expire."""
