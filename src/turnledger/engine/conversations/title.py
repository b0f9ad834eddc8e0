"""The title of a chat: its first words, or one by a model, which never replaces one given by a person."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.feed import record_change
from turnledger.engine.ports import Tables
from turnledger.errors import ConversationUnavailable
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Branch, Conversation, TitleSource
from turnledger.model.flags import hidden_from_user
from turnledger.model.ids import ConversationId
from turnledger.model.turn import Turn, first_words


def with_words_as_title(conversation: Conversation, title: str | None) -> Conversation:
    return replace(conversation, title=title, named_by=None if title is None else TitleSource.WORDS)


async def first_words_at(tables: Tables, branch: Branch, turn: Turn, hidden: Collection[int]) -> str | None:
    """Return the first words of the branch; if its first turn has none, those of this turn."""
    is_first = turn.number == branch.start + 1
    before = None if is_first else await first_words_of(tables, branch)
    return before or first_words(turn.input, hidden)


async def first_words_of(tables: Tables, branch: Branch) -> str | None:
    """Return the first visible words of the branch's own turns. Shared turns name the other branch."""
    first = await tables.turns(branch.id, branch.start, branch.start + 1, 1)
    return first_words(first[0].input, await hidden_of(tables, first[0])) if first else None


async def hidden_of(tables: Tables, turn: Turn) -> Collection[int]:
    return hidden_from_user(await tables.flags((turn.id,))).get(turn.id, ())


async def rename_by_words(
    tables: Tables, conversation: Conversation, turn: Turn, before: Collection[int], now: int
) -> None:
    """Rename a chat that was named by the words of a turn, after flags of that turn have changed; `before`
    are the places hidden until now. A chat without a name may get one."""
    if conversation.internal or conversation.named_by not in (None, TitleSource.WORDS):
        return
    if conversation.title not in (None, first_words(turn.input, before)):
        return
    branch = await tables.branch(conversation.branch)
    title = await first_words_of(tables, branch) if branch is not None else None
    if title == conversation.title:
        return
    await save_details(tables, with_words_as_title(conversation, title), now)


async def save_details(tables: Tables, changed: Conversation, now: int) -> Conversation:
    """Save a conversation whose details have changed, and report it if the feed has reported it before."""
    await tables.save_conversation(changed)
    if changed.is_listed:
        await record_change(tables, ChangeKind.CHAT_CHANGED, changed, now)
    return changed


async def renamed(tables: Tables, found: Conversation, title: str | None) -> Conversation:
    if title is None:
        return found
    if title.strip():  # a blank name could be neither seen nor found
        return replace(found, title=title, named_by=TitleSource.PERSON)
    if found.named_by is TitleSource.WORDS:
        return found
    branch = await tables.branch(found.branch)
    words = await first_words_of(tables, branch) if branch is not None else None
    return with_words_as_title(found, words)


@dataclass(frozen=True)
class NameRequest:
    id: ConversationId
    title: str
    now: int
    due: int


async def name_by_model(tables: Tables, request: NameRequest) -> Conversation | None:
    """Set a title that a model made, if the chat has none or only its first words; never replace a name given
    by a user or another model. Return the chat, or None if unchanged. The revision stays, so that a
    concurrent rename does not conflict."""
    try:
        found = await live_conversation(tables, request.id, request.due)
    except ConversationUnavailable:
        return None
    if found.named_by is TitleSource.MODEL and found.title == request.title:
        return found  # a repetition: the first result was lost
    if found.named_by not in (None, TitleSource.WORDS) or (
        found.title is not None and found.named_by is None
    ):
        return None
    named = replace(found, title=request.title, named_by=TitleSource.MODEL)
    return await save_details(tables, named, request.now)
