"""Whether what is kept beside a turn fits it: the log of its events, and the flags of its items."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from turnledger.engine.audit import UNREADABLE, Audit, Place
from turnledger.engine.looking import Over, events_of
from turnledger.engine.telling import told_aside
from turnledger.errors import StoreCorrupt
from turnledger.model import codec, event_log
from turnledger.model.attempt import Attempt, AttemptState
from turnledger.model.finding import Rule
from turnledger.model.turn import Turn


async def check_beside(audit: Audit, place: Place, turn: Turn) -> None:
    """Check what is kept beside a turn whose items can be read."""
    place = replace(place, turn=turn.id)
    try:
        kept = await audit.tables.turn_log(turn.id)
        if kept:
            _retell(events_of(turn, kept))
            if event_log.loaded_whole(kept) is None:
                _check_items_told(turn, kept)
    except UNREADABLE as problem:
        audit.note_unreadable(place, "Its event log", problem)
    try:
        flags = (await audit.tables.flags(place.owner or "", (turn.id,))).get(turn.id, {})
    except UNREADABLE as problem:
        audit.note_unreadable(place, "Its flags", problem)
        return
    astray = [at for at in flags if not 0 <= at < len(turn.items)]
    if astray:
        audit.found(
            Rule.ORPHAN,
            place,
            f"Item {astray[0]} is flagged, but it has {len(turn.items)}, counted from 0: what somebody has "
            "hidden may be shown.",
        )


async def check_aside(audit: Audit, place: Place, attempt: Attempt) -> None:
    """Check the log of an attempt that was set aside."""
    if attempt.state is AttemptState.RUNNING:
        return
    try:
        _retell(Over.of(await told_aside(audit.tables, attempt)))
    except UNREADABLE as problem:
        audit.note_unreadable(place, "Its event log", problem)


def _retell(over: Over) -> None:
    """Tell all events, as to a reader, and look at items that are in the log alone."""
    for _ in over.events():
        continue
    for code, raw, _ in event_log.entries(over.log):
        if code == event_log.INLINE:
            codec.items((msgspec.Raw(raw),))


def _check_items_told(turn: Turn, kept: bytes) -> None:
    told = event_log.items_told(event_log.loaded(kept, turn.output))
    if told != len(turn.output):
        raise StoreCorrupt(f"It tells {told} items of an output of {len(turn.output)}.")
