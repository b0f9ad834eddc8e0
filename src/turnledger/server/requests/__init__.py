"""The body, headers and fields of a request, checked before anything runs."""
