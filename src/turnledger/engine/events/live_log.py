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
from typing import NamedTuple, TypeAlias

import msgspec

from turnledger.engine.limits import Limits
from turnledger.model import event_log
from turnledger.model.event import (
    ArgumentsDelta,
    Event,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnFinished,
    TurnResumed,
    TurnStarted,
)
from turnledger.model.event_log import (
    ARGUMENTS,
    CHOSEN,
    DELTA,
    ITEM,
    KINDS,
    ONE_BYTE,
    OPENED,
    REASONING,
    REFUSAL,
    RESUMED,
    SILENT,
    TEXT,
    EmittedSource,
    EventReplay,
    LogChunk,
)
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

_DELTA_OF: dict[int, type[ReasoningDelta | RefusalDelta]] = {REASONING: ReasoningDelta, REFUSAL: RefusalDelta}

_NOTHING_RECENT: list[Event] = []
"""Never filled: without readers, no recent events are kept."""


def _size(event: Event) -> int:
    if isinstance(event, ItemDone | ItemAdded):
        return len(event.item)
    return 0 if isinstance(event, TurnStarted | TurnResumed | TurnFinished) else len(event.text)


class _Mark(NamedTuple):
    """A place in the log: the number of the event before it, and how much of everything is before it."""

    start: int = 0
    number: int = 1
    at: int = 0
    more_at: int = 0
    item: int = 0
    calls: int = 0
    chosen: int = -1


class LiveLog:
    """One attempt's events. `text` is shared with its draft, which fills it; the text of all other kinds of
    deltas is in `more`."""

    __slots__ = (
        "_call_ids",
        "_chosen",
        "_flushed_log",
        "_flushed_more",
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
        "more",
        "packed",
        "text",
        "wakeup",
    )

    def __init__(self, text: EmittedText, limits: Limits, on_event: EventSink | None) -> None:
        self.text = text
        self.more: EmittedText | None = None
        """None as long as only text was emitted: then the log has its shorter form."""
        self.packed = bytearray()
        self.items: list[Item] = []
        self.count = 1
        """The number of the last event. The first is TurnStarted."""
        self.end: TurnFinished | None = None
        self.has_listeners = on_event is not None
        """Whether there are readers or a sink."""
        self._limits = limits
        self._on_event = on_event
        self._call_ids: list[str] = []
        self._chosen = -1
        self._flushed_log = self._flushed_text = self._flushed_more = 0
        self._readers = 0
        self._recent = _NOTHING_RECENT
        self._recent_bytes = 0
        self._page: tuple[int, list[Event]] | None = None
        self._marks: list[_Mark] | None = None
        self._pending_wake: asyncio.Handle | None = None
        self._quiet_until = 0.0
        self._is_wake_due = False
        self.wakeup: asyncio.Event | None = None
        if on_event is not None:
            on_event(TurnStarted(number=1))

    # Writing.

    def record_text(self, text: str) -> None:
        """Record text that the draft has just taken."""
        if self.more is None:
            value = len(text) + DELTA
            if value < ONE_BYTE:
                self.packed.append(value)
            else:
                event_log.pack(self.packed, value)
        else:
            event_log.pack_kind(self.packed, TEXT, len(text))
        self.count += 1
        if self._readers:
            self._publish(TextDelta(number=self.count, text=text), len(text))
        elif self._on_event is not None:  # the common case, without a call
            self._on_event(TextDelta(number=self.count, text=text))

    def record_part(self, kind: int, text: str) -> None:
        """Record reasoning, or a part of a refusal."""
        self._record_delta(kind, text)
        if self.has_listeners:
            self._publish(_DELTA_OF[kind](number=self.count, text=text), len(text))

    def record_opening(self, opening: Item) -> int:
        """Record a call that was opened; return its place among those opened."""
        self._record_kinds()
        event_log.pack_inline(self.packed, OPENED, opening.raw)
        self._chosen = len(self._call_ids)
        self._call_ids.append(opening.call_id or "")
        self.count += 1
        if self.has_listeners:
            self._publish(ItemAdded(number=self.count, item=msgspec.Raw(opening.raw)), len(opening.raw))
        return self._chosen

    def record_arguments(self, call: int, text: str) -> None:
        """Record arguments of the call that was opened at this place."""
        if call != self._chosen:
            event_log.pack_placed(self.packed, CHOSEN, call)
            self._chosen = call
        self._record_delta(ARGUMENTS, text)
        if self.has_listeners:
            event = ArgumentsDelta(number=self.count, call_id=self._call_ids[call], text=text)
            self._publish(event, len(text))

    def _record_delta(self, kind: int, text: str) -> None:
        self._record_kinds().append(text)
        event_log.pack_kind(self.packed, kind, len(text))
        self.count += 1

    def _record_kinds(self) -> EmittedText:
        """Bring the log into the form for all kinds, once; return the text of those other than text."""
        if self.more is None:
            self.more = EmittedText()
            flushed = event_log.with_kinds(self.packed[: self._flushed_log])
            rest = event_log.with_kinds(self.packed[self._flushed_log :])
            self.packed = flushed + rest[len(KINDS) :]
            self._flushed_log = len(flushed) if self._flushed_log else 0
            self._marks = None
        return self.more

    def record_item(self, item: Item, *, code: int = ITEM, call: int = 0) -> None:
        """Record a finished item; `code` says what it was made of, `call` the place of an opened call."""
        event_log.pack_made(self.packed, code, call)
        self.items.append(item)
        self.count += 1
        if self.has_listeners:
            self._publish(ItemDone(number=self.count, item=msgspec.Raw(item.raw)), len(item.raw))

    def record_spare(self, kind: int, text: str) -> None:
        """Record that emitted text of this kind will be in no item."""
        event_log.pack_spare(self.packed, event_log.spare_source(kind), text)

    def restore(self, chunks: Sequence[LogChunk], items: Sequence[Item]) -> None:
        """Continue the log of another process, as far as that has stored it; `items` are its journal."""
        log = event_log.join_logs([chunk.log for chunk in chunks])
        self.packed += log
        self.items += items[: event_log.count_items(log)]
        for chunk in chunks:
            self.text.append(chunk.text)
        if event_log.has_kinds(log):
            self.more = EmittedText()
            for chunk in chunks:
                self.more.append(chunk.more or "")
            self._flushed_more = self.more.length
        for code, value, raw, _ in event_log.entries(log):
            self.count += code not in SILENT
            if code == OPENED:
                self._chosen = len(self._call_ids)
                self._call_ids.append(Item.stored(raw).call_id or "")
            elif code == CHOSEN:
                self._chosen = value
        self._flushed_log, self._flushed_text = len(self.packed), self.text.length

    def record_resumed(self, tail: str) -> None:
        """Record that all text and open calls since the last item are void; `tail` is that text."""
        more = self._record_kinds()
        self.packed += event_log.spare_entries(
            bytes(self.packed), self.items, more.between(0, more.length), tail
        )
        self.packed.append(RESUMED)
        self.count += 1
        if self.has_listeners:
            self._publish(TurnResumed(number=self.count), 0)

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
        self._recent_bytes = sum(map(_size, self._recent))
        if self._recent_bytes > self._limits.reader_bytes:
            self._recent.clear()
            self._recent_bytes = 0

    def next_chunk(self) -> LogChunk | None:
        """Return what was recorded since the last chunk, or None."""
        start, at = self._flushed_log, self._flushed_text
        if len(self.packed) == start:
            return None
        log, text = bytes(self.packed[start:]), self.text.between(at, self.text.length)
        self._flushed_log, self._flushed_text = len(self.packed), self.text.length
        if self.more is None:
            return LogChunk(log=log, text=text)
        more_at, self._flushed_more = self._flushed_more, self.more.length
        more = self.more.between(more_at, self.more.length)
        return LogChunk(log=KINDS + log if start else log, text=text, more=more)

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
        mark = self._nearest(max(after, 1))
        more = self.more or self.text
        source = EmittedSource(
            self.text.between, more.between, self.items, at=mark.at, more_at=mark.more_at, item=mark.item
        )
        replay = EventReplay(mark.number, self._call_ids[: mark.calls], mark.chosen)
        yield from replay.events(event_log.entries(self.packed, mark.start), source, after)
        if self.end is not None and after < self.end.number:
            yield self.end

    def _nearest(self, number: int) -> _Mark:
        """Return the last known place up to this event."""
        if self._marks is None:
            self._marks = [_Mark()]
        marks = self._marks
        while len(marks) <= (number - 1) // STRIDE:
            mark = self._walk(marks[-1])
            if mark.number - marks[-1].number < STRIDE:
                break
            marks.append(mark)
        return marks[min((number - 1) // STRIDE, len(marks) - 1)]

    def _walk(self, mark: _Mark) -> _Mark:
        """Return the place that is a stride further, or the end."""
        start, number, at, more_at, item, calls, chosen = mark
        stop = number + STRIDE
        for code, value, _, start in event_log.entries(self.packed, start):  # noqa: B007, B020 - its last value is the place
            number += code not in SILENT
            if code == TEXT:
                at += value
            elif code > TEXT:
                more_at += value
            elif code == OPENED:
                chosen, calls = calls, calls + 1
            elif code == CHOSEN:
                chosen = value
            elif code != RESUMED:
                item += code not in SILENT
            if number == stop:
                break
        return _Mark(start, number, at, more_at, item, calls, chosen)

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
