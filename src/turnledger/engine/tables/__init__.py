"""The rows that the engine reads and writes, by role. A store decides nothing: it keeps rows."""
