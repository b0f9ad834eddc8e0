"""The chat page as the server sends it."""
