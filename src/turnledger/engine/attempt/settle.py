"""Settle: commit the truth about a failed turn whose tools have acted, when the conversation moves on."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from turnledger.engine.attempt import unfinished_output
from turnledger.engine.attempt.effect_copies import move_flags
from turnledger.engine.attempt.end import add_turn, record_turn
from turnledger.engine.attempt.fork import place_of
from turnledger.engine.attempt.sent_log import load_attempt_log
from turnledger.engine.limits import count_set_aside
from turnledger.engine.ports import Tables
from turnledger.model import event_log
from turnledger.model.conversation import Branch, turn_behind
from turnledger.model.flags import Flags
from turnledger.model.item import Item, adapt_input
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState, Turn, TurnKind


async def settle(tables: Tables, branch: Branch, attempt: Attempt, now: int) -> Branch:
    """Commit the effects of an attempt whose tools have acted; return the branch behind that turn. The turn
    keeps the events that readers of the attempt received."""
    turn, flags = await settled_turn(tables, branch, attempt, now)
    log = event_log.encode_whole(await load_attempt_log(tables, attempt))
    branch = await add_turn(tables, branch, turn, log)
    if flags:
        await tables.save_flags(turn.id, flags)
    branch = await record_turn(tables, branch, attempt, turn, has_moved=False)
    await tables.drop_log(attempt.id)
    await tables.drop_journal(attempt.id)
    settled = replace(attempt.with_state(AttemptState.SETTLED), journaled=0)
    await tables.save_attempt(await count_set_aside(tables, settled))
    return replace(branch, unsettled=None, settled=branch.length)


async def settled_turn(
    tables: Tables, branch: Branch, attempt: Attempt, now: int
) -> tuple[Turn, Mapping[int, Flags]]:
    """Return the turn that settling an attempt adds, and its flags. Changes nothing."""
    output = unfinished_output.settled_output(Journal.of(await tables.journal(attempt.id)), attempt.failure)
    moved = replace(attempt, input=settled_input(branch, attempt))
    turn = turn_behind(branch, moved, TurnKind.SETTLED, output, now)
    place = await place_of(tables, branch, attempt.fork) if attempt.fork else None
    asked = place.input_flags if place is not None else {}
    return turn, move_flags(asked, attempt.input, moved.input) if asked else asked


def settled_input(branch: Branch, attempt: Attempt) -> tuple[Item, ...]:
    """Return the input of an attempt as it is shown behind the head of its lane. An edit's input was meant
    for another place, with other open calls."""
    return attempt.input if attempt.fork is None else adapt_input(branch.pending, attempt.input)
