"""Tokens, share links, their limits, and what a caller may see."""
