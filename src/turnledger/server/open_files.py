"""How many connections the system lets this process have: each is an open file to it."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    import resource

OTHERS = 200
"""Files besides connections, and some to spare: the store, the log, libraries."""


def needed_for(requests: int) -> int:
    """So many files may be open with so many requests, each of which may have a connection upstream, too."""
    return 2 * requests + OTHERS


def allow_open_files(wanted: int) -> int:
    """Have the system allow so many, or as many as it does without more rights; return how many that is."""
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _at_most(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return _at_most(wanted, soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS has a bound of its own below the one that it tells
        return soft
    return most


def allowed_files(wanted: int) -> int:
    """How many of these a server could have open here."""
    if sys.platform == "win32":
        return wanted
    return _at_most(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _at_most(wanted: int, limit: int) -> int:
    return wanted if sys.platform == "win32" or limit == resource.RLIM_INFINITY else min(wanted, limit)
