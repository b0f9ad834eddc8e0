"""What a store remembers of the clocks of a machine."""

from __future__ import annotations

from msgspec import Struct


class ClockMark(Struct, frozen=True):
    """How the wall clock stood against the clock that counts from the start of the machine. Times are in
    milliseconds."""

    boot: str
    """Names the start of the machine; empty where that is not known."""
    boot_at: int
    """The wall time of that, as the wall clock has it."""
    since: int
    """How long after the start of the machine the wall clock was first seen to have it so."""
    trusted_at: int
    """The latest wall time that was trusted; 0 for none."""
