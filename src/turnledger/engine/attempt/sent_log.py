"""What readers have received of an attempt, and how its end continues that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from turnledger.engine.ports import Tables
from turnledger.model import codec, event_log
from turnledger.model.event_log import (
    ARGUMENTS,
    CALLED,
    FAILURE,
    INLINE,
    ITEM,
    KINDS,
    MADE_OF,
    REFERRING,
    TEXT,
    LogChunk,
    WholeLog,
)
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, raws
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState, Failure

ALL = 2**62
"""More chunks than a log has."""


@dataclass(frozen=True)
class SentLog:
    """What readers received: the log, how many journal items it refers to, the text after those, and all
    text of other kinds."""

    log: bytes
    items: int
    tail: str
    more: str = ""


async def load_flushed(tables: Tables, attempt: TurnId, journal: Journal) -> SentLog:
    """Return what a running attempt has sent, as far as it is on disk: what a dead process leaves."""
    chunks = [codec.decode(LogChunk, raw) for raw in await tables.log_chunks(attempt, 0, ALL)]
    log = event_log.join_logs([chunk.log for chunk in chunks])
    taken = len(event_log.emitted_text(log, journal.items))
    return SentLog(
        log,
        event_log.count_items(log),
        "".join(chunk.text for chunk in chunks)[taken:],
        "".join(chunk.more or "" for chunk in chunks),
    )


def kept_turn_log(
    sent: SentLog, journal: Journal, output: Sequence[Item], made: Sequence[Item], failure: Failure | None
) -> bytes:
    """Return the log of a kept turn. Output that readers have not received comes at the end, also what was
    `made` of unfinished text. Items they have received that are not in the output stay inline in the log, and
    so does text that is in no item."""
    sent_items = journal.items[: sent.items]
    start = len(KINDS) if event_log.has_kinds(sent.log) else 0
    log = bytearray(sent.log[:start])
    waiting = iter(sent_items)
    output_ids = set(map(id, output))
    for code, value, _, place in event_log.entries(sent.log):
        item = next(waiting) if code in REFERRING else None
        if item is not None and id(item) not in output_ids:
            if code != ITEM:
                event_log.pack_spare(log, event_log.spare_source(event_log.kind_of(item), value), item.body)
            event_log.pack_inline(log, INLINE, item.raw)
        else:
            log += sent.log[start:place]
        start = place
    sent_ids = set(map(id, sent_items))
    emitted_ids = {id(item) for item in (*made, *(journal.items[place] for place in journal.emitted))}
    ahead = len(sent.tail)
    for item in output:
        if id(item) not in sent_ids:
            is_emitted = id(item) in emitted_ids
            if is_emitted and event_log.kind_of(item) == TEXT:
                ahead -= len(item.body)
                if ahead < 0:  # the process died before it stored the deltas of the rest
                    _pack_text(log, -ahead)
                    ahead = 0
            _pack_unsent(log, item, is_emitted=is_emitted)
    log += event_log.spare_entries(bytes(log), output, sent.more)
    if failure is not None:
        event_log.pack_inline(log, FAILURE, msgspec.json.encode(failure))
    return bytes(log)


def _pack_text(log: bytearray, length: int) -> None:
    if event_log.has_kinds(log):
        event_log.pack_kind(log, TEXT, length)
    else:
        event_log.pack_delta(log, length)


def _pack_unsent(log: bytearray, item: Item, *, is_emitted: bool) -> None:
    kind = event_log.kind_of(item)
    if not is_emitted or (kind != TEXT and not event_log.has_kinds(log)):
        event_log.pack(log, ITEM)
    elif kind != ARGUMENTS:
        event_log.pack(log, MADE_OF[kind])
    else:
        call = event_log.open_calls(bytes(log)).get(item.call_id or "")
        if call is None:
            event_log.pack(log, ITEM)
        else:
            event_log.pack_placed(log, CALLED, call)


async def store_attempt_log(tables: Tables, attempt: TurnId, journal: Journal, sent: SentLog) -> None:
    """Keep the whole log of an attempt that is not history: its journal may be dropped earlier."""
    await tables.drop_log(attempt)
    if sent.log:
        items = journal.items[: sent.items]
        log = sent.log + event_log.spare_entries(sent.log, items, sent.more)
        chunk = LogChunk(log=log, text=sent.tail, items=raws(items))
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
