"""The engine: what makes every turn a transaction. It owns the interfaces it needs and knows no store."""
