"""Files that were open when this process was forked.

SQLite keeps a table of its locks per process. A forked process inherits the table but not the locks, so a
connection that it opens to the same file would take locks for granted that it does not have.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from turnledger.errors import LedgerElsewhere

_open: Counter[str] = Counter()
_inherited: set[str] = set()


def check(place: Path) -> None:
    """Raise LedgerElsewhere if the parent had this file open at the fork."""
    if str(place) in _inherited:
        raise LedgerElsewhere(f"{place} was open when this process was forked. Fork first, or use spawn.")


def note_open(place: str) -> None:
    _open[place] += 1


def note_closed(place: str) -> None:
    _open[place] -= 1
    if not _open[place]:
        del _open[place]


def _inherit() -> None:
    _inherited.update(_open)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)
