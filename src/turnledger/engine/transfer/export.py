"""Export: a chat as lines, self-contained, whatever it shares with other chats.

The first read finds the branches and their ends. Turns up to there never change, so they are read page by
page, and a chat of any length is exported without holding it in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from turnledger.engine.attempt.end import failure_of
from turnledger.engine.attempt.settle import settled_turn
from turnledger.engine.conversations.resolve import branch_shown, live_conversation
from turnledger.engine.history import line
from turnledger.engine.ports import Tables
from turnledger.errors import BranchNotFound
from turnledger.model.catalogue import ListPosition
from turnledger.model.conversation import EVERYWHERE, Branch, Conversation, Stretch, Within
from turnledger.model.flags import Flags, HiddenPlaces, hidden_from_user
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.transfer import BranchLine, chat_line, encode_line, turn_line
from turnledger.model.turn import Failure, Turn

PAGE = 50
"""Turns read at once."""
BRANCHES = 500
"""Branches read at once."""


class UnsettledTurn(Struct, frozen=True):
    """A turn that shows effects that wait to be settled, with its flags and failure."""

    turn: Turn
    flags: Mapping[int, Flags]
    failure: Failure | None


class Outline(Struct, frozen=True, kw_only=True):
    """The parts of a chat: its header line, and where its turns are."""

    conversation: Conversation
    header: bytes
    stretches: tuple[Stretch, ...]
    """Its turns, parents before children, each once."""
    branches: tuple[BranchId, ...] = ()
    """In order of creation."""
    unsettled: tuple[UnsettledTurn, ...] = ()
    """The turns that would be settled if it continued now."""


@dataclass(frozen=True)
class ExportRequest:
    conversation: ConversationId
    now: int
    within: Within = EVERYWHERE


async def read_outline(tables: Tables, request: ExportRequest) -> Outline:
    """Return the outline of a live conversation. Raises ConversationNotFound, also for other owners,
    ConversationDeleted and ConversationExpired."""
    found = await live_conversation(tables, request.conversation, request.now, request.within)
    return await outline(tables, found)


async def outline(tables: Tables, conversation: Conversation) -> Outline:
    stretches: list[Stretch] = []
    waiting: list[UnsettledTurn] = []
    heads: list[BranchLine] = []
    covered: dict[BranchId, int] = {}
    branches = await branches_of(tables, conversation.id)
    for branch in branches:
        own = await _not_covered(tables, branch, covered)
        covered.update({each.branch: each.through for each in own})
        stretches += own
        settled = await _to_settle(tables, branch)
        if settled is not None:
            waiting.append(settled)
            # Its place among the stretches, after the turn it follows.
            stretches.append(Stretch(branch.id, branch.length, branch.length + 1))
        head = settled.turn.id if settled is not None else branch.head
        heads.append(BranchLine(id=str(branch.id), head=None if head is None else str(head)))
    turns = sum(each.through - each.after for each in stretches)
    return Outline(
        conversation=conversation,
        header=encode_line(chat_line(conversation, heads, turns, await tables.forgotten(conversation.id))),
        stretches=tuple(stretches),
        branches=tuple(branch.id for branch in branches),
        unsettled=tuple(waiting),
    )


async def branches_of(tables: Tables, conversation: ConversationId) -> list[Branch]:
    """Return the branches of a conversation, oldest first."""
    found: list[Branch] = []
    while True:
        before = found[-1].id if found else None
        page = await tables.branches(conversation, before, BRANCHES)
        found += page
        if len(page) < BRANCHES:
            break
    if not found:
        raise BranchNotFound
    return found[::-1]


async def _not_covered(tables: Tables, branch: Branch, covered: dict[BranchId, int]) -> list[Stretch]:
    """Return the stretches of a branch's line that earlier branches do not cover. A branch that is covered up
    to some turn is covered from its beginning."""
    found: list[Stretch] = []
    parts: tuple[Stretch, ...] = (Stretch(branch.id, branch.start, branch.length),)
    while parts:
        for part in parts:
            known = covered.get(part.branch, part.after)
            if known < part.through:
                found.append(Stretch(part.branch, max(known, part.after), part.through))
            if part.branch in covered:
                return found[::-1]
        parts = await line.earlier_stretches(tables, parts[-1].branch) if parts[-1].after else ()
    return found[::-1]


async def _to_settle(tables: Tables, branch: Branch) -> UnsettledTurn | None:
    """Return what waits to be settled after the head of a branch, as it would be settled."""
    attempt = await tables.attempt(branch.unsettled) if branch.unsettled else None
    if attempt is None:
        return None
    turn, flags = await settled_turn(tables, branch, attempt, attempt.ended_at or attempt.created_at)
    return UnsettledTurn(turn, flags, attempt.failure)


@dataclass(frozen=True)
class ExportPageRequest:
    outline: Outline
    first: int
    """How many turns were exported before."""
    limit: int = PAGE


async def read_page(tables: Tables, request: ExportPageRequest) -> list[bytes]:
    """Return the next lines of turns. Raises ConversationDeleted, and StoreCorrupt if one is missing."""
    outline, chat = request.outline, str(request.outline.conversation.id)
    turns: list[Turn] = []
    to_settle = {each.turn.branch: each for each in outline.unsettled}
    late: dict[TurnId, UnsettledTurn] = {}
    for part in _window(outline.stretches, request.first, request.limit):
        waiting = to_settle.get(part.branch)
        if waiting is not None and waiting.turn.number == part.through:
            turns.append(waiting.turn)
            late[waiting.turn.id] = waiting
            continue
        found = await tables.turns(part.branch, part.after, part.through, part.through - part.after)
        if len(found) != part.through - part.after:
            raise await line.missing_reason(tables, outline.conversation.id)
        turns += found
    flags = await tables.flags(tuple(turn.id for turn in turns))
    lines = []
    for turn in turns:
        waits = late.get(turn.id) or UnsettledTurn(
            turn, flags.get(turn.id, {}), await failure_of(tables, turn)
        )
        lines.append(encode_line(turn_line(chat, turn, waits.flags, waits.failure)))
    return lines


def _window(stretches: tuple[Stretch, ...], first: int, limit: int) -> list[Stretch]:
    """Return the parts of the stretches that hold the next `limit` turns."""
    found: list[Stretch] = []
    for part in stretches:
        size = part.through - part.after
        if first < size and limit:
            taken = min(size - first, limit)
            found.append(Stretch(part.branch, part.after + first, part.after + first + taken))
            limit -= taken
            first = 0
        elif limit:
            first -= size
        else:
            break
    return found


async def begin_export(tables: Tables, request: ExportRequest) -> tuple[Outline, list[bytes]]:
    """Return the outline of a conversation, and its first lines: for most, all of them."""
    found = await read_outline(tables, request)
    return found, await read_page(tables, ExportPageRequest(found, 0))


@dataclass(frozen=True)
class ShownRequest(ExportRequest):
    branch: Branch | None = None
    """The branch as first read."""
    after: int = 0


class ShownPart(Struct, frozen=True):
    """Turns of the current branch, from the first on."""

    conversation: Conversation
    branch: Branch
    turns: list[Turn]
    hidden: HiddenPlaces
    """The places of items hidden from users."""


async def shown_part(tables: Tables, request: ShownRequest) -> ShownPart:
    """Return the next turns of the branch that was current at first. Raises as `read_outline`."""
    found = await live_conversation(tables, request.conversation, request.now, request.within)
    branch = request.branch or await branch_shown(tables, found)
    turns = await line.turns_of(tables, branch, request.after, request.after + PAGE, PAGE)
    flags = await tables.flags(tuple(turn.id for turn in turns))
    return ShownPart(found, branch, turns, hidden_from_user(flags))


@dataclass(frozen=True)
class OwnedPageRequest:
    scope: str | None
    after: ListPosition | None
    limit: int


async def owned_page(tables: Tables, request: OwnedPageRequest) -> list[Conversation]:
    """Return a page of the conversations of an owner, longest untouched first: one that is used meanwhile
    moves to the end, and is still read."""
    return await tables.least_recent_conversations(request.scope, request.after, request.limit)
