"""Output of commands: tables, JSON, progress, files."""
