"""The entry of a chat in its owner's list: what commits write of it, in the same transaction as the turn.

A chat that a turn has made is listed from its first committed turn on, and named by its first words unless it
has a title. After that, a commit only moves the time of the last interaction and the preview, in rows that it
writes anyway.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from turnledger.engine.feed.changes import tell
from turnledger.engine.ports import Tables
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Branch, Conversation, NamedBy
from turnledger.model.flags import hidden_from_user
from turnledger.model.ids import ConversationId
from turnledger.model.text.plain import first_words, preview_of
from turnledger.model.turn import Turn

LOOKED_AT = 16
"""Turns that are looked at for a text to preview, where they are all calls and results, or hidden."""
ENDS = 1_000
"""Branches that end with one turn, whose preview is written anew when something of it is hidden."""


def is_entered(conversation: Conversation) -> bool:
    """Whether a turn has nothing to add to what the list says of its chat, but that it was used."""
    return conversation.internal or (conversation.is_listed and conversation.title is not None)


async def enter(
    tables: Tables,
    owner: str,
    id: ConversationId,
    branch: Branch,
    turn: Turn,
    at: int | None = None,
    hidden: Collection[int] = (),
) -> Conversation | None:
    """List the chat of a turn that was just added to a branch, and name it by its first words if it has no
    title, without the items of the turn that are hidden. `at` is the time of the interaction, if it was one.
    The revision stays: nobody gave that name. Return the chat as it was before."""
    found = await tables.conversation(owner, id)
    if found is None:
        return None
    entered = replace(found, is_listed=True, touched_at=max(found.touched_at, at or 0))
    if found.title is None and not found.internal:
        entered = named_by_words(entered, await _first_words(tables, owner, branch, turn, hidden))
    if entered != found:
        await tables.save_conversation(entered)
    if entered.title != found.title and found.is_listed:
        await tell(tables, ChangeKind.CHAT_CHANGED, entered, turn.committed_at)
    return found


def named_by_words(conversation: Conversation, title: str | None) -> Conversation:
    return replace(conversation, title=title, named_by=None if title is None else NamedBy.WORDS)


async def _first_words(
    tables: Tables, owner: str, branch: Branch, turn: Turn, hidden: Collection[int]
) -> str | None:
    """Those of the branch; if its first turn says nothing, those of this one."""
    is_first = turn.number == branch.start + 1
    before = None if is_first else await words_of(tables, owner, branch)
    return before or first_words(turn.input, hidden)


async def words_of(tables: Tables, owner: str, branch: Branch) -> str | None:
    """The first words on a branch that are shown, of the turns that are its own: what it shares with another,
    that one is named by."""
    first = await tables.turns(branch.id, branch.start, branch.start + 1, 1)
    return first_words(first[0].input, await hidden_of(tables, owner, first[0])) if first else None


async def hidden_of(tables: Tables, owner: str, turn: Turn) -> Collection[int]:
    """The places in a turn that its user is not shown."""
    return hidden_from_user(await tables.flags(owner, (turn.id,))).get(turn.id, ())


async def name_again(
    tables: Tables, conversation: Conversation, turn: Turn, before: Collection[int], now: int
) -> None:
    """Name a chat anew that was named by the words of a turn, of which other items are shown from now on than
    all but those `before`. A chat without a name may get one."""
    if conversation.internal or conversation.named_by not in (None, NamedBy.WORDS):
        return
    if conversation.title not in (None, first_words(turn.input, before)):
        return
    branch = await tables.branch(conversation.branch)
    title = await words_of(tables, conversation.owner, branch) if branch is not None else None
    if title == conversation.title:
        return
    named = named_by_words(conversation, title)
    await tables.save_conversation(named)
    if named.is_listed:
        await tell(tables, ChangeKind.CHAT_CHANGED, named, now)


async def preview_at(tables: Tables, owner: str, turn: Turn | None) -> str:
    """The preview of a branch that ends with this turn: how its last text begins that is shown, or that of
    one of the turns before."""
    for _ in range(LOOKED_AT):
        if turn is None:
            break
        if preview := preview_of(turn, await hidden_of(tables, owner, turn)):
            return preview
        turn = await tables.turn(owner, turn.parent) if turn.parent is not None else None
    return ""


async def preview_again(tables: Tables, conversation: Conversation, turn: Turn) -> None:
    """Write anew the preview of what ends with a turn, or soon behind it, of which other items are shown from
    now on: on its own branch, on the one that the conversation shows, and on those made from it, wherever."""
    owner = conversation.owner
    for id in dict.fromkeys((turn.branch, conversation.branch, *await tables.ends_at(turn, ENDS))):
        branch = await tables.branch(id)
        if branch is None or branch.head is None:
            continue
        preview = await preview_at(tables, owner, await tables.turn(owner, branch.head))
        if branch.preview != preview:
            await tables.save_branch(replace(branch, preview=preview))
