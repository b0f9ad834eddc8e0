"""The line of a branch: its own turns, and before them those of the branches it was made from.

A branch made from another stores the last stretches of its line. Each covers at least one turn, so one lookup
finds a page of turns, however often the conversation was edited.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnledger.engine.ports import Tables
from turnledger.errors import ConversationDeleted, StoreCorrupt, TurnNotFound
from turnledger.model.conversation import Branch, ConversationState, Stretch
from turnledger.model.flags import FlagsByTurn
from turnledger.model.ids import BranchId, ConversationId
from turnledger.model.turn import Turn

STRETCHES_KEPT = 64
"""Stretches stored per origin: more than the turns of a usual page."""
MISSING = "Turns of a conversation are missing. The store is damaged: restore it from a backup."


async def turns_of(tables: Tables, branch: Branch, after: int, through: int, limit: int) -> list[Turn]:
    """Return the last `limit` turns of the line numbered after < number <= through, in order. Raises
    StoreCorrupt if any are missing."""
    through = min(through, branch.length)
    after = max(after, through - limit, 0)
    if after >= branch.start:
        found = await tables.turns(branch.id, after, through, limit)
    else:
        found = await tables.turns_in(await _stretches(tables, branch, after, through))
    last = found[-1].id if found else None
    is_end = through == branch.length and (through > after or not through)
    if len(found) < through - after or (is_end and last != branch.head):
        raise StoreCorrupt(MISSING)
    return found


async def missing_reason(tables: Tables, conversation: ConversationId) -> ConversationDeleted | StoreCorrupt:
    """Return why turns are missing: the conversation was removed since, or the store is damaged."""
    found = await tables.conversation(conversation)
    is_there = found is not None and found.state is ConversationState.LIVE
    return StoreCorrupt(MISSING) if is_there else ConversationDeleted()


async def turn_at(tables: Tables, branch: Branch, number: int) -> Turn | None:
    """Return the turn with this number, or None beyond the end of the line."""
    found = await turns_of(tables, branch, number - 1, number, 1)
    return found[0] if found else None


async def effects_of(tables: Tables, branch: Branch, after: int) -> list[Turn]:
    """Return the turns of the line after this number that are carried to other branches, in order."""
    if branch.settled <= after:
        return []
    return await tables.effects_in(await _stretches(tables, branch, after, branch.settled))


async def last_shared(tables: Tables, one: Branch, other: Branch) -> int:
    """Return the number of the last turn that two lines share; 0 if there is none."""
    lines = [[_own(one)], [_own(other)]]
    while True:
        first, second = lines[0][0], lines[1][0]
        if first.branch == second.branch:
            return min(first.through, second.through)
        # Turns after the later start are on one of the lines only.
        line = lines[0] if first.after >= second.after else lines[1]
        left = line.pop(0)
        if not line and left.after:
            line += await earlier_stretches(tables, left.branch)
        if not line:
            return 0


async def flags_of(tables: Tables, branch: Branch, after: int, through: int) -> FlagsByTurn:
    """Return the flags of the turns of the line numbered after < number <= through, where there are any."""
    return await tables.flags_in(await _stretches(tables, branch, after, min(through, branch.length)))


async def _stretches(tables: Tables, branch: Branch, after: int, through: int) -> list[Stretch]:
    """Return the stretches that cover after < number <= through, newest first."""
    found: list[Stretch] = []
    line: Sequence[Stretch] = (_own(branch),)
    while line:
        for stretch in line:
            if stretch.through <= after:
                break
            if after <= stretch.after and stretch.through <= through:
                found.append(stretch)
            elif stretch.after < through:
                first, last = max(after, stretch.after), min(through, stretch.through)
                found.append(Stretch(stretch.branch, first, last))
        line = await earlier_stretches(tables, line[-1].branch) if line[-1].after > after else ()
    return found


async def line_through(tables: Tables, branch: Branch, turn: Turn) -> tuple[Stretch, ...]:
    """Return the line of a branch to be made from this turn, newest stretch first. Raises TurnNotFound if the
    turn is not on the line."""
    line: tuple[Stretch, ...] = (_own(branch),)
    while line:
        earlier = await earlier_stretches(tables, line[-1].branch) if line[-1].after else ()
        for place, stretch in enumerate(line):
            if stretch.branch == turn.branch and stretch.after < turn.number <= stretch.through:
                shared = Stretch(turn.branch, stretch.after, turn.number)
                return (shared, *line[place + 1 :], *earlier)[:STRETCHES_KEPT]
        line = earlier
    raise TurnNotFound


def _own(branch: Branch) -> Stretch:
    return Stretch(branch.id, branch.start, branch.length)


async def earlier_stretches(tables: Tables, branch: BranchId) -> tuple[Stretch, ...]:
    """Return the stretches before a branch's own turns, newest first; see Origin.line."""
    origin = await tables.origin(branch)
    return origin.line if origin is not None else ()
