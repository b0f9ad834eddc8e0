"""The event log: which events an attempt told, in order, at about a byte each; and the events again from it.

The log holds no text and no items: those are in the turn, or in the journal. It says how long each delta was
and where items came. One number, in groups of seven bits, for each event:

    0      an item that was added: the next one
    1      an item made of the text emitted before it: the next one
    2      an item that was told and is not in the turn: its length and its JSON follow
    3      why the turn ended as it did: the length and the JSON of the failure follow
    n + 3  a delta of n characters

That a turn started is event 1 of every attempt, and how it finished is its last: neither needs a number.

A settled turn holds but a part of what was told. Its log is kept whole, with items and text.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import msgspec

from turnledger.errors import StoreCorrupt
from turnledger.model import codec
from turnledger.model.event import Event, ItemDone, TextDelta, TurnFinished, TurnStarted
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState, Failure

ITEM, EMITTED, INLINE, FAILURE = range(4)
DELTA = 3
"""What is added to the length of a delta."""
ONE_BYTE = 0x80
"""The first number that does not fit into one byte."""

PLAIN, DEFLATED, WHOLE = b"\x00", b"\x01", b"\x02"
WORTH_DEFLATING = 128
"""Bytes of a log from which compressing it saves more than it costs."""


class LogChunk(codec.Document, frozen=True):
    """A part of the log with what it speaks of: as a running attempt writes it about twice a second, or as
    one that was set aside keeps it. `items` are those that the journal may no longer hold."""

    log: bytes
    text: str
    items: tuple[msgspec.Raw, ...] = ()


class WholeLog(LogChunk, frozen=True, kw_only=True):
    """The log of a settled turn: all that was told of the attempt, of which the turn holds only a part, and
    the end that was told. It speaks of no item of the turn, so each copy of the turn can have it as it is."""

    state: AttemptState
    failure: Failure | None = None


def pack(log: bytearray, value: int) -> None:
    """Append one number."""
    while value >= ONE_BYTE:
        log.append(value & 0x7F | ONE_BYTE)
        value >>= 7
    log.append(value)


def pack_delta(log: bytearray, length: int) -> None:
    pack(log, length + DELTA)


def pack_inline(log: bytearray, code: int, raw: bytes) -> None:
    """Append something that is found nowhere else, whole."""
    pack(log, code)
    pack(log, len(raw))
    log += raw


def entries(log: bytes | bytearray, start: int = 0) -> Iterator[tuple[int, bytes, int]]:
    """The entries from this place on: the number, what follows it if anything, and the place behind it."""
    place = start
    while place < len(log):
        value, place = _unpack(log, place)
        raw = b""
        if value in (INLINE, FAILURE):
            length, place = _unpack(log, place)
            raw = bytes(log[place : place + length])
            place += length
            if len(raw) != length:
                raise StoreCorrupt("A stored event log is cut off.")
        yield value, raw, place


def _unpack(log: bytes | bytearray, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(log):
            raise StoreCorrupt("A stored event log is cut off.")
        byte = log[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < ONE_BYTE:
            return value, place
        shift += 7


def replay(log: bytes, items: Sequence[Item], text: str, number: int) -> Iterator[Event]:
    """The events of a log, the first of them with this number. `items` are those it points to, in order, and
    `text` is what its deltas were cut from."""
    waiting = iter(items)
    at = 0
    for code, raw, _ in entries(log):
        if code == FAILURE:
            continue
        if code > DELTA:
            length = code - DELTA
            if at + length > len(text):
                raise StoreCorrupt("A stored event log tells more text than there is.")
            yield TextDelta(number=number, text=text[at : at + length])
            at += length
        else:
            yield ItemDone(number=number, item=msgspec.Raw(raw if code == INLINE else _next(waiting).raw))
        number += 1


def _next(waiting: Iterator[Item]) -> Item:
    try:
        return next(waiting)
    except StopIteration:
        raise StoreCorrupt("A stored event log tells more items than there are.") from None


def rebuild(
    log: bytes, items: Sequence[Item], tail: str, state: AttemptState, failure: Failure | None
) -> Iterator[Event]:
    """All events of an attempt that ended so. `tail` is the text emitted behind its last item."""
    yield TurnStarted(number=1)
    number = 2
    for event in replay(log, items, emitted_text(log, items) + tail, number):
        yield event
        number = event.number + 1
    yield TurnFinished(number=number, state=state, failure=failure)


def emitted_text(log: bytes, items: Sequence[Item]) -> str:
    """The text of the items that were made of deltas: what the deltas before them were cut from, or later
    ones, if more was emitted while the item was recorded."""
    waiting = iter(items)
    told = [(code, _next(waiting)) for code, _, _ in entries(log) if code in (ITEM, EMITTED)]
    return "".join(item.text for code, item in told if code == EMITTED)


def items_told(log: bytes) -> int:
    """How many items a log points to."""
    return sum(code in (ITEM, EMITTED) for code, _, _ in entries(log))


def failure_of(log: bytes) -> Failure | None:
    """Why the turn ended as it did, if its log says so."""
    for code, raw, _ in entries(log):
        if code == FAILURE:
            try:
                return msgspec.json.decode(raw, type=Failure)
            except msgspec.MsgspecError as problem:
                raise StoreCorrupt(f"A stored failure cannot be read: {problem}.") from None
    return None


def stored(log: bytes, output: Sequence[Item]) -> bytes:
    """The log as it is kept with a turn of this output; empty where the output alone tells as much."""
    if log == _self_evident(output):
        return b""
    if len(log) >= WORTH_DEFLATING:
        deflated = zlib.compress(log)
        if len(deflated) < len(log):
            return DEFLATED + deflated
    return PLAIN + log


def loaded(kept: bytes, output: Sequence[Item]) -> bytes:
    """The log of a turn from how it is kept."""
    if not kept:
        return _self_evident(output)
    if kept[:1] == PLAIN:
        return kept[1:]
    return _inflated(kept)


def stored_whole(whole: WholeLog) -> bytes:
    """A whole log as it is kept with its turn."""
    return WHOLE + zlib.compress(codec.encode(whole))


def loaded_whole(kept: bytes) -> WholeLog | None:
    """The whole log from how it is kept; None if something else is kept."""
    return codec.decode(WholeLog, _inflated(kept)) if kept[:1] == WHOLE else None


def _inflated(kept: bytes) -> bytes:
    try:
        return zlib.decompress(kept[1:])
    except zlib.error as problem:
        raise StoreCorrupt(f"A stored event log cannot be read: {problem}.") from None


def stored_at_once(output: Sequence[Item], failure: Failure | None) -> bytes:
    """The log of a turn of which nobody knows how its words came, as it is kept: its output, and why it ended
    as it did."""
    log = bytearray(_self_evident(output))
    if failure is not None:
        pack_inline(log, FAILURE, msgspec.json.encode(failure))
    return stored(bytes(log), output)


def _self_evident(output: Sequence[Item]) -> bytes:
    """The log that needs no keeping: one message that came in one delta, or items without any."""
    if len(output) == 1 and output[0].role == "assistant" and output[0].text:
        log = bytearray()
        pack_delta(log, len(output[0].text))
        log.append(EMITTED)
        return bytes(log)
    return bytes([ITEM] * len(output))
