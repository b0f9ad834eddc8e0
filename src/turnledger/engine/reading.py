"""Reading a conversation: pages of its turns, and the attempts kept aside."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.conversations import check_live
from turnledger.engine.line import turns_of
from turnledger.engine.ports import Tables
from turnledger.errors import TurnNotFound
from turnledger.model.attempt import Attempt
from turnledger.model.conversation import Conversation
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.journal import Journal
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


async def turns_page(tables: Tables, request: PageRequest) -> list[Turn]:
    """A page of turns in order; its cost does not depend on how many there are."""
    conversation = await _live(tables, request.owner, request.conversation, request.now)
    branch = await tables.branch(conversation.branch)
    if branch is None:
        return []
    through = branch.length if request.before is None else request.before - 1
    return await turns_of(tables, branch, 0, through, request.limit)


@dataclass(frozen=True)
class SetAside:
    """An attempt that is not in the history, with what it had recorded of itself."""

    attempt: Attempt
    journal: Journal


async def attempts_page(tables: Tables, request: PageRequest) -> list[SetAside]:
    """The attempts of a conversation that run or were kept aside, newest first."""
    conversation = await _live(tables, request.owner, request.conversation, request.now)
    found = await tables.attempts(conversation.id, request.limit)
    return [SetAside(each, Journal.of(await tables.journal(each.id))) for each in found]


@dataclass(frozen=True)
class InfoRequest:
    owner: str
    conversation: ConversationId
    now: int


async def info(tables: Tables, request: InfoRequest) -> Conversation:
    """The conversation itself, if it is live."""
    found = await _live(tables, request.owner, request.conversation, request.now)
    return replace(found, metadata=dict(found.metadata))


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
