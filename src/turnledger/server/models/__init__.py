"""The models that a server offers, titles that they write, and errors without upstream details."""
