"""The server against a bare pass-through: `python -m bench.http`."""
