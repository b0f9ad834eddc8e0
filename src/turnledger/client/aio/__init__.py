"""The awaiting edge of the client."""
