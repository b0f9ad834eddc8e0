"""The entry of a chat in the list: what its turns change there, and the preview of its branches.

A chat that a turn created is listed from its first committed turn on. After that, a commit updates only the
time of the last interaction and the preview, in rows that it writes anyway.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from turnledger.engine.conversations.title import first_words_at, hidden_of, with_words_as_title
from turnledger.engine.feed import record_change
from turnledger.engine.ports import Tables
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import ConversationId
from turnledger.model.turn import Turn, preview_of

PREVIEW_TURNS = 16
"""Turns searched for a preview text, if the last ones are all calls, results or hidden."""


ENDS = 1_000
"""The most branches ending with one turn whose preview is updated when its items are hidden."""


async def update_entry(
    tables: Tables,
    id: ConversationId,
    branch: Branch,
    turn: Turn,
    at: int | None = None,
    hidden: Collection[int] = (),
) -> Conversation | None:
    """List the chat of a turn that was just added to a branch. Without a title, name it by its first words,
    hidden items left out. `at` is the time of the interaction, if it was one. The revision stays, since no
    user gave the name. A side branch names no chat. Return the chat as it was before."""
    found = await tables.conversation(id)
    if found is None:
        return None
    entered = replace(found, is_listed=True, touched_at=max(found.touched_at, at or 0))
    if found.title is None and not found.internal and not branch.is_side:
        entered = with_words_as_title(entered, await first_words_at(tables, branch, turn, hidden))
    if entered != found:
        await tables.save_conversation(entered)
    if entered.title != found.title and found.is_listed:
        await record_change(tables, ChangeKind.CHAT_CHANGED, entered, turn.committed_at)
    return found


async def preview_at(tables: Tables, turn: Turn | None) -> str:
    """Return the preview of a branch that ends with this turn: the beginning of its last visible text, or
    that of an earlier turn."""
    for _ in range(PREVIEW_TURNS):
        if turn is None:
            break
        if preview := preview_of(turn, await hidden_of(tables, turn)):
            return preview
        turn = await tables.turn(turn.parent) if turn.parent is not None else None
    return ""


async def update_previews(tables: Tables, conversation: Conversation, turn: Turn) -> None:
    """Update previews after flags of a turn have changed: of its own branch, of the current one, and of
    branches that were made from it."""
    for id in dict.fromkeys((turn.branch, conversation.branch, *await tables.empty_branches_at(turn, ENDS))):
        branch = await tables.branch(id)
        if branch is None or branch.head is None:
            continue
        preview = await preview_at(tables, await tables.turn(branch.head))
        if branch.preview != preview:
            await tables.save_branch(replace(branch, preview=preview))
