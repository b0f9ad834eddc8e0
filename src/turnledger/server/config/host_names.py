"""What can stand in the headers Host and Origin, and so in the lists that settings have of them."""

from __future__ import annotations

import re

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
"""A Host header in small letters: the name, and maybe a port."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


def is_host_name(text: str) -> bool:
    """Whether this can stand in a Host header, without a port."""
    found = HOST.fullmatch(text.lower())
    return found is not None and found[2] is None


def is_origin(text: str) -> bool:
    """Whether this is what browsers send as an Origin: scheme, host, and the port unless it is the usual."""
    return _ORIGIN.fullmatch(text) is not None
