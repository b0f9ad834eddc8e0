"""The rows by role, as in engine/tables: each method has a test that begins with its name."""
