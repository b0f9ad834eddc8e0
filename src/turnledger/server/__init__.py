"""The HTTP server. Needs the extra `server`; the library does not."""
