"""An upstream with a `/chat/completions` endpoint."""
