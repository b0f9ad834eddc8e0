"""The catalogue: an owner's chats as lists show them, and the names they have."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.conversations.resolve import Target, check_live, find, has_expired
from turnledger.engine.feed import newest_position, tell
from turnledger.engine.ports import Tables
from turnledger.errors import ConversationUnavailable
from turnledger.model.catalogue import Listed, ListPosition, Page, Wanted
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import EVERYWHERE, Conversation, NamedBy, Within
from turnledger.model.ids import ConversationId


@dataclass(frozen=True)
class ListChats:
    wanted: Wanted
    after: ListPosition | None
    limit: int
    now: int
    within: Within = EVERYWHERE


async def list_page(tables: Tables, request: ListChats) -> Page:
    """A page of chats, the last used first: turns, preview and time as the last commit wrote them. Internal
    ones never show, nor do those whose first turn is not committed yet."""
    as_of = str(await newest_position(tables))
    if request.within.chat is not None:
        return Page(await _alone(tables, request, request.within.chat), as_of=as_of)
    after, shown = request.after, list[Listed]()
    # One more than is asked for tells whether a page follows.
    wanted = request.limit + 1
    while True:
        found = await tables.listed(request.wanted, after, wanted)
        # What has lapsed and is not marked yet is passed over, and leaves no gap in the page.
        shown += [each for each in found if not await _has_lapsed(tables, each, request.now)]
        if len(found) < wanted or len(shown) >= wanted:
            break
        after = ListPosition.behind(found[-1])
    page = tuple([_apart(each) for each in shown[: request.limit]])
    has_more = len(shown) > request.limit
    return Page(page, ListPosition.behind(page[-1]).cursor if has_more else None, as_of)


async def _alone(tables: Tables, request: ListChats, id: ConversationId) -> tuple[Listed, ...]:
    """The list of who may see one chat only."""
    found = await tables.conversation(request.wanted.owner, id)
    branch = await tables.branch(found.branch) if found is not None else None
    if found is None or branch is None or not request.within.sees(found) or not request.wanted.fits(found):
        return ()
    alone = Listed(found, branch.length, branch.preview, branch.running is not None)
    is_behind = request.after is None or ListPosition.behind(alone) < request.after
    return (_apart(alone),) if is_behind and not await _has_lapsed(tables, alone, request.now) else ()


async def _has_lapsed(tables: Tables, listed: Listed, now: int) -> bool:
    """Whether its time is over: that to be used, or, of a deleted one, that to be restored."""
    found = listed.conversation
    if found.is_deleted:
        return found.purge_at is None or found.purge_at <= now
    return not listed.is_running and await has_expired(tables, found, now)


def _apart(listed: Listed) -> Listed:
    """The same, of which nothing can be changed that a store holds."""
    found = listed.conversation
    if not found.metadata:
        return listed
    return replace(listed, conversation=replace(found, metadata=dict(found.metadata)))


@dataclass(frozen=True)
class NamedChatRequest:
    """Asks for the chat that a conversation_key names."""

    target: Target
    now: int


async def named_chat(tables: Tables, request: NamedChatRequest) -> Page:
    """The chat that a conversation_key names, as a page of its own, or one without any. It need not be
    listed: its first turn may run yet. Makes none, and gives the key to no other. Raises
    ConversationExpired."""
    as_of = str(await newest_position(tables))
    found = await find(tables, request.target)
    branch = await tables.branch(found.branch) if found is not None else None
    if found is None or branch is None:
        return Page((), as_of=as_of)
    await check_live(tables, found, request.now)
    return Page(
        (_apart(Listed(found, branch.length, branch.preview, branch.running is not None)),), as_of=as_of
    )


@dataclass(frozen=True)
class NameRequest:
    owner: str
    id: ConversationId
    title: str
    now: int
    due: int


async def name_by_model(tables: Tables, request: NameRequest) -> Conversation | None:
    """Give a chat the title that a model made, if it has none or only its first words: never over a name that
    a person gave, nor over another model's. Return it as named, or None. The revision stays: who renames it
    meanwhile need not know."""
    found = await tables.conversation(request.owner, request.id)
    try:
        found = await check_live(tables, found, request.due)
    except ConversationUnavailable:
        return None
    if found.named_by is NamedBy.MODEL and found.title == request.title:
        return found  # it was done before, and its answer was lost
    if found.named_by not in (None, NamedBy.WORDS) or (found.title is not None and found.named_by is None):
        return None
    named = replace(found, title=request.title, named_by=NamedBy.MODEL)
    await tables.save_conversation(named)
    if named.is_listed:
        await tell(tables, ChangeKind.CHAT_CHANGED, named, request.now)
    return named
