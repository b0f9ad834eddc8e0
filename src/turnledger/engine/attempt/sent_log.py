"""What readers have received of an attempt, and how its end continues that."""

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
"""More chunks than a log has."""


@dataclass(frozen=True)
class SentLog:
    """What readers received: the log, how many journal items it refers to, and the text after those."""

    log: bytes
    items: int
    tail: str


async def load_flushed(tables: Tables, attempt: TurnId, journal: Journal) -> SentLog:
    """Return what a running attempt has sent, as far as it is on disk: what a dead process leaves."""
    chunks = [codec.decode(LogChunk, raw) for raw in await tables.log_chunks(attempt, 0, ALL)]
    log = b"".join(chunk.log for chunk in chunks)
    taken = len(event_log.emitted_text(log, journal.items))
    return SentLog(log, event_log.count_items(log), "".join(chunk.text for chunk in chunks)[taken:])


def unfinished_text(sent: SentLog, journal: Journal) -> str:
    """Return the text that belongs to no item, journaled or sent."""
    unsent = [journal.items[place].text for place in sorted(journal.emitted) if place >= sent.items]
    return sent.tail[sum(map(len, unsent)) :]


def kept_turn_log(sent: SentLog, journal: Journal, output: Sequence[Item], failure: Failure | None) -> bytes:
    """Return the log of a kept turn. Output that readers have not received comes at the end; items they have
    received that are not in the output stay inline in the log."""
    sent_items = journal.items[: sent.items]
    log = bytearray()
    waiting = iter(sent_items)
    output_ids = set(map(id, output))
    for code, _, _ in event_log.entries(sent.log):
        item = next(waiting) if code in (ITEM, EMITTED) else None
        if item is not None and id(item) not in output_ids:
            event_log.pack_inline(log, INLINE, item.raw)
        else:
            event_log.pack(log, code)
    sent_ids = set(map(id, sent_items))
    emitted_ids = {id(journal.items[place]) for place in journal.emitted}
    if unfinished_text(sent, journal):
        emitted_ids.add(id(output[-1]))
    log += bytes(EMITTED if id(item) in emitted_ids else ITEM for item in output if id(item) not in sent_ids)
    if failure is not None:
        event_log.pack_inline(log, FAILURE, msgspec.json.encode(failure))
    return bytes(log)


async def store_attempt_log(tables: Tables, attempt: TurnId, journal: Journal, sent: SentLog) -> None:
    """Keep the whole log of an attempt that is not history: its journal may be dropped earlier."""
    await tables.drop_log(attempt)
    if sent.log:
        items = codec.raws(journal.items[: sent.items])
        chunk = LogChunk(log=sent.log, text=sent.tail, items=items)
        await tables.add_log_chunk(attempt, 0, codec.encode(chunk))


async def load_attempt_log(tables: Tables, attempt: Attempt) -> WholeLog:
    """Return the log of an attempt that was set aside, without later changes such as settling."""
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


def unsent_items(sent: Sequence[Item], output: Sequence[Item]) -> Sequence[Item]:
    """Return the part of a turn's output that readers have not received. They may have received reasoning
    that is not in the output."""
    place = 0
    for item in sent:
        if place < len(output) and output[place] == item:
            place += 1
    return output[place:]
