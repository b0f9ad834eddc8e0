"""What goes over the wire: JSON shapes, event streams, files by line."""
