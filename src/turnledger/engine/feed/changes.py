"""Changes: told in the transaction that makes them, and read by position.

What is stored of a change are ids and a word: nothing that anybody wrote. How a chat is by now is looked up
when the change is read, so a late reader is not told of a title that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.ports import Tables
from turnledger.model.change import ABOUT_CHATS, ChangeKind, LiveChange, Position
from turnledger.model.conversation import Conversation
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Turn

PURGED_AT_ONCE = 20_000
"""Changes removed in one step: they lie side by side, and each turn brings several."""


async def tell(
    tables: Tables,
    kind: ChangeKind,
    conversation: Conversation,
    at: int,
    *,
    turn: TurnId | None = None,
    branch: BranchId | None = None,
    detail: str | None = None,
) -> None:
    """Tell the owner of a conversation, if he sees it at all, with the transaction that this is part of."""
    if conversation.internal:
        return
    await tables.add_change(
        LiveChange(
            kind=kind,
            owner=conversation.owner,
            conversation=conversation.id,
            scope=conversation.scope,
            turn=turn,
            branch=branch,
            detail=detail,
            at=at,
        )
    )


async def tell_committed(
    tables: Tables, conversation: Conversation | None, turn: Turn, *, has_moved: bool
) -> None:
    """Tell of a turn that became history. The first one makes a chat that a turn began; that of an edit moves
    it to another branch. The conversation is given as it was before."""
    if conversation is None:
        return
    at = turn.committed_at
    if not conversation.is_listed:
        await tell(tables, ChangeKind.CHAT_CREATED, conversation, at)
    if has_moved:
        await tell(tables, ChangeKind.CHAT_SWITCHED, conversation, at, branch=turn.branch)
    await tell(
        tables,
        ChangeKind.TURN_COMMITTED,
        conversation,
        at,
        turn=turn.id,
        branch=turn.branch,
        detail=turn.kind.value,
    )


async def tell_withdrawn(tables: Tables, owner: str, id: ConversationId, turn: TurnId, at: int) -> None:
    """Tell of a turn that waited and will not run."""
    found = await tables.conversation(owner, id)
    if found is not None:
        await tell(tables, ChangeKind.TURN_WITHDRAWN, found, at, turn=turn)


# Reading.


@dataclass(frozen=True)
class ResumeRequest:
    """Ask for what an owner was told of behind a position; from now on, if there is none."""

    owner: str
    after: Position | None
    limit: int


@dataclass(frozen=True)
class ChangePage:
    """Changes in order, and up to where that is all of them."""

    changes: list[LiveChange]
    through: Position
    is_whole: bool
    """Whether nothing is missing before them: else the position is not known any more, and the page begins
    now."""
    has_more: bool = False


async def resume(tables: Tables, request: ResumeRequest) -> ChangePage:
    """The next changes of an owner."""
    newest = await newest_position(tables)
    after = request.after
    if after is None:
        return ChangePage([], newest, is_whole=True)
    if not await _is_kept(tables, after):
        return ChangePage([], newest, is_whole=False)
    found = await tables.changes_of(request.owner, after.number, request.limit)
    has_more = len(found) == request.limit
    through = found[-1].position if has_more else newest
    return ChangePage(await _with_chats(tables, found), through, is_whole=True, has_more=has_more)


@dataclass(frozen=True)
class TailRequest:
    """Ask for what all of these owners were told of behind a position."""

    after: Position
    owners: frozenset[str]
    limit: int


async def read_tail(tables: Tables, request: TailRequest) -> ChangePage:
    """The next changes, of whichever of the owners: one look for all who follow in a process."""
    after = request.after
    if not await _is_kept(tables, after):
        return ChangePage([], await newest_position(tables), is_whole=False)
    found, through = await tables.changes(after.number, request.owners, request.limit)
    if through is None:
        return ChangePage([], after, is_whole=True)
    has_more = through.number - after.number >= request.limit
    return ChangePage(await _with_chats(tables, found), through, is_whole=True, has_more=has_more)


async def newest_position(tables: Tables, _: object = None) -> Position:
    """Where who asks now stands: everything that is told later comes behind it."""
    return await tables.change_position(None) or Position()


async def _is_kept(tables: Tables, position: Position) -> bool:
    """Whether everything behind the position is there. A number alone does not tell: after a loss of power it
    may stand for another change than the one that was read."""
    return await tables.change_position(position.number) == position


async def _with_chats(tables: Tables, changes: list[LiveChange]) -> list[LiveChange]:
    chats: dict[ConversationId, Conversation | None] = {}
    told: list[LiveChange] = []
    for change in changes:
        id = change.conversation
        if change.kind in ABOUT_CHATS and id is not None:
            if id not in chats:
                chats[id] = await tables.conversation(change.owner, id)
            change = replace(change, chat=chats[id])
        told.append(change)
    return told
