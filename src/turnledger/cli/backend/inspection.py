"""What a store keeps, as commands tell it; and a look at it in passing."""

from __future__ import annotations

from collections.abc import Sequence

from turnledger.cli.output.json import ChatTold, ListedChat, TokenTold, reshaped
from turnledger.model.access.token import Token
from turnledger.model.catalogue import Listed, Wanted
from turnledger.model.conversation import LOCAL, Conversation

TOKENS = 1_000
"""Tokens that are read at once."""


async def last_used(
    url: str, *, owner: str | None, scope: str | None, deleted: bool, limit: int
) -> tuple[ListedChat, ...]:
    """The chats of an owner that were used last. Takes no part in the store, and writes nothing."""
    from turnledger.engine.clock import SystemClock
    from turnledger.engine.conversations.catalogue import ListChats, list_page
    from turnledger.stores.url import visit_store

    wanted = Wanted(owner=owner or LOCAL, scope=scope, archived=None if deleted else False, deleted=deleted)
    visit = await visit_store(url)
    try:
        page = await visit.read(list_page, ListChats(wanted, None, limit, SystemClock().now_ms()))
    finally:
        await visit.close()
    return tuple(map(listed, page.chats))


async def all_tokens(url: str, owner: str | None) -> Sequence[TokenTold]:
    """All tokens, of an owner or of all, the last made first. Takes no part in the store either."""
    from turnledger.engine.access.tokens import ListTokens, list_tokens
    from turnledger.model.conversation import EVERYWHERE
    from turnledger.stores.url import visit_store

    found: list[Token] = []
    visit = await visit_store(url)
    try:
        while True:
            before = found[-1].id if found else None
            page = await visit.read(list_tokens, ListTokens(owner, EVERYWHERE, before, TOKENS))
            found += page
            if len(page) < TOKENS:
                return tuple(map(token_told, found))
    finally:
        await visit.close()


def chat_told(conversation: Conversation) -> ChatTold:
    """What is told of a chat."""
    return reshaped(conversation, ChatTold, scope=conversation.scope or None)


def listed(each: Listed) -> ListedChat:
    """What is told of a chat in a list."""
    return reshaped(
        chat_told(each.conversation),
        ListedChat,
        turn_count=each.turns,
        preview=each.preview,
        is_running=each.is_running,
    )


def token_told(token: Token) -> TokenTold:
    """What is told of a token."""
    return reshaped(
        token,
        TokenTold,
        scopes=tuple(sorted(token.scopes)),
        chat_scope=token.chat_scope or None,
        chat=token.conversation,
        max_tokens=token.bounds.max_tokens,
        n=token.bounds.n,
    )
