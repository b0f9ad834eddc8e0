"""Counters that all workers of a server share, such as running turns or readers.

Each worker writes its own part of a shared memory, and any worker reads the sum. To stay within a limit, a
worker counts itself first and reads then (`admit`): of two at once at least one sees both, so a limit is
never exceeded. A part is a table of names, as keyed hashes, with their counts. Names are found by probing
from the place of their hash; a name whose count falls to zero is removed, and those behind it move up, so
that a table never fills with stale names.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Set
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from turnledger.model.ids import TurnId


class Board(ABC):
    """Counts by kind and name; both are any text. For the event loop's thread only; nothing here waits."""

    @abstractmethod
    def add(self, kind: str, name: str, by: int = 1) -> None:
        """Raise, or lower, this worker's count of a name. Raises ValueError if it would fall below zero."""

    @abstractmethod
    def total(self, kind: str, name: str) -> int:
        """The count of a name, of all workers together."""

    @abstractmethod
    def sum(self, kind: str) -> int:
        """The counts of all names of a kind, of all workers together."""

    def admit(self, kind: str, name: str, most: int) -> bool:
        """Count one more of the name if there are no more than `most` then; return whether it was counted.

        Never admits too many. Of several who come at once for the last place, none may get it.
        """
        self.add(kind, name, 1)
        if self.total(kind, name) <= most:
            return True
        self.add(kind, name, -1)
        return False


class OwnBoard(Board):
    """The board of a server with one worker: plain memory."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sums: Counter[str] = Counter()

    def add(self, kind: str, name: str, by: int = 1) -> None:
        count = self._counts[kind, name] + by
        if count < 0:
            raise ValueError("a count cannot fall below zero")
        self._sums[kind] += by
        if count:
            self._counts[kind, name] = count
        else:
            self._counts.pop((kind, name), None)

    def total(self, kind: str, name: str) -> int:
        return self._counts[kind, name]

    def sum(self, kind: str) -> int:
        return self._sums[kind]


CELLS = 65_536
"""Names for which a part has room, twice over."""
HASHES = 10_000
"""Names whose hash is remembered."""
TRIES = 100
"""So often a part is read anew whose names are moving. After that its worker stands still, and so do they."""

_KEY_BYTES = 32
_WORD, _CELL_WORDS = 8, 2
# Words of the head: parts, cells, key. Words of a part: moves begun and ended (odd: names are on the move),
# how many names it has, how much was spilled; then a hash and a count for each cell.
_PARTS, _CELLS, _KEY, _HEAD_WORDS = 0, 1, 2, 8
_MOVES, _NAMES, _SPILLED, _PART_HEAD_WORDS = 0, 1, 2, 4


class SharedBoard(Board):
    """Made once by the supervisor (`create`), and opened by each worker with the part that it was given."""

    def __init__(self, descriptor: int, part: int | None = None) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        # Words are written and read whole; a reader never sees half of one.
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
    def create(cls, parts: int, cells: int = CELLS) -> SharedBoard:
        """A new board; its descriptor is handed to the workers. `cells` is a power of two."""
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
        """Close the memory and its descriptor; other processes keep theirs."""
        self.detach()
        os.close(self.descriptor)

    def detach(self) -> None:
        self._words.release()
        self._memory.close()

    def clear(self, part: int) -> None:
        """Forget the counts of a worker that has ended. For the supervisor: no other process writes there
        now."""
        start = self._starts[part]
        end = start + self._part_words
        moves = self._words[start + _MOVES] | 1
        self._words[start + _MOVES] = moves
        first = start + _NAMES
        self._memory[first * _WORD : end * _WORD] = bytes((end - first) * _WORD)
        self._words[start + _MOVES] = moves + 1

    def add(self, kind: str, name: str, by: int = 1) -> None:
        all_names, spilled = self._of_kind(kind)
        self._count(self._of_name(kind, name), by, spilled)
        self._count(all_names, by)
        # A processor may delay a write beyond a later read, but not beyond taking a lock.
        with self._barrier:
            pass

    def total(self, kind: str, name: str) -> int:
        """See Board. If a part is full, what it had no room for counts under every name of its kind."""
        hashed, words = self._of_name(kind, name), self._words
        total = 0
        for start in self._starts:
            if words[start + _NAMES]:
                total += self._read(start, hashed)
            if words[start + _SPILLED]:
                total += self._read(start, self._of_kind(kind)[1])
        return total

    def sum(self, kind: str) -> int:
        hashed, words = self._of_kind(kind)[0], self._words
        total = 0
        for start in self._starts:
            if words[start + _NAMES]:
                total += self._read(start, hashed)
        return total

    def _hash(self, kind: str, name: str, meaning: bytes = b"") -> int:
        text = f"{kind}\0{name}".encode(errors="surrogatepass")
        hashed = blake2b(text, digest_size=_WORD, key=self._key, person=meaning).digest()
        return int.from_bytes(hashed, "little") or 1  # 0 is an empty cell

    def _of_name(self, kind: str, name: str) -> int:
        found = self._hashes_of_names.get((kind, name))
        if found is None:
            if len(self._hashes_of_names) >= HASHES:
                self._hashes_of_names.clear()
            found = self._hashes_of_names[kind, name] = self._hash(kind, name)
        return found

    def _of_kind(self, kind: str) -> tuple[int, int]:
        """The hashes of the sum of a kind, and of the sum of what found no room."""
        found = self._hashes.get(kind)
        if found is None:
            found = self._hashes[kind] = self._hash(kind, "", b"sum"), self._hash(kind, "", b"spilled")
        return found

    # Reading any part.

    def _read(self, start: int, hashed: int) -> int:
        words, count = self._words, 0
        first = start + _PART_HEAD_WORDS + _CELL_WORDS * (hashed & self._mask)
        for _ in range(TRIES):
            moves = words[start + _MOVES]
            # Most names are where their hash points: that saves a call.
            place = first if words[first] in (hashed, 0) else self._find(start, hashed)
            count = words[place + 1] if words[place] == hashed else 0
            if words[start + _MOVES] == moves and not moves & 1:
                break
        return count

    def _find(self, start: int, hashed: int) -> int:
        """The place of a name, or where it would be put."""
        words, mask, first = self._words, self._mask, start + _PART_HEAD_WORDS
        cell = hashed & mask
        for _ in range(mask + 1):
            place = first + _CELL_WORDS * cell
            if words[place] in (hashed, 0):
                return place
            cell = (cell + 1) & mask
        return first + _CELL_WORDS * (hashed & mask)  # only ever while the supervisor clears the part

    # Writing the own part.

    def _count(self, hashed: int, by: int, spilled: int | None = None) -> None:
        """Change a count. A name that finds no room is counted in `spilled`; a sum always finds room."""
        if self._own is None:
            raise ValueError("only a worker counts, in the part that it was given")
        words, place = self._words, self._find(self._own, hashed)
        is_there = words[place] == hashed
        count = by + (words[place + 1] if is_there else 0)
        is_full = not is_there and spilled is not None and words[self._own + _NAMES] > self._mask // 2
        if count < 0 or is_full:
            # It was counted, or is now, when there was no room. Spilling may move other cells.
            # Refused before anything has changed: it may be a bug of the caller.
            if spilled is None or self._read(self._own, spilled) + count < 0:
                raise ValueError("a count cannot fall below zero")
            if is_there:
                self._set(place, 0)
            self._spill(spilled, count)
        elif is_there:
            self._set(place, count)
        elif count:
            words[place + 1] = count
            words[place] = hashed
            words[self._own + _NAMES] += 1

    def _spill(self, spilled: int, by: int) -> None:
        assert self._own is not None  # noqa: S101 - for the type checker
        self._count(spilled, by)
        self._words[self._own + _SPILLED] += by

    def _set(self, place: int, count: int) -> None:
        self._words[place + 1] = count
        if not count:
            self._take_out(place)

    def _take_out(self, hole: int) -> None:
        """Empty a cell, and move up those behind it that probed past it. A name is in its new cell before it
        leaves the old one: whenever this stops, every name can be found."""
        words, mask = self._words, self._mask
        assert self._own is not None  # noqa: S101 - for the type checker
        first = self._own + _PART_HEAD_WORDS
        words[self._own + _MOVES] += 1
        free = cell = (hole - first) // _CELL_WORDS
        while True:
            cell = (cell + 1) & mask
            place = first + _CELL_WORDS * cell
            hashed = words[place]
            if not hashed:
                break
            if (cell - (hashed & mask)) & mask >= (cell - free) & mask:
                words[hole + 1], words[hole] = words[place + 1], hashed
                hole, free = place, cell
        words[hole] = words[hole + 1] = 0
        words[self._own + _NAMES] -= 1
        words[self._own + _MOVES] += 1


def _anonymous_file() -> int:
    """A file without a name, gone with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("turnledger-board")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Sharing(NamedTuple):
    """Given to a worker by its supervisor; a server of one process has none."""

    board: Board
    metrics_folder: Path
    part: int
    """Its number: no other worker has it at the same time."""


READERS = "readers"
LOOK_EVERY = 0.2
"""Seconds between looks at whether the last reader elsewhere has left."""


class Audience:
    """The readers of running turns: of their events, and requests that are answered by another request's
    turn. Each is counted on the board, so that it counts whichever worker it reads from."""

    def __init__(self, board: Board | None = None, *, look_every: float = LOOK_EVERY) -> None:
        self._board = board or OwnBoard()
        self._readers: defaultdict[TurnId, int] = defaultdict(int)
        self._afterwards: dict[TurnId, Callable[[], object]] = {}
        self._look_every = look_every
        self._timer: asyncio.TimerHandle | None = None

    @property
    def turns(self) -> Set[TurnId]:
        return self._readers.keys()

    def join(self, turn: TurnId) -> None:
        self._readers[turn] += 1
        self._board.add(READERS, turn)

    def leave(self, turn: TurnId) -> None:
        """Count no more; the last to leave triggers what `when_gone` was given."""
        self._board.add(READERS, turn, -1)
        self._readers[turn] -= 1
        if not self._readers[turn]:
            del self._readers[turn]
            self._act_if_gone(turn)

    def when_gone(self, turn: TurnId, act: Callable[[], object]) -> None:
        """Call `act` once nobody reads the turn any more, maybe now."""
        self._afterwards[turn] = act
        self._act_if_gone(turn)

    def forget(self, turn: TurnId) -> None:
        """The turn is over: readers that leave trigger nothing."""
        self._afterwards.pop(turn, None)

    def _act_if_gone(self, turn: TurnId) -> None:
        if turn not in self._afterwards:
            return
        if not self._board.total(READERS, turn):
            self._afterwards.pop(turn)()
        elif turn not in self._readers and self._timer is None:
            # They read from another worker, which may die silently: so this one polls.
            self._timer = asyncio.get_running_loop().call_later(self._look_every, self._look)

    def _look(self) -> None:
        self._timer = None
        for turn in list(self._afterwards):
            self._act_if_gone(turn)
