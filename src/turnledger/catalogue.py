"""The catalogue: an owner's chats, a page at a time."""

from __future__ import annotations

from turnledger.engine.conversations.catalogue import (
    ListChats,
    NamedChatRequest,
    NameRequest,
    list_page,
    name_by_model,
    named_chat,
)
from turnledger.engine.process import Process
from turnledger.engine.turn.validation import (
    check_details,
    check_limit,
    check_name,
    scope_in,
    tag_of,
    target_of,
)
from turnledger.model.catalogue import ListPosition, Page, Wanted
from turnledger.model.conversation import EVERYWHERE, Conversation, Within
from turnledger.model.ids import ConversationId


class Catalogue:
    """Lists the conversations of a ledger."""

    def __init__(self, process: Process, tokenless: str) -> None:
        self._process = process
        self._tokenless = tokenless

    async def list(
        self,
        *,
        owner: str | None = None,
        scope: str | None = None,
        within: Within = EVERYWHERE,
        tag: str | None = None,
        archived: bool | None = False,
        pinned: bool | None = None,
        deleted: bool = False,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return a page of the owner's chats, the last used first, of one scope or of all.

        `tag`, `archived` and `pinned` select chats; None means any. `deleted` lists the chats that can be
        restored instead, archived or not. `cursor` is `next` of the previous page. It names a position, not a
        chat: whatever is used, changed or deleted meanwhile, no chat is listed twice, and each unchanged chat
        is listed once. A chat that is used meanwhile moves to the front. Raises InvalidInput for an invalid
        cursor.
        """
        owner = self._tokenless if owner is None else owner
        check_name("owner", owner)
        if scope is not None or within.scope is not None:
            scope = scope_in(scope or "", within)
        wanted = Wanted(
            owner=owner,
            scope=scope,
            tag=None if tag is None else tag_of(tag),
            archived=None if deleted else archived,
            pinned=pinned,
            deleted=deleted,
        )
        after = None if cursor is None else ListPosition.of(cursor)
        process = self._process
        request = ListChats(wanted, after, check_limit(limit), process.clock.due_ms(), within)
        return await process.store.read(list_page, request)

    async def named(
        self,
        conversation_key: str,
        *,
        owner: str | None = None,
        scope: str = "",
        within: Within = EVERYWHERE,
    ) -> Page:
        """Return the chat of a conversation_key as a page of one, or an empty page. Creates none.

        Also finds archived and internal chats, and those without a committed turn, which no list shows.
        Raises ConversationExpired: an expired chat keeps its key.
        """
        process, owner = self._process, self._tokenless if owner is None else owner
        target = target_of(process, None, conversation_key, owner, scope=scope, within=within, create=False)
        return await process.store.read(named_chat, NamedChatRequest(target, process.clock.due_ms()))

    async def name_by_model(self, id: str, title: str, *, owner: str | None = None) -> Conversation | None:
        """Set a title that a model made, and return the conversation, or None if it has a title already.

        Never replaces a title that a person gave, in whichever order they arrive. Does not raise the
        revision.
        """
        check_details(title, None)
        owner = self._tokenless if owner is None else owner
        clock = self._process.clock
        request = NameRequest(owner, ConversationId(id), title, clock.now_ms(), clock.due_ms())
        return await self._process.persist(name_by_model, request) if title else None
