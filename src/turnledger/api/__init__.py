"""What goes over the wire of `/api`, each shape once. The server sends and checks these classes,
`/openapi.json` describes them, the client decodes them, and `--json` prints them.

A server sends every field of an answer, and the description requires them all; a default is for a client
whose server is older. A request forbids fields that it does not know: a misspelt one must not be ignored.
"""
