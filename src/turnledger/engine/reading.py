"""Reading a conversation: pages of its turns, and the attempts kept aside."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.conversations import check_live
from turnledger.engine.line import turns_of
from turnledger.engine.ports import Tables
from turnledger.errors import BranchNotFound, TurnNotFound
from turnledger.model.attempt import Attempt
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.journal import Journal
from turnledger.model.listing import Listed
from turnledger.model.turn import Turn
from turnledger.model.within import EVERYWHERE, Within


@dataclass(frozen=True)
class PageRequest:
    """The last `limit` turns numbered below `before`, or the last ones of all."""

    owner: str
    conversation: ConversationId
    before: int | None
    limit: int
    now: int
    most_bytes: int | None = None
    """What their bodies take together at most, if that is bounded; the last one of the page comes anyhow."""
    branch: BranchId | None = None
    """Of which branch of the conversation; None for the one it shows."""


FEW = 4
"""Turns that are read at first where it is not known how many a page has room for."""


async def turns_page(tables: Tables, request: PageRequest) -> list[Turn]:
    """A page of turns in order; its cost does not depend on how many there are. Raises BranchNotFound."""
    conversation = await _live(tables, request.owner, request.conversation, request.now)
    branch = await tables.branch(request.branch or conversation.branch)
    if request.branch is not None and (branch is None or branch.conversation != conversation.id):
        raise BranchNotFound
    if branch is None:
        return []
    through = branch.length if request.before is None else request.before - 1
    if request.most_bytes is None:
        return await turns_of(tables, branch, 0, through, request.limit)
    return await _bounded(tables, branch, through, request.limit, request.most_bytes)


async def _bounded(tables: Tables, branch: Branch, through: int, limit: int, most_bytes: int) -> list[Turn]:
    """As many of the last turns as there is room for. Few are read at first, then twice as many, so that what
    is read in vain is no multiple of what is shown."""
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
class Line:
    """A branch of a conversation, as it is listed."""

    branch: Branch
    base: TurnId | None
    """The turn that it was made from; None for the very beginning."""
    is_current: bool
    """Whether the conversation shows it."""


@dataclass(frozen=True)
class BranchesRequest:
    owner: str
    conversation: ConversationId
    before: BranchId | None
    limit: int
    now: int


async def branches(tables: Tables, request: BranchesRequest) -> list[Line]:
    """A page of the branches of a conversation, the last made first. Raises BranchNotFound."""
    conversation = await _live(tables, request.owner, request.conversation, request.now)
    before = await tables.branch(request.before) if request.before else None
    if request.before is not None and (before is None or before.conversation != conversation.id):
        raise BranchNotFound
    found = await tables.branches(conversation.id, request.before, request.limit)
    origins = [await tables.origin(each.id) for each in found]
    return [
        Line(branch, origin.base if origin else None, branch.id == conversation.branch)
        for branch, origin in zip(found, origins, strict=True)
    ]


@dataclass(frozen=True)
class SetAside:
    """An attempt that is not in the history, with what it had recorded of itself."""

    attempt: Attempt
    journal: Journal


async def attempts_page(tables: Tables, request: PageRequest) -> list[SetAside]:
    """The attempts of a conversation that run or were kept aside, newest first."""
    conversation = await _live(tables, request.owner, request.conversation, request.now)
    page: list[SetAside] = []
    room = request.most_bytes
    for attempt in await tables.attempts(conversation.id, request.limit):
        records = await tables.journal(attempt.id)
        if room is not None:
            told = (*(item.raw for item in attempt.input), *records, attempt.partial.encode())
            room -= sum(map(len, told))
            if room < 0 and page:
                break
        page.append(SetAside(attempt, Journal.of(records)))
    return page


@dataclass(frozen=True)
class InfoRequest:
    owner: str
    conversation: ConversationId
    now: int


async def info(tables: Tables, request: InfoRequest) -> Conversation:
    """The conversation itself, if it is live."""
    found = await _live(tables, request.owner, request.conversation, request.now)
    return replace(found, metadata=dict(found.metadata))


async def summary(tables: Tables, request: InfoRequest) -> Listed:
    """The conversation as a list shows it, if it is live."""
    found = await info(tables, request)
    branch = await tables.branch(found.branch)
    if branch is None:
        return Listed(found, 0, "", is_running=False)
    return Listed(found, branch.length, branch.preview, is_running=branch.running is not None)


@dataclass(frozen=True)
class HomeRequest:
    owner: str
    turn: TurnId
    now: int
    within: Within = EVERYWHERE
    """What is beyond it does not exist."""


async def home_of(tables: Tables, request: HomeRequest) -> Conversation:
    """The conversation that a turn was committed to, or that an attempt runs on, waits for or was set aside
    in, if it is live. Raises TurnNotFound, also to anybody but its owner, and beyond what they may see."""
    found = await _conversation_of(tables, request.owner, request.turn)
    if found is None or not request.within.sees(found):
        raise TurnNotFound("There is no such turn.")
    return await check_live(tables, found, request.now)


async def _conversation_of(tables: Tables, owner: str, id: TurnId) -> Conversation | None:
    turn = await tables.turn(owner, id)
    if turn is not None:
        branch = await tables.branch(turn.branch)
        return await tables.conversation(owner, branch.conversation) if branch else None
    waiting = await tables.attempt(owner, id) or await tables.ticket(id)
    return await tables.conversation(owner, waiting.conversation) if waiting else None


async def _live(tables: Tables, owner: str, id: ConversationId, now: int) -> Conversation:
    return await check_live(tables, await tables.conversation(owner, id), now)
