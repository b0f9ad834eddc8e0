"""The event log: which events an attempt emitted, in order, at about one byte each; and their replay.

The log holds no text and no items, which are in the turn or in the journal. It records the length of each
delta and where items came: one number per event, in groups of seven bits.

    0      an added item: the next one
    1      an item made of the text emitted before it: the next one
    2      an item that was sent and is not in the turn: its length and its JSON follow
    3      why the turn ended: the length and the JSON of the failure follow
    n + 3  a delta of n characters

The first event (started) and the last (finished) are the same for every attempt and need no number.

A settled turn holds only a part of what was sent. Its log is stored whole, with items and text.
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
ONE_BYTE = 0x80
"""The smallest number that needs a second byte."""

PLAIN, DEFLATED, WHOLE = b"\x00", b"\x01", b"\x02"
WORTH_DEFLATING = 128
"""Bytes of a log from which compression pays off."""


class LogChunk(codec.Document, frozen=True):
    """A part of the log with its text. A running attempt writes one about twice a second; an attempt that
    was set aside keeps one. `items` are those that the journal may no longer hold."""

    log: bytes
    text: str
    items: tuple[msgspec.Raw, ...] = ()


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
    pack(log, length + DELTA)


def pack_inline(log: bytearray, code: int, raw: bytes) -> None:
    """Append, whole, something that is stored nowhere else."""
    pack(log, code)
    pack(log, len(raw))
    log += raw


def entries(log: bytes | bytearray, start: int = 0) -> Iterator[tuple[int, bytes, int]]:
    """Yield the entries from `start` on: the number, the bytes that belong to it, and the offset after it."""
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
    """Yield the events of a log, numbered from `number`. `items` are those it refers to, in order; `text` is
    the text that its deltas were cut from."""
    waiting = iter(items)
    at = 0
    for code, raw, _ in entries(log):
        if code == FAILURE:
            continue
        if code > DELTA:
            length = code - DELTA
            if at + length > len(text):
                raise StoreCorrupt("A stored event log refers to missing text.")
            yield TextDelta(number=number, text=text[at : at + length])
            at += length
        else:
            yield ItemDone(number=number, item=msgspec.Raw(raw if code == INLINE else _next(waiting).raw))
        number += 1


def _next(waiting: Iterator[Item]) -> Item:
    try:
        return next(waiting)
    except StopIteration:
        raise StoreCorrupt("A stored event log refers to missing items.") from None


def rebuild(
    log: bytes, items: Sequence[Item], tail: str, state: AttemptState, failure: Failure | None
) -> Iterator[Event]:
    """Yield all events of an ended attempt. `tail` is the text emitted after its last item."""
    yield TurnStarted(number=1)
    number = 2
    for event in replay(log, items, emitted_text(log, items) + tail, number):
        yield event
        number = event.number + 1
    yield TurnFinished(number=number, state=state, failure=failure)


def emitted_text(log: bytes, items: Sequence[Item]) -> str:
    """Join the text of the items made of deltas. The deltas before an item were cut from it, and also later
    ones if more was emitted while the item was recorded."""
    waiting = iter(items)
    found = [(code, _next(waiting)) for code, _, _ in entries(log) if code in (ITEM, EMITTED)]
    return "".join(item.text for code, item in found if code == EMITTED)


def count_items(log: bytes) -> int:
    """Count the items that a log refers to."""
    return sum(code in (ITEM, EMITTED) for code, _, _ in entries(log))


def failure_of(log: bytes) -> Failure | None:
    for code, raw, _ in entries(log):
        if code == FAILURE:
            try:
                return msgspec.json.decode(raw, type=Failure)
            except msgspec.MsgspecError as problem:
                raise StoreCorrupt(f"A stored failure cannot be read: {problem}.") from None
    return None


def encode_log(log: bytes, output: Sequence[Item]) -> bytes:
    """Encode the log for a turn with this output; empty where the output alone implies it."""
    if log == _implied_log(output):
        return b""
    if len(log) >= WORTH_DEFLATING:
        deflated = zlib.compress(log)
        if len(deflated) < len(log):
            return DEFLATED + deflated
    return PLAIN + log


def decode_log(raw: bytes, output: Sequence[Item]) -> bytes:
    if not raw:
        return _implied_log(output)
    if raw[:1] == PLAIN:
        return raw[1:]
    return _inflate(raw)


def encode_whole(whole: WholeLog) -> bytes:
    return WHOLE + zlib.compress(codec.encode(whole))


def decode_whole(raw: bytes) -> WholeLog | None:
    """Decode a whole log; return None if another kind is stored."""
    return codec.decode(WholeLog, _inflate(raw)) if raw[:1] == WHOLE else None


def _inflate(raw: bytes) -> bytes:
    try:
        return zlib.decompress(raw[1:])
    except zlib.error as problem:
        raise StoreCorrupt(f"A stored event log cannot be read: {problem}.") from None


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
