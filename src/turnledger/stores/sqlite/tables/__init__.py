"""The rows of a SQLite store: each module calls the statements of the `.sql` file beside it."""
