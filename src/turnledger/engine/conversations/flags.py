"""Flags: show or hide items of a turn.

Flags are stored in rows of their own, so no commit overwrites them and no running turn is disturbed. They
belong to the turn, on every branch that shows it; a copy of a settled turn starts with those of the original.
Every change raises the owner's flag version, which each begin reads along. At 0, nothing of this owner was
ever hidden; while it is unchanged, cached flags are valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.engine.conversations.list_entry import update_previews
from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.conversations.title import rename_by_words
from turnledger.engine.feed import record_change
from turnledger.engine.history import line
from turnledger.engine.ports import Tables
from turnledger.errors import InvalidInput, TurnNotFound
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.flags import SHOWN, WHOLE, Flags, FlagsByTurn, HiddenItems, hidden_items
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Turn


@dataclass(frozen=True)
class FlagRequest:
    """Set flags of these items of a turn, or of all; None leaves a flag unchanged."""

    conversation: ConversationId
    turn: TurnId
    places: tuple[int, ...] | None
    to_model: bool | None
    to_user: bool | None
    limit: int
    now: int
    due: int


async def flag(tables: Tables, request: FlagRequest) -> HiddenItems:
    """Show or hide items, and return those that are hidden. Repeating it changes nothing. Raises
    TurnNotFound, or InvalidInput for a place that the turn does not have or for too many flags on one turn;
    then nothing has changed."""
    conversation = await live_conversation(tables, request.conversation, request.due)
    turn = await _turn_of(tables, conversation, request.turn)
    places = range(len(turn.items)) if request.places is None else request.places
    astray = next((place for place in places if not 0 <= place < len(turn.items)), None)
    if astray is not None:
        raise InvalidInput(f"{turn.id} has no item {astray}. Its {len(turn.items)} items are counted from 0.")
    before = (await tables.flags((turn.id,))).get(turn.id, {})
    after = {**before, **{place: _change(before.get(place, SHOWN), request) for place in places}}
    after = {place: flags for place, flags in after.items() if flags != SHOWN or place == WHOLE}
    if after == before:
        return hidden_items(turn.items, after)
    if len(after) > request.limit:
        raise InvalidInput(f"At most {request.limit} items of one turn can be flagged.")
    await tables.save_flags(turn.id, after)
    if request.to_user is not None:
        await update_previews(tables, conversation, turn)
        hidden = [place for place, flags in before.items() if not flags.to_user]
        await rename_by_words(tables, conversation, turn, hidden, request.now)
    await record_change(tables, ChangeKind.TURN_FLAGGED, conversation, request.now, turn=turn.id)
    return hidden_items(turn.items, after)


def _change(flags: Flags, request: FlagRequest) -> Flags:
    return Flags(
        flags.to_model if request.to_model is None else request.to_model,
        flags.to_user if request.to_user is None else request.to_user,
    )


async def _turn_of(tables: Tables, conversation: Conversation, id: TurnId) -> Turn:
    """Return the turn if it is on a branch of this conversation, own or shared. Raises TurnNotFound."""
    turn = await tables.turn(id)
    if turn is None:
        raise TurnNotFound
    home = await tables.branch(turn.branch)
    if home is not None and home.conversation == conversation.id:
        return turn
    current = await tables.branch(conversation.branch)
    if current is None:
        raise TurnNotFound
    await line.line_through(tables, current, turn)
    return turn


@dataclass(frozen=True)
class FlagsRequest:
    branch: Branch
    after: int
    through: int


async def read_flags(tables: Tables, request: FlagsRequest) -> FlagsByTurn:
    return await line.flags_of(tables, request.branch, request.after, request.through)


@dataclass(frozen=True)
class FlagsOfRequest:
    conversation: ConversationId
    turns: tuple[TurnId, ...]
    now: int


async def flags_in(tables: Tables, request: FlagsOfRequest) -> FlagsByTurn:
    """Return the flags of these turns of a conversation, where there are any; raise TurnNotFound."""
    conversation = await live_conversation(tables, request.conversation, request.now)
    for id in request.turns:
        await _turn_of(tables, conversation, id)
    found = (await tables.flags(request.turns)).items()
    of_items = {turn: {at: flags[at] for at in flags if at != WHOLE} for turn, flags in found}
    return {turn: flags for turn, flags in of_items.items() if flags}


@dataclass(frozen=True)
class DeleteResponseRequest:
    conversation: ConversationId
    turn: TurnId
    due: int


async def delete_response(tables: Tables, request: DeleteResponseRequest) -> None:
    """Mark a committed turn as deleted as a response; it stays in the history. Raises TurnNotFound."""
    conversation = await live_conversation(tables, request.conversation, request.due)
    turn = await _turn_of(tables, conversation, request.turn)
    flags = (await tables.flags((turn.id,))).get(turn.id, {})
    if WHOLE not in flags:
        await tables.save_flags(turn.id, {**flags, WHOLE: SHOWN})


async def is_deleted_response(tables: Tables, turn: TurnId) -> bool:
    return bool(await tables.flag_version()) and WHOLE in (await tables.flags((turn,))).get(turn, {})
