"""Turns over HTTP: run one, and send its events or its answer."""
