"""Files that were open when this process was forked.

SQLite keeps a table of its locks per process. A forked process inherits the table but not the locks, so a
connection that it opens to the same file would take locks for granted that it does not have.
"""

from __future__ import annotations

import os
from collections import Counter

from turnledger.errors import LedgerElsewhere

_open: Counter[str] = Counter()
_inherited: set[str] = set()


def check(path: str) -> None:
    """Raise LedgerElsewhere if the parent had this file open at the fork."""
    if os.path.realpath(path) in _inherited:
        raise LedgerElsewhere(f"{path} was open when this process was forked. Fork first, or use spawn.")


def note_open(path: str) -> None:
    _open[os.path.realpath(path)] += 1


def note_closed(path: str) -> None:
    _open[os.path.realpath(path)] -= 1


def _inherit() -> None:
    _inherited.update(place for place, handles in _open.items() if handles > 0)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)
