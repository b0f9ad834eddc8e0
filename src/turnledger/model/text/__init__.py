"""Text for people: one-line forms, summaries, search, Markdown."""
