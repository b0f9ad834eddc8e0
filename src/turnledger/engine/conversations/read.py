"""Read a conversation: pages of its turns, attempts set aside, visible items, instructions in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.conversations.resolve import check_live, live_conversation
from turnledger.engine.history.line import MISSING, flags_of, turn_at, turns_of
from turnledger.engine.ports import Store, Tables
from turnledger.errors import BranchNotFound, StoreCorrupt, TurnNotFound
from turnledger.model.catalogue import ChatEntry, entry_of
from turnledger.model.conversation import EVERYWHERE, Branch, Conversation, Within
from turnledger.model.flags import (
    NOTHING_HIDDEN,
    Flags,
    FlagsByTurn,
    HiddenItems,
    HiddenPlaces,
    hidden_from_model,
    hidden_from_user,
    hidden_in_parts,
    without_hidden,
)
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, Turn


@dataclass(frozen=True)
class TurnPageRequest:
    """The last `limit` turns numbered below `before`, or the last of all."""

    conversation: ConversationId
    before: int | None
    limit: int
    now: int
    most_bytes: int | None = None
    """The most bytes of bodies in a page; the last turn is always included."""
    branch: BranchId | None = None
    """A branch of the conversation; None for the current one."""


FEW = 4
"""Turns read first when it is unknown how many fit into a page."""


async def turns_page(tables: Tables, request: TurnPageRequest) -> list[Turn]:
    """Return a page of turns in order, at a cost independent of their total. Raises BranchNotFound."""
    conversation = await live_conversation(tables, request.conversation, request.now)
    return await _turns_on(tables, await _requested_branch(tables, conversation, request), request)


async def _requested_branch(tables: Tables, conversation: Conversation, request: TurnPageRequest) -> Branch:
    if request.branch is None:
        return await _shown_branch(tables, conversation)
    return await _branch_in(tables, conversation, request.branch)


async def _turns_on(tables: Tables, branch: Branch, request: TurnPageRequest) -> list[Turn]:
    through = branch.length if request.before is None else request.before - 1
    if request.most_bytes is None:
        return await turns_of(tables, branch, 0, through, request.limit)
    return await _page_within(tables, branch, through, request.limit, request.most_bytes)


async def _page_within(
    tables: Tables, branch: Branch, through: int, limit: int, most_bytes: int
) -> list[Turn]:
    """Return as many of the last turns as fit. Reads a few first, then twice as many each time, which bounds
    the bytes read in vain."""
    page: list[Turn] = []
    step, room = FEW, most_bytes
    while len(page) < limit:
        last = page[0].number - 1 if page else through
        found = await turns_of(tables, branch, 0, last, min(step, limit - len(page)))
        for turn in reversed(found):
            room -= len(turn.body)
            if room < 0 and page:
                return page
            page.insert(0, turn)
        if not found:
            break
        step *= 2
    return page


@dataclass(frozen=True)
class ListedBranch:
    """A branch of a chat, and where it began."""

    branch: Branch
    base: TurnId | None
    """The turn that it was made from; None for the beginning."""
    is_current: bool


@dataclass(frozen=True)
class BranchesRequest:
    conversation: ConversationId
    before: BranchId | None
    limit: int
    now: int


async def branches(tables: Tables, request: BranchesRequest) -> list[ListedBranch]:
    """Return a page of the branches of a conversation, newest first. Raises BranchNotFound."""
    conversation = await live_conversation(tables, request.conversation, request.now)
    before = await tables.branch(request.before) if request.before else None
    if request.before is not None and (before is None or before.conversation != conversation.id):
        raise BranchNotFound
    found = await tables.branches(conversation.id, request.before, request.limit)
    origins = [await tables.origin(each.id) for each in found]
    return [
        ListedBranch(branch, origin.base if origin else None, branch.id == conversation.branch)
        for branch, origin in zip(found, origins, strict=True)
    ]


@dataclass(frozen=True)
class SetAsideAttempt:
    """An attempt that is not in the history, and its journal."""

    attempt: Attempt
    journal: Journal


async def attempts_page(tables: Tables, request: TurnPageRequest) -> list[SetAsideAttempt]:
    """Return the attempts of a conversation that run or were set aside, newest first; with a branch, without
    those of other side branches. Raises BranchNotFound."""
    conversation = await live_conversation(tables, request.conversation, request.now)
    branch = None if request.branch is None else await _branch_in(tables, conversation, request.branch)
    return await _set_aside(tables, branch, request)


async def _set_aside(
    tables: Tables, branch: Branch | None, request: TurnPageRequest
) -> list[SetAsideAttempt]:
    page: list[SetAsideAttempt] = []
    room = request.most_bytes
    found = await tables.attempts(request.conversation, request.limit)
    if branch is not None:
        found = await _attempts_around(tables, branch, found)
    for attempt in found:
        records = await tables.journal(attempt.id)
        if room is not None:
            parts = (attempt.body, *records)
            room -= sum(map(len, parts))
            if room < 0 and page:
                break
        page.append(SetAsideAttempt(attempt, Journal.of(records)))
    return page


async def _attempts_around(tables: Tables, branch: Branch, found: list[Attempt]) -> list[Attempt]:
    """Return these attempts without those of other side branches, and in any case the running one."""
    homes = {id: await tables.branch(id) for id in {each.branch for each in found} - {branch.id}}
    around = [each for each in found if (home := homes.get(each.branch)) is None or not home.is_side]
    running = await tables.attempt(branch.running) if branch.running else None
    if running is not None and running.id not in {each.id for each in around}:
        around.append(running)  # older than all of them
    return around


async def _branch_in(tables: Tables, conversation: Conversation, id: BranchId) -> Branch:
    found = await tables.branch(id)
    if found is None or found.conversation != conversation.id:
        raise BranchNotFound
    return found


@dataclass(frozen=True)
class InfoRequest:
    conversation: ConversationId
    now: int


async def read_conversation(tables: Tables, request: InfoRequest) -> Conversation:
    """Return the conversation, if it is live."""
    found = await live_conversation(tables, request.conversation, request.now)
    return replace(found, metadata=dict(found.metadata))


async def read_entry(tables: Tables, request: InfoRequest) -> ChatEntry:
    """Return the conversation as listed, if it is live."""
    found = await read_conversation(tables, request)
    return entry_of(found, await _shown_branch(tables, found))


class ChatPage(Struct, frozen=True):
    """A chat at one moment: each of its turns is either committed or an attempt."""

    chat: ChatEntry
    turns: list[Turn]
    """A page of its committed turns, in order."""
    hidden: list[HiddenItems]
    """For each of these turns, the places of its hidden items; see Chat.hidden."""
    attempts: list[SetAsideAttempt]
    """Those outside the history, newest first; see Chat.attempts."""

    @property
    def before(self) -> int | None:
        """The number that reads the page before this one; None if this one is the first."""
        return self.turns[0].number if self.turns and self.turns[0].number > 1 else None


async def read_chat(tables: Tables, request: TurnPageRequest) -> ChatPage:
    """Return the conversation as listed, a page of its turns, and its attempts around that branch. Raises
    BranchNotFound."""
    chat = await read_entry(tables, InfoRequest(request.conversation, request.now))
    branch = await _requested_branch(tables, chat.conversation, request)
    turns = await _turns_on(tables, branch, request)
    flags = await flags_of_read(tables, tuple(turn.id for turn in turns))
    return ChatPage(chat, turns, hidden_places(turns, flags), await _set_aside(tables, branch, request))


@dataclass(frozen=True)
class TurnConversationRequest:
    turn: TurnId
    now: int
    within: Within = EVERYWHERE


async def conversation_of_turn(tables: Tables, request: TurnConversationRequest) -> Conversation:
    """Return the live conversation of a turn: committed, running, queued or set aside. Raises TurnNotFound,
    also for other owners and for callers that may not see it."""
    found = await _conversation_of(tables, request.turn)
    if found is None or not request.within.sees(found):
        raise TurnNotFound(f"There is no turn {request.turn}. Check its id.")
    return await check_live(tables, found, request.now)


async def _conversation_of(tables: Tables, id: TurnId) -> Conversation | None:
    turn = await tables.turn(id)
    if turn is not None:
        branch = await tables.branch(turn.branch)
        return await tables.conversation(branch.conversation) if branch else None
    waiting = await tables.attempt(id) or await tables.ticket(id)
    return await tables.conversation(waiting.conversation) if waiting else None


async def _shown_branch(tables: Tables, conversation: Conversation) -> Branch:
    branch = await tables.branch(conversation.branch)
    if branch is None or branch.conversation != conversation.id:
        raise StoreCorrupt(MISSING)
    return branch


class LinePageRequest(Struct, frozen=True):
    """Asks for turns of the branch that was current at the first page, even if it no longer is."""

    page: TurnPageRequest
    branch: Branch | None = None


class FlaggedPage(Struct, frozen=True):
    """Turns in order with the flags of their items, read at one moment, and their branch."""

    turns: list[Turn]
    flags: FlagsByTurn
    branch: Branch


async def flagged_page(tables: Tables, request: LinePageRequest) -> FlaggedPage:
    page = request.page
    conversation = await read_conversation(tables, InfoRequest(page.conversation, page.now))
    branch = request.branch or await _shown_branch(tables, conversation)
    turns = await _turns_on(tables, branch, page)
    if not turns or not await tables.flag_version():
        return FlaggedPage(turns, {}, branch)
    flags = await flags_of(tables, branch, turns[0].number - 1, turns[-1].number)
    return FlaggedPage(turns, flags, branch)


def visible_to_user(turns: Sequence[Turn], flags: FlagsByTurn) -> list[Item]:
    """Return the items of these turns that the user sees. A hidden call hides its result, and vice versa."""
    parts = [turn.items for turn in turns]
    hidden = hidden_from_user(flags)
    if hidden:
        parts = without_hidden(parts, [hidden.get(turn.id, ()) for turn in turns])
    return [item for part in parts for item in part]


async def flags_of_read(tables: Tables, turns: tuple[TurnId, ...]) -> FlagsByTurn:
    """Return the flags of these turns, where there are any. Their owner was checked when they were read."""
    return await tables.flags(turns) if await tables.flag_version() else {}


async def hidden_in(store: Store, owner: str, turns: Sequence[Turn], page: int) -> list[HiddenItems]:
    """Return for each turn the places of its hidden items; read in pages."""
    flags: dict[TurnId, Mapping[int, Flags]] = {}
    for start in range(0, len(turns), page):
        read = tuple(turn.id for turn in turns[start : start + page])
        flags |= await store.read(flags_of_read, read, owner)
    return hidden_places(turns, flags)


def hidden_places(turns: Sequence[Turn], flags: FlagsByTurn) -> list[HiddenItems]:
    if not flags:
        return [NOTHING_HIDDEN] * len(turns)
    from_user, from_model = _places(turns, hidden_from_user(flags)), _places(turns, hidden_from_model(flags))
    return list(map(HiddenItems, from_user, from_model))


def _places(turns: Sequence[Turn], hidden: HiddenPlaces) -> list[tuple[int, ...]]:
    parts, named = [turn.items for turn in turns], [hidden.get(turn.id, ()) for turn in turns]
    return [tuple(sorted(places)) for places in hidden_in_parts(parts, named)]


async def whole_history(
    store: Store, owner: str, page_before: Callable[[int | None], TurnPageRequest]
) -> list[Item]:
    """Return all items that the user sees, read in pages, last page first."""
    turns: list[Turn] = []
    flags: dict[TurnId, Mapping[int, Flags]] = {}
    before: int | None = None
    line: Branch | None = None
    while before is None or before > 1:
        page = await store.read(flagged_page, LinePageRequest(page_before(before), line), owner)
        turns[:0] = page.turns
        flags |= page.flags
        line = page.branch
        before = page.turns[0].number if page.turns else 1
    return visible_to_user(turns, flags)


async def instructions_in_force(tables: Tables, request: InfoRequest) -> tuple[Item, ...]:
    conversation = await read_conversation(tables, request)
    branch = await _shown_branch(tables, conversation)
    found = await turn_at(tables, branch, branch.instructed) if branch.instructed else None
    return (found.instructions or ()) if found else ()
