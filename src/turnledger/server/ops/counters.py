"""Counters that all workers of a server share, such as running turns or readers.

Each worker writes its own part of a shared memory, and any worker reads the sum. To stay within a limit, a
worker counts itself first and then reads: of two at once at least one sees both, so a limit is
never exceeded. A part is a hash table of names, as keyed hashes, with their counts, and linear probing. A
name whose count falls to zero is removed and those behind it move up, so that a table never fills with stale
names.
"""

from __future__ import annotations

import mmap
import os
import secrets
import tempfile
from abc import ABC, abstractmethod
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import NamedTuple


class Counters(ABC):
    """Counts by kind and name, which are any texts. For the event loop's thread only; never waits."""

    @abstractmethod
    def add(self, kind: str, name: str, by: int = 1) -> None:
        """Change this worker's count of a name. Raises ValueError if it would fall below zero."""

    @abstractmethod
    def total(self, kind: str, name: str) -> int:
        """Return the count of a name over all workers."""

    @abstractmethod
    def sum(self, kind: str) -> int:
        """Return the count of all names of a kind over all workers."""


class LocalCounters(Counters):
    """The counters of a server with one worker, in plain memory."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._sums: dict[str, int] = {}

    def add(self, kind: str, name: str, by: int = 1) -> None:
        count = self._counts.get((kind, name), 0) + by
        if count < 0:
            raise ValueError("a count cannot fall below zero")
        self._sums[kind] = self._sums.get(kind, 0) + by
        if count:
            self._counts[kind, name] = count
        else:
            self._counts.pop((kind, name), None)

    def total(self, kind: str, name: str) -> int:
        return self._counts.get((kind, name), 0)

    def sum(self, kind: str) -> int:
        return self._sums.get(kind, 0)


CELLS = 65_536
"""Cells of a part; at most half are used."""
HASHES = 10_000
TRIES = 100
"""Retries of a read while names move. After that the worker has stalled, and its names are at rest."""

_KEY_BYTES = 32
_WORD, _CELL_WORDS = 8, 2
# Words of the head: parts, cells, key. Words of a part: moves begun and ended (odd: names are moving), the
# number of names, the spilled count; then a hash and a count for each cell.
_PARTS, _CELLS, _KEY, _HEAD_WORDS = 0, 1, 2, 8
_MOVES, _NAMES, _SPILLED, _PART_HEAD_WORDS = 0, 1, 2, 4


class SharedCounters(Counters):
    """Created once by the supervisor (`create`), and opened by each worker with its own part."""

    def __init__(self, descriptor: int, part: int | None = None) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        # Words are written and read atomically.
        self._words = memoryview(self._memory).cast("Q")
        self.descriptor = descriptor
        self.parts = self._words[_PARTS]
        self._mask = self._words[_CELLS] - 1
        self._key = self._memory[_KEY * _WORD : _KEY * _WORD + _KEY_BYTES]
        self._part_words = _PART_HEAD_WORDS + _CELL_WORDS * (self._mask + 1)
        self._starts = [_HEAD_WORDS + self._part_words * part for part in range(self.parts)]
        self._own = None if part is None else self._starts[part]
        self._hashes: dict[str, tuple[int, int]] = {}
        self._hashes_of_names: dict[tuple[str, str], int] = {}
        self._barrier = Lock()

    @classmethod
    def create(cls, parts: int, cells: int = CELLS) -> SharedCounters:
        """Create the counters; their descriptor is for the workers. `cells` is a power of two."""
        size = _WORD * (_HEAD_WORDS + parts * (_PART_HEAD_WORDS + _CELL_WORDS * cells))
        descriptor = _anonymous_file()
        try:
            os.ftruncate(descriptor, size)
            with mmap.mmap(descriptor, size) as memory:
                with memoryview(memory) as raw, raw.cast("Q") as words:
                    words[_PARTS], words[_CELLS] = parts, cells
                memory[_KEY * _WORD : _KEY * _WORD + _KEY_BYTES] = secrets.token_bytes(_KEY_BYTES)
            return cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        self.detach()
        os.close(self.descriptor)

    def detach(self) -> None:
        self._words.release()
        self._memory.close()

    def clear(self, part: int) -> None:
        """Clear the counts of a worker that has ended. For the supervisor: no other process writes there
        then."""
        start = self._starts[part]
        end = start + self._part_words
        moves = self._words[start + _MOVES] | 1
        self._words[start + _MOVES] = moves
        first = start + _NAMES
        self._memory[first * _WORD : end * _WORD] = bytes((end - first) * _WORD)
        self._words[start + _MOVES] = moves + 1

    def add(self, kind: str, name: str, by: int = 1) -> None:
        all_names, spilled = self._kind_hashes(kind)
        self._count(self._name_hash(kind, name), by, spilled)
        self._count(all_names, by)
        # A processor may delay a write past a later read, but not past taking a lock.
        with self._barrier:
            pass

    def total(self, kind: str, name: str) -> int:
        """See Counters. The spilled count of a full part is added to every name of its kind."""
        name_hash, words = self._name_hash(kind, name), self._words
        total = 0
        for start in self._starts:
            if words[start + _NAMES]:
                total += self._read(start, name_hash)
            if words[start + _SPILLED]:
                total += self._read(start, self._kind_hashes(kind)[1])
        return total

    def sum(self, kind: str) -> int:
        name_hash, words = self._kind_hashes(kind)[0], self._words
        total = 0
        for start in self._starts:
            if words[start + _NAMES]:
                total += self._read(start, name_hash)
        return total

    def _hash(self, kind: str, name: str, purpose: bytes = b"") -> int:
        text = f"{kind}\0{name}".encode(errors="surrogatepass")
        name_hash = blake2b(text, digest_size=_WORD, key=self._key, person=purpose).digest()
        return int.from_bytes(name_hash, "little") or 1  # 0 marks an empty cell

    def _name_hash(self, kind: str, name: str) -> int:
        found = self._hashes_of_names.get((kind, name))
        if found is None:
            if len(self._hashes_of_names) >= HASHES:
                self._hashes_of_names.clear()
            found = self._hashes_of_names[kind, name] = self._hash(kind, name)
        return found

    def _kind_hashes(self, kind: str) -> tuple[int, int]:
        found = self._hashes.get(kind)
        if found is None:
            found = self._hashes[kind] = self._hash(kind, "", b"sum"), self._hash(kind, "", b"spilled")
        return found

    # Reading any part.

    def _read(self, start: int, name_hash: int) -> int:
        words, count = self._words, 0
        first = start + _PART_HEAD_WORDS + _CELL_WORDS * (name_hash & self._mask)
        for _ in range(TRIES):
            moves = words[start + _MOVES]
            # Most names are where their hash points: that saves a call.
            cell_start = first if words[first] in (name_hash, 0) else self._find(start, name_hash)
            count = words[cell_start + 1] if words[cell_start] == name_hash else 0
            if words[start + _MOVES] == moves and not moves & 1:
                break
        return count

    def _find(self, start: int, name_hash: int) -> int:
        """Return the place of a name, or the one to put it."""
        words, mask, first = self._words, self._mask, start + _PART_HEAD_WORDS
        cell = name_hash & mask
        for _ in range(mask + 1):
            cell_start = first + _CELL_WORDS * cell
            if words[cell_start] in (name_hash, 0):
                return cell_start
            cell = (cell + 1) & mask
        return first + _CELL_WORDS * (name_hash & mask)  # only while the supervisor clears the part

    # Writing the own part.

    def _count(self, name_hash: int, by: int, spilled: int | None = None) -> None:
        """Change a count. A name without room is counted in `spilled`; a sum always has room."""
        if self._own is None:
            raise ValueError("only a worker counts, in the part that it was given")
        words, cell_start = self._words, self._find(self._own, name_hash)
        exists = words[cell_start] == name_hash
        count = by + (words[cell_start + 1] if exists else 0)
        is_full = not exists and spilled is not None and words[self._own + _NAMES] > self._mask // 2
        if count < 0 or is_full:
            # The part is full, or was when this name was counted. Spilling may move other cells. The check
            # comes before any change, since it may fail for a bug of the caller.
            if spilled is None or self._read(self._own, spilled) + count < 0:
                raise ValueError("a count cannot fall below zero")
            if exists:
                self._set(cell_start, 0)
            self._spill(spilled, count)
        elif exists:
            self._set(cell_start, count)
        elif count:
            words[cell_start + 1] = count
            words[cell_start] = name_hash
            words[self._own + _NAMES] += 1

    def _spill(self, spilled: int, by: int) -> None:
        assert self._own is not None  # noqa: S101 - for the type checker
        self._count(spilled, by)
        self._words[self._own + _SPILLED] += by

    def _set(self, cell_start: int, count: int) -> None:
        self._words[cell_start + 1] = count
        if not count:
            self._remove(cell_start)

    def _remove(self, hole: int) -> None:
        """Empty a cell, and move up those behind it that probed past it. A name is in its new cell before it
        leaves the old one: wherever this stops, every name can be found."""
        words, mask = self._words, self._mask
        assert self._own is not None  # noqa: S101 - for the type checker
        first = self._own + _PART_HEAD_WORDS
        words[self._own + _MOVES] += 1
        free = cell = (hole - first) // _CELL_WORDS
        while True:
            cell = (cell + 1) & mask
            cell_start = first + _CELL_WORDS * cell
            name_hash = words[cell_start]
            if not name_hash:
                break
            if (cell - (name_hash & mask)) & mask >= (cell - free) & mask:
                words[hole + 1], words[hole] = words[cell_start + 1], name_hash
                hole, free = cell_start, cell
        words[hole] = words[hole + 1] = 0
        words[self._own + _NAMES] -= 1
        words[self._own + _MOVES] += 1


def _anonymous_file() -> int:
    """Open a file without a name; it disappears with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("turnledger-counters")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class WorkerContext(NamedTuple):
    """What a worker receives from its supervisor; a server of one process has none."""

    counters: Counters
    metrics_folder: Path
    part: int
    """The worker's number, unique at any time."""
