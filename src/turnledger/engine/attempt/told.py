"""Telling: what readers were told of an attempt, and how its end fits on to that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from turnledger.engine.ports import Tables
from turnledger.model import codec, event_log
from turnledger.model.event_log import EMITTED, FAILURE, INLINE, ITEM, LogChunk, WholeLog
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState, Failure

ALL = 2**62
"""More chunks than there are."""


@dataclass(frozen=True)
class Told:
    """What was told: the log, how many items of the journal it points to, and the text behind those."""

    log: bytes
    items: int
    tail: str


async def flushed(tables: Tables, attempt: TurnId, journal: Journal) -> Told:
    """What a running attempt has told as far as it is on disk: to go by when its process is gone."""
    chunks = [codec.decode(LogChunk, raw) for raw in await tables.log_chunks(attempt, 0, ALL)]
    log = b"".join(chunk.log for chunk in chunks)
    taken = len(event_log.emitted_text(log, journal.items))
    return Told(log, event_log.items_told(log), "".join(chunk.text for chunk in chunks)[taken:])


def left_of(told: Told, journal: Journal) -> str:
    """The text that no item has taken, not even one that was recorded and is not told yet."""
    untold = [journal.items[place].text for place in sorted(journal.emitted) if place >= told.items]
    return told.tail[sum(map(len, untold)) :]


def log_of_kept(told: Told, journal: Journal, output: Sequence[Item], failure: Failure | None) -> bytes:
    """The log of a turn that is kept as it is. Whatever of the output was not told yet comes at the end; what
    was told and is not in the output stays, in the log itself."""
    told_items = journal.items[: told.items]
    log = bytearray()
    waiting = iter(told_items)
    there = set(map(id, output))
    for code, _, _ in event_log.entries(told.log):
        item = next(waiting) if code in (ITEM, EMITTED) else None
        if item is not None and id(item) not in there:
            event_log.pack_inline(log, INLINE, item.raw)
        else:
            event_log.pack(log, code)
    known = set(map(id, told_items))
    of_text = {id(journal.items[place]) for place in journal.emitted}
    if left_of(told, journal):
        of_text.add(id(output[-1]))
    log += bytes(EMITTED if id(item) in of_text else ITEM for item in output if id(item) not in known)
    if failure is not None:
        event_log.pack_inline(log, FAILURE, msgspec.json.encode(failure))
    return bytes(log)


async def set_aside(tables: Tables, attempt: TurnId, journal: Journal, told: Told) -> None:
    """Keep what was told of an attempt that is not history, whole: its journal may go before it does."""
    await tables.drop_log(attempt)
    if told.log:
        items = codec.raws(journal.items[: told.items])
        chunk = LogChunk(log=told.log, text=told.tail, items=items)
        await tables.add_log_chunk(attempt, 0, codec.encode(chunk))


async def told_aside(tables: Tables, attempt: Attempt) -> WholeLog:
    """What was told of an attempt that was set aside. What became of it later, such as that its effects were
    settled, is no part of that."""
    chunks = [codec.decode(LogChunk, raw) for raw in await tables.log_chunks(attempt.id, 0, 1)]
    chunk = chunks[0] if chunks else LogChunk(log=b"", text="")
    is_stopped = attempt.stop is not None and attempt.state is not AttemptState.FAILED
    return WholeLog(
        log=chunk.log,
        text=chunk.text,
        items=chunk.items,
        state=AttemptState.DISCARDED if is_stopped else AttemptState.FAILED,
        failure=attempt.failure,
    )


def untold(told: Sequence[Item], output: Sequence[Item]) -> Sequence[Item]:
    """What of a turn's output its readers have yet to be told. Of what they were told, some reasoning may not
    be in the output."""
    place = 0
    for item in told:
        if place < len(output) and output[place] == item:
            place += 1
    return output[place:]
