"""Conversations: find, create, list, read and search them, and flag their items."""
