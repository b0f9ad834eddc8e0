"""Histories that clients send with each request: which messages are new, and where they belong."""
