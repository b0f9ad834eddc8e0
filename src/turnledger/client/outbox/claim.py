"""Whether the program that claimed a message is still there: one that crashed has no claim."""

from __future__ import annotations

import os
import secrets

_HERE: set[str] = set()
"""The claimants of this process: what else goes by its number is of an earlier one, as in a container, where
every program is process 1."""


class Claimant:
    """Who claims messages, by a name that tells others whether it is alive."""

    def __init__(self) -> None:
        self._suffix = secrets.token_hex(8)
        _HERE.add(self._suffix)

    @property
    def name(self) -> str:
        return f"{os.getpid()}:{self._suffix}"

    def retire(self) -> None:
        """Claim nothing any more: what was claimed is anybody's."""
        _HERE.discard(self._suffix)

    def is_alive(self, name: str) -> bool:
        """Whether a claimant may still be there. Wrong guesses cost a request that the server knows again."""
        process, _, suffix = name.partition(":")
        if process == str(os.getpid()):
            return suffix in _HERE
        return not process.isdigit() or _is_running(int(process))


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # there, signal 0 is no question; the claim ends by its time
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
