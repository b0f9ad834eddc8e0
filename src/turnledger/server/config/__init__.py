"""Settings: what they are, the file they come from, and where that is."""
