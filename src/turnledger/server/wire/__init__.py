"""JSON shapes, event streams and files as the server sends them."""
