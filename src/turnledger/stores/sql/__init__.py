"""What the SQL stores have in common: their statements differ, but not their names, arguments and columns."""
