"""The catalogue: an owner's chats as listed, and their names."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.conversations.resolve import (
    ResolveRequest,
    branch_shown,
    check_live,
    find,
    has_expired,
)
from turnledger.engine.feed import newest_position
from turnledger.engine.ports import Tables
from turnledger.errors import ConversationNotFound
from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition, Page, entry_of
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import ConversationId


@dataclass(frozen=True)
class ListChats:
    chat_filter: ChatFilter
    after: ListPosition | None
    limit: int
    now: int
    within: Within = EVERYWHERE
    is_ascending: bool = False
    """Longest unused first: of its filter, only the scope applies."""


async def list_page(tables: Tables, request: ListChats) -> Page:
    """Return a page of chats, last used first unless ascending, as of their last commit. Excludes internal
    chats and those whose first turn is not committed yet."""
    as_of = str(await newest_position(tables))
    if request.within.chat is not None:
        return Page(await _only_chat(tables, request, request.within.chat), as_of=as_of)
    after, shown = request.after, list[ChatEntry]()
    # One more than requested shows whether another page follows.
    count = request.limit + 1
    while True:
        if request.is_ascending:
            oldest = await tables.least_recent_conversations(request.chat_filter.scope, after, count)
            found = [entry_of(each, await branch_shown(tables, each)) for each in oldest]
        else:
            found = await tables.listed_chats(request.chat_filter, after, count)
        # Skip chats that have lapsed but are not marked yet, without leaving a gap in the page.
        shown += [each for each in found if not await _has_lapsed(tables, each, request.now)]
        if len(found) < count or len(shown) >= count:
            break
        after = ListPosition.after(found[-1])
    page = tuple([_copy_entry(each) for each in shown[: request.limit]])
    has_more = len(shown) > request.limit
    return Page(page, ListPosition.after(page[-1]).cursor if has_more else None, as_of)


@dataclass(frozen=True)
class PositionRequest:
    id: ConversationId
    within: Within


async def position_of(tables: Tables, request: PositionRequest) -> ListPosition:
    """Return the place of a chat in lists, or that which a deleted one had. Raises ConversationNotFound."""
    found = await tables.conversation(request.id)
    if found is None or not request.within.sees(found):
        raise ConversationNotFound
    return ListPosition(found.touched_at, found.id)


async def _only_chat(tables: Tables, request: ListChats, id: ConversationId) -> tuple[ChatEntry, ...]:
    """Return the list for a caller that may see one chat only."""
    found = await tables.conversation(id)
    if found is None or not request.within.sees(found) or not request.chat_filter.matches(found):
        return ()
    alone, after = entry_of(found, await branch_shown(tables, found)), request.after
    place = ListPosition.after(alone)
    is_behind = after is None or (place > after if request.is_ascending else place < after)
    return (_copy_entry(alone),) if is_behind and not await _has_lapsed(tables, alone, request.now) else ()


async def _has_lapsed(tables: Tables, listed: ChatEntry, now: int) -> bool:
    """Return whether it has expired or, if deleted, can no longer be restored."""
    found = listed.conversation
    if found.is_deleted:
        return found.purge_at is None or found.purge_at <= now
    return not listed.is_running and await has_expired(tables, found, now)


def _copy_entry(listed: ChatEntry) -> ChatEntry:
    """Copy its metadata, so that a caller cannot change what the store holds."""
    found = listed.conversation
    if not found.metadata:
        return listed
    return replace(listed, conversation=replace(found, metadata=dict(found.metadata)))


async def chat_by_key(tables: Tables, request: ResolveRequest) -> Page:
    """Return the chat with this conversation_key as a page of its own, or an empty page. The chat may be
    unlisted: its first turn may still run. Creates and resets nothing. Raises ConversationExpired."""
    as_of = str(await newest_position(tables))
    found = await find(tables, request.target)
    branch = await tables.branch(found.branch) if found is not None else None
    if found is None or branch is None:
        return Page((), as_of=as_of)
    await check_live(tables, found, request.now)
    return Page((_copy_entry(entry_of(found, branch)),), as_of=as_of)
