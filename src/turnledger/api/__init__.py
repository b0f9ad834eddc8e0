"""The shapes of `/api`, each defined once. The server sends and checks these classes, `/openapi.json`
describes them, the client decodes them, and `--json` prints them.

The server sends every field of a response; defaults are for clients of an older server. Requests forbid
unknown fields: a misspelt field must not be ignored.
"""
