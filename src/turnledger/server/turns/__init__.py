"""A turn over HTTP: run it, and send its events or its answer."""
