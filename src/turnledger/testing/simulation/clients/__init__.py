"""Simulated clients: what they request, and what they read."""
