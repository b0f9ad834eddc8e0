"""The Responses API: turns as responses, their items, and the events of their streams."""
