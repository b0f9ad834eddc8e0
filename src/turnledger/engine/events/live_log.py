"""The live log: the events so far of a turn that runs in this process, for any number of readers.

The cost of an event does not depend on the number of readers. Events go into one log, and into one short list
of recent ones. Readers fetch them. A reader that falls behind the list reads from the log, whose size the
turn bounds.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import msgspec

from turnledger.engine.limits import Limits
from turnledger.model import event_log
from turnledger.model.event import Event, ItemDone, TextDelta, TurnFinished, TurnStarted
from turnledger.model.event_log import DELTA, EMITTED, ITEM, ONE_BYTE, LogChunk
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState, Failure

PIECE = 4096
"""Characters up to which pieces are joined: a small piece costs more than its text."""
LOOSE = 512
"""The most deltas left unjoined."""


_NO_PIECES: list[str] = []
_NO_ENDS: list[int] = []
"""Never filled."""


class EmittedText:
    """All text that a turn has emitted. Positions are counted in characters from the beginning."""

    __slots__ = ("_ends", "_joined", "_loose", "_pieces", "length")

    def __init__(self) -> None:
        # Most turns emit little: create the lists only when there is something to join.
        self._pieces: list[str] = _NO_PIECES
        self._ends: list[int] = _NO_ENDS
        self._loose: list[str] = []
        self._joined = 0
        self.length = 0

    def append(self, text: str) -> None:
        self._loose.append(text)
        self.length += len(text)
        if len(self._loose) > LOOSE:
            self._join()

    def between(self, start: int, stop: int) -> str:
        if stop > self._joined:
            if start == self._joined and stop == self.length:
                return "".join(self._loose)
            self._join()
        first = bisect_right(self._ends, start)
        found: list[str] = []
        for index in range(first, len(self._pieces)):
            piece, begins = self._pieces[index], self._ends[index] - len(self._pieces[index])
            if begins >= stop:
                break
            found.append(piece[max(start - begins, 0) : stop - begins])
        return "".join(found)

    def _join(self) -> None:
        if not self._loose:
            return
        before = ""
        if self._pieces is _NO_PIECES:
            self._pieces, self._ends = [], []
        if self._pieces and len(self._pieces[-1]) < PIECE:
            before = self._pieces.pop()
            self._ends.pop()
        self._pieces.append("".join((before, *self._loose)))
        self._ends.append(self.length)
        self._joined = self.length
        self._loose.clear()


log = logging.getLogger("turnledger")

EventSink: TypeAlias = Callable[[Event], None]

STRIDE = 256
"""Events between two known positions in the log."""
QUIET = 20.0
"""After readers have used the event loop, it is left to others for this many times as long: all readers
together cost a turn a twentieth of its speed, and a few of them wait for microseconds."""

_NOTHING_RECENT: list[Event] = []
"""Never filled: without readers, no recent events are kept."""


class LiveLog:
    """One attempt's events. `text` is shared with its draft, which fills it."""

    __slots__ = (
        "_flushed_log",
        "_flushed_text",
        "_is_wake_due",
        "_limits",
        "_marks",
        "_on_event",
        "_page",
        "_pending_wake",
        "_quiet_until",
        "_readers",
        "_recent",
        "_recent_bytes",
        "count",
        "end",
        "has_listeners",
        "items",
        "packed",
        "text",
        "wakeup",
    )

    def __init__(self, text: EmittedText, limits: Limits, on_event: EventSink | None) -> None:
        self.text = text
        self.packed = bytearray()
        self.items: list[Item] = []
        self.count = 1
        """The number of the last event. The first is TurnStarted."""
        self.end: TurnFinished | None = None
        self.has_listeners = on_event is not None
        """Whether there are readers or a sink."""
        self._limits = limits
        self._on_event = on_event
        self._flushed_log = self._flushed_text = 0
        self._readers = 0
        self._recent = _NOTHING_RECENT
        self._recent_bytes = 0
        self._page: tuple[int, list[Event]] | None = None
        self._marks: list[tuple[int, int, int]] | None = None
        self._pending_wake: asyncio.Handle | None = None
        self._quiet_until = 0.0
        self._is_wake_due = False
        self.wakeup: asyncio.Event | None = None
        if on_event is not None:
            on_event(TurnStarted(number=1))

    # Writing.

    def record_text(self, text: str) -> None:
        """Record text that the draft has just taken."""
        value = len(text) + DELTA
        if value < ONE_BYTE:
            self.packed.append(value)
        else:
            event_log.pack(self.packed, value)
        self.count += 1
        if self.has_listeners:
            self._publish(TextDelta(number=self.count, text=text), len(text))

    def record_item(self, item: Item, *, emitted: bool = False) -> None:
        """Record a finished item; `emitted` if it was made of the text emitted before."""
        self.packed.append(EMITTED if emitted else ITEM)
        self.items.append(item)
        self.count += 1
        if self.has_listeners:
            self._publish(ItemDone(number=self.count, item=msgspec.Raw(item.raw)), len(item.raw))

    def finish(self, items: Sequence[Item], state: AttemptState, failure: Failure | None) -> None:
        """Record the items that only the end made, and the end. The store has already decided, so an error of
        the sink is only logged."""
        for item in items:
            self._quietly(lambda item=item: self.record_item(item))  # type: ignore[misc]
        self.count += 1
        self.end = end = TurnFinished(number=self.count, state=state, failure=failure)
        self._quiet_until = 0.0
        if self._pending_wake is not None:
            self._pending_wake.cancel()
            self._pending_wake = None
        if self.has_listeners:
            self._quietly(lambda: self._publish(end, 0))

    def _quietly(self, record: Callable[[], None]) -> None:
        try:
            record()
        except Exception:
            log.exception("a reader failed at the end of a turn")

    def _publish(self, event: Event, size: int) -> None:
        if self._readers:
            self._recent.append(event)
            self._recent_bytes += size
            limits = self._limits
            if len(self._recent) > limits.reader_events or self._recent_bytes > limits.reader_bytes:
                self._forget_oldest()
            self.wake_soon()
        if self._on_event is not None:
            self._on_event(event)

    def _forget_oldest(self) -> None:
        """Halve the list. Readers that had not come so far continue from the log."""
        del self._recent[: (len(self._recent) + 1) // 2]
        self._recent_bytes = sum(
            len(each.text if isinstance(each, TextDelta) else each.item)
            for each in self._recent
            if isinstance(each, TextDelta | ItemDone)
        )
        if self._recent_bytes > self._limits.reader_bytes:
            self._recent.clear()
            self._recent_bytes = 0

    def next_chunk(self) -> LogChunk | None:
        """Return what was recorded since the last chunk, or None."""
        start, at = self._flushed_log, self._flushed_text
        if len(self.packed) == start:
            return None
        self._flushed_log, self._flushed_text = len(self.packed), self.text.length
        return LogChunk(log=bytes(self.packed[start:]), text=self.text.between(at, self.text.length))

    # Reading.

    def attach(self) -> None:
        if not self._readers:
            self._recent = []
        self._readers += 1
        self.has_listeners = True
        if self.wakeup is None:
            self.wakeup = asyncio.Event()

    def detach(self) -> None:
        self._readers -= 1
        if not self._readers:
            self.has_listeners = self._on_event is not None
            self._recent = _NOTHING_RECENT
            self._recent_bytes = 0
            self._page = None

    def since(self, after: int, limit: int) -> list[Event]:
        place = after - self.count + len(self._recent)
        if place >= 0:
            return self._recent[place : place + limit]
        if self._page is None or self._page[0] != after or len(self._page[1]) < limit:
            # Kept for the next reader: those that are behind are mostly behind together.
            self._page = (after, list(islice(self._from_log(after), limit)))
        return self._page[1][:limit]

    def _from_log(self, after: int) -> Iterator[Event]:
        if after < 1:
            yield TurnStarted(number=1)
        number, (start, at, item) = self._nearest(max(after, 1))
        for code, _, _ in event_log.entries(self.packed, start):
            number += 1
            is_item = code <= EMITTED
            length = 0 if is_item else code - DELTA
            if number > after:
                if is_item:
                    yield ItemDone(number=number, item=msgspec.Raw(self.items[item].raw))
                else:
                    yield TextDelta(number=number, text=self.text.between(at, at + length))
            item += is_item
            at += length
        if self.end is not None and after < self.end.number:
            yield self.end

    def _nearest(self, number: int) -> tuple[int, tuple[int, int, int]]:
        """Return the last known position up to this event: its number, and offsets in log, text and items."""
        if self._marks is None:
            self._marks = [(0, 0, 0)]
        marks = self._marks
        mark = (number - 1) // STRIDE
        while len(marks) <= mark:
            start, at, item = marks[-1]
            steps = islice(event_log.entries(self.packed, start), STRIDE)
            walked = 0
            for code, _, start in steps:  # noqa: B007 - its last value is the place behind them all
                walked += 1
                item += code <= EMITTED
                at += 0 if code <= EMITTED else code - DELTA
            if walked < STRIDE:
                break
            marks.append((start, at, item))
        place = min(mark, len(marks) - 1)
        return place * STRIDE + 1, marks[place]

    # Waking.

    def wake_soon(self) -> None:
        """Wake all readers soon, once for all events recorded until then."""
        if self._pending_wake is not None:
            self._is_wake_due = True
            return
        loop = asyncio.get_running_loop()
        delay = self._quiet_until - loop.time()
        self._pending_wake = loop.call_later(delay, self.wake) if delay > 0 else loop.call_soon(self.wake)

    def wake(self) -> None:
        self._is_wake_due = False
        wakeup, self.wakeup = self.wakeup, asyncio.Event()
        if wakeup is not None:
            loop = asyncio.get_running_loop()
            now = loop.time()
            wakeup.set()
            # Scheduled behind the readers that were just woken, so it runs after them.
            loop.call_soon(self._set_quiet_time, now)

    def _set_quiet_time(self, woken_at: float) -> None:
        now = asyncio.get_running_loop().time()
        self._pending_wake = None
        # After the end there is no turn to protect, only other readers.
        self._quiet_until = now + QUIET * (now - woken_at) if self.end is None else 0.0
        if self._is_wake_due:
            self.wake_soon()
