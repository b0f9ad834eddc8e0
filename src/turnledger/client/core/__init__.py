"""The client without input or output: each operation as a generator of steps."""
