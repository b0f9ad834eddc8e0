"""The blocking edge of the client."""
