"""Tokens and share links: create, find, list and revoke them."""
