"""The rows of a PostgreSQL store inside one transaction."""
