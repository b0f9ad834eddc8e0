"""Histories that clients send with each request: what is new in them, and where it belongs."""
