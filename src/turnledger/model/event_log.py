"""The event log: which events an attempt emitted, in order, at about one byte each; and their replay.

The log holds no text and no items, which are in the turn or in the journal. It records the length of each
delta and where items came: one number per event, in groups of seven bits.

    0      an added item: the next one
    1      an item made of the text emitted before it: the next one
    2      an item that was sent and is not in the turn: its length and its JSON follow
    3      why the turn ended: the length and the JSON of the failure follow
    n + 3  a delta of n characters

The first event (started) and the last (finished) are the same for every attempt and need no number.

A log with other deltas than text begins with KINDS. From 0 to 3 its numbers mean the same, and then:

    4, 5   an item made of the reasoning, or of the refusal, emitted before it: the next one
    6      an item made of an opened call: the next one; the place of the call among those opened follows
    7      a call was opened: the length and the JSON of its opening follow
    8      a call was opened: its opening is that of the item made of it
    9      the next arguments are of another call: its place follows
    10     text that is in no item: what it was cut into, its length and its UTF-8 follow
    11     the turn was resumed: what was emitted since the last item is void
    12 + 4n + k   a delta of n characters of kind k: text, reasoning, refusal, arguments

Deltas of a kind are cut, one after another, from the items made of that kind, and from 10; those of arguments
from the call that they belong to. While an attempt runs, they are cut from the text as it was emitted: that
of text, and that of all other kinds together.

A settled turn holds only a part of what was sent. Its log is stored whole, with items and text.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from turnledger.errors import MalformedItems, StoreCorrupt
from turnledger.model import codec
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
from turnledger.model.item import Item, opening_of
from turnledger.model.turn import AttemptState, Failure

ITEM, EMITTED, INLINE, FAILURE = range(4)
REASONED, REFUSED, CALLED, OPENED, OPENED_AS_MADE, CHOSEN, SPARE, RESUMED = range(4, 12)
TEXT, REASONING, REFUSAL, ARGUMENTS = range(12, 16)
"""The kinds of deltas. An entry of the log has one of all these codes."""
DELTA = 3
KINDS = b"\x80\x00"
"""Begins a log of other kinds than text: a number that `pack` never writes."""
ONE_BYTE = 0x80
"""The smallest number that needs a second byte."""

MADE_OF = {TEXT: EMITTED, REASONING: REASONED, REFUSAL: REFUSED, ARGUMENTS: CALLED}
"""A kind of deltas, and the code of an item made of them."""
_KIND_OF = {code: kind for kind, code in MADE_OF.items()}
REFERRING = frozenset({ITEM, *_KIND_OF})
"""Entries that refer to the next item."""
SILENT = frozenset({FAILURE, CHOSEN, SPARE})
"""Entries that are no events."""
_WITH_PLACE = frozenset({CALLED, CHOSEN, SPARE})
_WITH_BYTES = frozenset({INLINE, FAILURE, OPENED, SPARE})
_CALLS = 3
"""In entries of spare text: the place of a call, plus this; below it are the other kinds."""

PLAIN, DEFLATED, WHOLE = b"\x00", b"\x01", b"\x02"
PLAIN_KINDS, DEFLATED_KINDS = b"\x03", b"\x04"
WORTH_DEFLATING = 128
"""Bytes of a log from which compression pays off."""


class LogChunk(codec.Document, frozen=True):
    """A part of the log with its text. A running attempt writes one about twice a second; an attempt that
    was set aside keeps one. `items` are those that the journal may no longer hold, `more` is the text of
    other kinds, as it was emitted."""

    log: bytes
    text: str
    items: tuple[msgspec.Raw, ...] = ()
    more: str | msgspec.UnsetType = msgspec.UNSET


class WholeLog(LogChunk, frozen=True, kw_only=True):
    """The log of a settled turn: everything that was sent of the attempt, and the end that was reported. It
    refers to no item of the turn, so every copy of the turn can share it."""

    state: AttemptState
    failure: Failure | None = None


def pack(log: bytearray, value: int) -> None:
    while value >= ONE_BYTE:
        log.append(value & 0x7F | ONE_BYTE)
        value >>= 7
    log.append(value)


def pack_delta(log: bytearray, length: int) -> None:
    """Append a delta to a log of text alone."""
    pack(log, length + DELTA)


def pack_kind(log: bytearray, kind: int, length: int) -> None:
    """Append a delta of any kind to a log that begins with KINDS."""
    pack(log, kind + 4 * length)


def pack_inline(log: bytearray, code: int, raw: bytes) -> None:
    """Append, whole, something that is stored nowhere else."""
    pack(log, code)
    pack(log, len(raw))
    log += raw


def pack_made(log: bytearray, code: int, call: int = 0) -> None:
    """Append a finished item; `call` is the place of the call that it is made of."""
    log.append(code)
    if code == CALLED:
        pack(log, call)


def pack_placed(log: bytearray, code: int, place: int) -> None:
    """Append an entry about the call opened at this place."""
    pack(log, code)
    pack(log, place)


def pack_spare(log: bytearray, source: int, text: str) -> None:
    raw = text.encode()
    pack_placed(log, SPARE, source)
    pack(log, len(raw))
    log += raw


def spare_source(kind: int, call: int = 0) -> int:
    """Return the name of what deltas of a kind are cut from, for entries of spare text."""
    return call + _CALLS if kind == ARGUMENTS else kind - TEXT


def with_kinds(log: bytes | bytearray) -> bytearray:
    """Return the same log in the form for all kinds."""
    if has_kinds(log):
        return bytearray(log)
    made = bytearray(KINDS)
    for code, value, raw, _ in entries(log):
        if code == TEXT:
            pack_kind(made, TEXT, value)
        elif raw:
            pack_inline(made, code, raw)
        else:
            pack(made, code)
    return made


def has_kinds(log: bytes | bytearray) -> bool:
    return log[:2] == KINDS


def join_logs(logs: Sequence[bytes]) -> bytes:
    """Join the logs of chunks, of either form."""
    if not any(map(has_kinds, logs)):
        return b"".join(logs)
    return KINDS + b"".join(bytes(with_kinds(log)[len(KINDS) :]) for log in logs)


Entry: TypeAlias = tuple[int, int, bytes, int]


def entries(log: bytes | bytearray, start: int = 0) -> Iterator[Entry]:
    """Yield the entries from `start` on: the code, the length of a delta or the place of a call, the bytes
    that belong to it, and the offset after it."""
    is_wide = has_kinds(log)
    place = start or (len(KINDS) if is_wide else 0)
    while place < len(log):
        code, place = _unpack(log, place)
        value, raw = 0, b""
        if not is_wide and code > DELTA:
            yield TEXT, code - DELTA, raw, place
            continue
        if code > RESUMED:
            yield TEXT + code % 4, (code - TEXT) // 4, raw, place
            continue
        if code in _WITH_PLACE:
            value, place = _unpack(log, place)
        if code in _WITH_BYTES:
            length, place = _unpack(log, place)
            raw = bytes(log[place : place + length])
            place += length
            if len(raw) != length:
                raise _corrupt_error("is cut off")
        yield code, value, raw, place


def _corrupt_error(reason: str) -> StoreCorrupt:
    return StoreCorrupt(f"A stored event log {reason}. Restore the store from a backup.")


def _unpack(log: bytes | bytearray, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(log):
            raise _corrupt_error("is cut off")
        byte = log[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < ONE_BYTE:
            return value, place
        shift += 7


Slice: TypeAlias = Callable[[int, int], str]
"""Returns the characters between two positions."""


class EmittedSource:
    """Cuts deltas from the text as it was emitted: that of text, and that of all other kinds."""

    __slots__ = ("_items", "_more", "_text", "at", "item", "more_at")

    def __init__(
        self, text: Slice, more: Slice, items: Sequence[Item], *, at: int = 0, more_at: int = 0, item: int = 0
    ) -> None:
        self._text = text
        self._more = more
        self._items = items
        self.at, self.more_at, self.item = at, more_at, item

    def cut(self, kind: int, _call: int, length: int) -> str:
        if kind == TEXT:
            start = self.at
            self.at += length
            return _checked(self._text(start, self.at), length)
        start = self.more_at
        self.more_at += length
        return _checked(self._more(start, self.more_at), length)

    def skip(self, code: int, _call: int, length: int) -> None:
        if code == TEXT:
            self.at += length
        elif code > TEXT:
            self.more_at += length
        elif code in REFERRING:
            self.item += 1

    def next_item(self) -> Item:
        self.item += 1
        return _at(self._items, self.item - 1)

    def opening(self, _call: int) -> bytes:
        raise _corrupt_error("refers to a missing call")


class ItemSource:
    """Cuts deltas from the items made of them, and from spare text. `tail` is text after the last item."""

    __slots__ = ("_at", "_calls", "_items", "_text", "_text_at", "_texts", "item")

    def __init__(self, log: bytes, items: Sequence[Item], tail: str = "") -> None:
        self._items = items
        self._calls: dict[int, Item] = {}
        self._texts = _texts_of(log, items, self._calls)
        self._text = self._texts.get(0, "") + tail
        self._text_at = 0
        self._at: dict[int, int] = {}
        self.item = 0

    def cut(self, kind: int, call: int, length: int) -> str:
        if kind == TEXT:
            start = self._text_at
            self._text_at = start + length
            return _checked(self._text[start : start + length], length)
        source = spare_source(kind, call)
        start = self._at.get(source, 0)
        self._at[source] = start + length
        return _checked(self._texts.get(source, "")[start : start + length], length)

    def skip(self, code: int, call: int, length: int) -> None:
        if code == TEXT:
            self._text_at += length
        elif code > TEXT:
            source = spare_source(code, call)
            self._at[source] = self._at.get(source, 0) + length
        elif code in REFERRING:
            self.item += 1

    def next_item(self) -> Item:
        self.item += 1
        return _at(self._items, self.item - 1)

    def opening(self, call: int) -> bytes:
        try:
            return opening_of(self._calls[call]).raw
        except (KeyError, MalformedItems):
            raise _corrupt_error("refers to a missing call") from None


def _texts_of(log: bytes, items: Sequence[Item], calls: dict[int, Item]) -> dict[int, str]:
    """Return the text of the items that a log says are made of deltas, and its spare text, by source. The
    deltas before an item were cut from it, and also later ones if more was emitted while the item was
    recorded. Fills in the items made of opened calls, by their place."""
    pieces: dict[int, list[str]] = {}
    item = 0
    for code, value, raw, _ in entries(log):
        if code == SPARE:
            pieces.setdefault(value, []).append(_decoded(raw))
        elif code in REFERRING:
            if code != ITEM:
                made = _at(items, item)
                pieces.setdefault(spare_source(_KIND_OF[code], value), []).append(made.body)
                if code == CALLED:
                    calls[value] = made
            item += 1
    return {source: "".join(each) for source, each in pieces.items()}


def _at(items: Sequence[Item], place: int) -> Item:
    if place >= len(items):
        raise _corrupt_error("refers to missing items")
    return items[place]


def _checked(found: str, length: int) -> str:
    if len(found) != length:
        raise _corrupt_error("refers to missing text")
    return found


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        raise _corrupt_error(f"cannot be read: {problem}") from None


class EventReplay:
    """Rebuilds the events of a log, or of one part of it after another. `number` is that of the last event,
    `call_ids` are those of the calls opened so far."""

    __slots__ = ("call_ids", "chosen", "number")

    def __init__(self, number: int = 1, call_ids: list[str] | None = None, chosen: int = -1) -> None:
        self.number = number
        self.call_ids = [] if call_ids is None else call_ids
        self.chosen = chosen

    def events(
        self, log: Iterator[Entry], source: EmittedSource | ItemSource, after: int = 0
    ) -> Iterator[Event]:
        """Yield the events numbered above `after`; pass over the others without cutting their text."""
        for code, value, raw, _ in log:
            if code == CHOSEN:
                self.chosen = value
            if code in SILENT:
                continue
            self.number = number = self.number + 1
            if number <= after and code not in (OPENED, OPENED_AS_MADE):
                source.skip(code, self.chosen, value)
            elif code == TEXT:
                yield TextDelta(number=number, text=source.cut(TEXT, 0, value))
            elif code > TEXT:
                yield self._delta(code, source.cut(code, self.chosen, value))
            elif code == RESUMED:
                yield TurnResumed(number=number)
            elif code in (OPENED, OPENED_AS_MADE):
                opening = raw if code == OPENED else source.opening(len(self.call_ids))
                self.chosen = len(self.call_ids)
                self.call_ids.append(Item.stored(opening).call_id or "")
                if number > after:
                    yield ItemAdded(number=number, item=msgspec.Raw(opening))
            else:
                yield ItemDone(
                    number=number, item=msgspec.Raw(raw if code == INLINE else source.next_item().raw)
                )

    def _delta(self, kind: int, text: str) -> Event:
        if kind == REASONING:
            return ReasoningDelta(number=self.number, text=text)
        if kind == REFUSAL:
            return RefusalDelta(number=self.number, text=text)
        if not 0 <= self.chosen < len(self.call_ids):
            raise _corrupt_error("refers to a missing call")
        return ArgumentsDelta(number=self.number, call_id=self.call_ids[self.chosen], text=text)


def replay_chunk(replay: EventReplay, chunk: LogChunk, items: Sequence[Item]) -> Iterator[Event]:
    """Yield the events of a chunk of a running attempt. `items` are those it refers to, in order."""
    text, more = chunk.text, chunk.more or ""
    source = EmittedSource(lambda at, to: text[at:to], lambda at, to: more[at:to], items)
    return replay.events(entries(chunk.log), source)


def rebuild(
    log: bytes, items: Sequence[Item], tail: str, state: AttemptState, failure: Failure | None
) -> Iterator[Event]:
    """Yield all events of an ended attempt. `tail` is the text emitted after its last item."""
    yield TurnStarted(number=1)
    replay = EventReplay()
    yield from replay.events(entries(log), ItemSource(log, items, tail))
    yield TurnFinished(number=replay.number + 1, state=state, failure=failure)


def kind_of(item: Item) -> int:
    """Return the kind of deltas that an item is made of, if it is made of any."""
    if item.is_reasoning:
        return REASONING
    if item.is_refusal:
        return REFUSAL
    return TEXT if item.type == "message" else ARGUMENTS


def open_calls(log: bytes) -> dict[str, int]:
    """Return the places of opened calls of which no item was made, by their ids."""
    opened: list[str] = []
    made: set[int] = set()
    for code, value, raw, _ in entries(log):
        if code == OPENED:
            opened.append(Item.stored(raw).call_id or "")
        elif code == CALLED:
            made.add(value)
    return {call_id: place for place, call_id in enumerate(opened) if place not in made}


def unfinished(log: bytes, items: Sequence[Item], more: str) -> dict[int, str]:
    """Return the emitted text of other kinds that is in no item and not spare, by source."""
    emitted: dict[int, list[str]] = {}
    opened, chosen, at = 0, -1, 0
    for code, value, _, _ in entries(log):
        if code == CHOSEN:
            chosen = value
        elif code in (OPENED, OPENED_AS_MADE):
            chosen, opened = opened, opened + 1
        elif code > TEXT:
            emitted.setdefault(spare_source(code, chosen), []).append(more[at : at + value])
            at += value
    calls: dict[int, Item] = {}
    taken = _texts_of(log, items, calls)
    return {
        source: "".join(pieces)[len(taken.get(source, "")) :]
        for source, pieces in emitted.items()
        if source - _CALLS not in calls
    }


def spare_entries(log: bytes, items: Sequence[Item], more: str, tail: str = "") -> bytes:
    """Return what to append to a log so that its deltas can be cut from `items` alone."""
    added = bytearray()
    if tail:
        pack_spare(added, 0, tail)
    if has_kinds(log):
        for source, text in unfinished(log, items, more).items():
            if text:
                pack_spare(added, source, text)
    return bytes(added)


def emitted_text(log: bytes, items: Sequence[Item]) -> str:
    """Join the text of the items made of deltas of text, and the spare text of that kind."""
    return _texts_of(log, items, {}).get(0, "")


def count_items(log: bytes) -> int:
    """Count the items that a log refers to."""
    return sum(code in REFERRING for code, _, _, _ in entries(log))


VOIDED = "voided"
"""In the details of a turn that was resumed: what `voided` returns."""


def voided(log: bytes) -> list[int]:
    """Return how many items were finished each time the turn was resumed, and what was emitted since became
    void."""
    places: list[int] = []
    items = 0
    for code, _, _, _ in entries(log):
        if code == RESUMED:
            places.append(items)
        elif code in REFERRING or code == INLINE:
            items += 1
    return places


def failure_of(log: bytes) -> Failure | None:
    for code, _, raw, _ in entries(log):
        if code == FAILURE:
            try:
                return msgspec.json.decode(raw, type=Failure)
            except msgspec.MsgspecError as problem:
                raise StoreCorrupt(
                    f"A stored failure cannot be read: {problem}. Restore the store from a backup."
                ) from None
    return None


def encode_log(log: bytes, output: Sequence[Item]) -> bytes:
    """Encode the log for a turn with this output; empty where the output alone implies it."""
    if log == _implied_log(output):
        return b""
    plain, deflated_ = PLAIN, DEFLATED
    if has_kinds(log):
        plain, deflated_ = PLAIN_KINDS, DEFLATED_KINDS
        log = _without_openings(log, output)
    if len(log) >= WORTH_DEFLATING:
        deflated = zlib.compress(log)
        if len(deflated) < len(log):
            return deflated_ + deflated
    return plain + log


def _without_openings(log: bytes, output: Sequence[Item]) -> bytes:
    """Return the log without KINDS, and without the openings of calls that the output implies."""
    made: dict[int, Item] = {}
    _texts_of(log, output, made)
    shorter = bytearray()
    opened, start = 0, len(KINDS)
    for code, _, raw, place in entries(log):
        if code == OPENED and opened in made and opening_of(made[opened]).raw == raw:
            pack(shorter, OPENED_AS_MADE)
        else:
            shorter += log[start:place]
        opened += code == OPENED
        start = place
    return bytes(shorter)


def decode_log(raw: bytes, output: Sequence[Item]) -> bytes:
    if not raw:
        return _implied_log(output)
    header = raw[:1]
    if header == PLAIN:
        return raw[1:]
    if header == PLAIN_KINDS:
        return KINDS + raw[1:]
    return KINDS + _inflate(raw) if header == DEFLATED_KINDS else _inflate(raw)


def encode_whole(whole: WholeLog) -> bytes:
    return WHOLE + zlib.compress(codec.encode(whole))


def decode_whole(raw: bytes) -> WholeLog | None:
    """Decode a whole log; return None if another kind is stored."""
    return codec.decode(WholeLog, _inflate(raw)) if raw[:1] == WHOLE else None


def _inflate(raw: bytes) -> bytes:
    try:
        return zlib.decompress(raw[1:])
    except zlib.error as problem:
        raise _corrupt_error(f"cannot be read: {problem}") from None


def encode_at_once(output: Sequence[Item], failure: Failure | None) -> bytes:
    """Encode a log for a turn whose deltas are unknown: its output at once, and its failure."""
    log = bytearray(_implied_log(output))
    if failure is not None:
        pack_inline(log, FAILURE, msgspec.json.encode(failure))
    return encode_log(bytes(log), output)


def _implied_log(output: Sequence[Item]) -> bytes:
    """Return the log that is not stored: one message in one delta, or items without deltas."""
    if len(output) == 1 and output[0].role == "assistant" and output[0].text:
        log = bytearray()
        pack_delta(log, len(output[0].text))
        log.append(EMITTED)
        return bytes(log)
    return bytes([ITEM] * len(output))
