"""What commands print: tables, JSON, progress, files."""
