"""Code that the SQL stores share: their statements differ, but not the names, arguments and columns."""
