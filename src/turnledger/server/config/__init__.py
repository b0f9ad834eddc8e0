"""Settings, their file, and the user's folders."""
