"""What a request asks for: its body, headers and fields, checked before anything runs."""
