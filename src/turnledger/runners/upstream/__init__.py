"""An upstream with a `/chat/completions` endpoint, asked over HTTP."""
