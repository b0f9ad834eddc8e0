"""Conversations: find or create them, list, read and search them, and flag their items."""
