"""The tail of a history: as many of its last turns as a context can show, without loading the rest."""

from __future__ import annotations

from collections.abc import Sequence

from turnledger.engine.context import Around, Context, first_shown
from turnledger.engine.flagging import FlagsRequest, read_flags
from turnledger.engine.history import History, TurnsRequest, read_turns
from turnledger.engine.process import Process
from turnledger.errors import ConversationDeleted
from turnledger.model.conversation import Branch
from turnledger.model.flags import FlagsOf, hidden_from_model
from turnledger.model.turn import Turn

FIRST_PAGE = 16
"""Turns read at first to fill a budget; each further page is twice the one before."""

NO_FLAGS: FlagsOf = {}


async def tail(
    process: Process, branch: Branch, context: Context, around: Around, owner: str, flagged: int
) -> tuple[History, FlagsOf]:
    """The last turns up to this head that the context can show, numbered as ever, and their flags.

    They come from the cache where it holds the whole history, and never go into it: it holds beginnings of
    histories, and this is an end.
    """
    cached = process.cache.prefix(branch.id, branch.head, branch.length)
    if len(cached) == branch.length:
        return cached, await flags_of(process, branch, cached, owner, flagged)
    if context.turns is not None:
        # One more, in case the first of them answers its calls.
        turns = await _read(process, branch, branch.length, context.turns + 1)
        return History(turns), await flags_of(process, branch, turns, owner, flagged)
    return await _within_budget(process, branch, context, around, owner, flagged)


async def _within_budget(
    process: Process, branch: Branch, context: Context, around: Around, owner: str, flagged: int
) -> tuple[History, FlagsOf]:
    """Read backwards until the budget is full. Hidden items take nothing of it."""
    turns: list[Turn] = []
    flags: FlagsOf = NO_FLAGS
    size, first = FIRST_PAGE, 0
    # What is hidden of the first turn that was read is not known before the turn before it is there too.
    while len(turns) < branch.length and first < 2:
        page = await _read(process, branch, branch.length - len(turns), size)
        flags = {**flags, **await _flags(process, page, owner, flagged)}
        turns[:0] = page
        first = first_shown(turns, around, context, hidden_from_model(flags))
        size *= 2
    return History(turns), flags


async def _read(process: Process, branch: Branch, through: int, limit: int) -> list[Turn]:
    """So many turns that end with this number; raises ConversationDeleted if they are gone."""
    if not through:
        return []
    limit = min(limit, through)
    request = TurnsRequest(branch.id, through - limit, through, limit)
    turns = await process.store.read(read_turns, request)
    is_head = through < branch.length or (bool(turns) and turns[-1].id == branch.head)
    if len(turns) != limit or not is_head:
        raise ConversationDeleted
    return turns


async def flags_of(
    process: Process, branch: Branch, turns: Sequence[Turn], owner: str, flagged: int
) -> FlagsOf:
    """The flags of these turns of a branch, whose begin saw this number of its owner."""
    if not flagged or not turns:
        return NO_FLAGS
    known = process.flags.find(branch.id, flagged, turns)
    if known is None:
        known = await _flags(process, turns, owner, flagged)
        process.flags.keep(branch.id, flagged, turns, known)
    return known


async def _flags(process: Process, turns: Sequence[Turn], owner: str, flagged: int) -> FlagsOf:
    if not flagged or not turns:
        return NO_FLAGS
    return await process.store.read(read_flags, FlagsRequest(owner, tuple(turn.id for turn in turns)))
