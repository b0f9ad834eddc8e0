"""The chat page: the built files in `dist/`, and small pages with everything inline."""
