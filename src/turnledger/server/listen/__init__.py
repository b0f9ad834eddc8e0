"""The process: its socket, the HTTP protocol, and several workers under one supervisor."""
