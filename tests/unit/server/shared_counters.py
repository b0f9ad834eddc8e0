"""Counters that two workers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnledger.server.ops.counters import SharedCounters


@contextmanager
def two_workers() -> Iterator[tuple[SharedCounters, list[SharedCounters]]]:
    """Create shared counters; yield those of the supervisor, and the parts of its workers."""
    counters = SharedCounters.create(parts=2, cells=64)
    parts = [SharedCounters(counters.descriptor, part) for part in range(2)]
    yield counters, parts
    for part in parts:
        part.detach()
    counters.close()
