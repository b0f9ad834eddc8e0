"""Copies of turns whose tools have acted, for every branch that leaves out the turns themselves.

The effects are real on that branch, too. A turn that did not complete is copied as a settled turn: its input,
the calls that may have acted, their results, and a note.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.attempt import unfinished_output
from turnledger.engine.conversations.list_entry import preview_at
from turnledger.engine.history import line
from turnledger.engine.limits import store_turn
from turnledger.engine.ports import Tables
from turnledger.model import event_log
from turnledger.model.conversation import Branch
from turnledger.model.event_log import WholeLog
from turnledger.model.flags import Flags, FlagsByTurn
from turnledger.model.ids import BranchId, TurnId, mark_uuid7
from turnledger.model.item import Item, adapt_input, raws
from turnledger.model.transfer import one_line
from turnledger.model.turn import AttemptState, Turn, TurnKind


class Copy(Struct, frozen=True):
    """A turn as copied to another branch, with its flags there."""

    turn: Turn
    original: Turn
    flags: Mapping[int, Flags]


async def make_copies(
    tables: Tables, end: Branch, originals: Sequence[Turn], unstored: FlagsByTurn | None = None
) -> tuple[Copy, ...]:
    """Return copies of these turns to follow the end of a branch. Deterministic, except for the flags, which
    are read, except those of turns that are not stored yet.

    The first copy closes the calls that are open there. No copy answers the calls that were open at its
    original place, and none carries instructions.
    """
    hidden = unstored or (await tables.flags(tuple(turn.id for turn in originals)) if originals else {})
    made: list[Copy] = []
    for number, turn in enumerate(originals, end.length + 1):
        input = adapt_input(() if made else end.pending, turn.input)
        output = unfinished_output.carried_output(turn)
        copy = Turn.of(
            id=derive_copy_id(turn.id, end.id),
            branch=end.id,
            number=number,
            parent=made[-1].turn.id if made else end.head,
            kind=TurnKind.SETTLED,
            created_at=turn.created_at,
            committed_at=turn.committed_at,
            input=input,
            output=output,
            instructed=end.instructed,
            details=turn.raw_details,
        )
        flags = move_flags(hidden.get(turn.id, {}), turn.items, (*input, *output))
        made.append(Copy(copy, turn, flags))
    return tuple(made)


async def add_copies(tables: Tables, branch: Branch, copies: Sequence[Copy]) -> Branch:
    """Append copies to a branch; return the changed branch, which the caller saves."""
    for copy in copies:
        turn = copy.turn
        stored = await store_turn(tables, branch, turn, await _log(tables, copy.original))
        if copy.flags:
            await tables.save_flags(turn.id, copy.flags)
        preview = await preview_at(tables, turn) or branch.preview
        branch = replace(
            branch,
            head=turn.id,
            length=turn.number,
            settled=turn.number,
            pending=(),
            bytes=stored,
            preview=preview,
        )
    return branch


async def carry_effects(tables: Tables, branch: Branch, originals: Sequence[Turn]) -> Branch:
    """Add copies of these turns behind the head of a branch, and save it."""
    copies = await make_copies(tables, branch, originals)
    branch = await add_copies(tables, branch, copies)
    await tables.save_branch(branch)
    return branch


async def _log(tables: Tables, original: Turn) -> bytes:
    """Return the whole event log of the original. An interrupted turn stores its log as references to its
    output, of which the copy has only a part."""
    kept = await tables.turn_log(original.id)
    if original.kind is TurnKind.SETTLED:
        return kept
    log = event_log.decode_log(kept, original.output)
    whole = WholeLog(
        log=log,
        text="",
        items=raws(original.output),
        state=AttemptState.KEPT,
        failure=event_log.failure_of(log),
    )
    return event_log.encode_whole(whole)


async def missing_effects(tables: Tables, source: Branch, target: Branch) -> list[Turn]:
    """Return the turns of a line whose effects another line of the conversation does not show. Effects that
    an undo was asked to forget are excluded: the user wants lines without them."""
    if not source.settled:
        return []
    shared = await line.last_shared(tables, source, target)
    effects = await line.effects_of(tables, source, shared)
    in_target = Counter(map(_identity, await line.effects_of(tables, target, shared) if effects else ()))
    missing: list[Turn] = []
    for turn in effects:
        name = _identity(turn)
        if in_target[name]:
            in_target[name] -= 1
        else:
            missing.append(turn)
    forgotten = await tables.forgotten(source.conversation) if missing else ()
    return [turn for turn in missing if _effect_id(turn) not in forgotten] if forgotten else missing


async def effects_behind(tables: Tables, branch: Branch, after: int) -> list[Turn]:
    """Return the turns of a line after this number whose effects a branch from there carries."""
    effects = await line.effects_of(tables, branch, after)
    forgotten = await tables.forgotten(branch.conversation) if effects else ()
    return [turn for turn in effects if _effect_id(turn) not in forgotten]


async def forget_effects(tables: Tables, branch: Branch, after: int) -> None:
    """Record that the effects of this line after this number are forgotten in the whole conversation."""
    effects = [_effect_id(turn) for turn in await line.effects_of(tables, branch, after)]
    if effects:
        forgotten = await tables.forgotten(branch.conversation)
        await tables.save_forgotten(branch.conversation, tuple(dict.fromkeys((*forgotten, *effects))))


_Identity: TypeAlias = tuple[int, int, tuple[bytes, ...]]


def _identity(turn: Turn) -> _Identity:
    """Return what a turn shares with all its copies, and with no other turn of the conversation."""
    return (
        turn.created_at,
        turn.committed_at,
        tuple(item.raw for item in unfinished_output.carried_output(turn)),
    )


def _effect_id(turn: Turn) -> bytes:
    """Return the identity of a turn and its copies as 16 bytes, stable across export and import."""
    created_at, committed_at, items = _identity(turn)
    hashed = hashlib.sha256(f"{created_at} {committed_at}".encode())
    for item in items:
        hashed.update(hashlib.sha256(one_line(item)).digest())
    return hashed.digest()[:16]


def move_flags(flags: Mapping[int, Flags], items: Sequence[Item], copied: Sequence[Item]) -> dict[int, Flags]:
    """Return the flags of a turn's items, at the places of the same items in a copy."""
    places = {id(item): place for place, item in enumerate(copied)} if flags else {}
    return {
        places[id(item)]: flags[at] for at, item in enumerate(items) if at in flags and id(item) in places
    }


def derive_copy_id(id: TurnId, branch: BranchId) -> TurnId:
    """Derive an id from turn and branch, so that repeating makes the same copy. Keeps the turn's time."""
    random = hashlib.sha256(id.raw + branch.raw).digest()
    return TurnId.trusted(mark_uuid7(id.raw[:6] + random[:10]))
