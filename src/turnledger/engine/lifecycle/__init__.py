"""Operations on a whole conversation: create, undo, switch, fork, reset, delete, expire."""
