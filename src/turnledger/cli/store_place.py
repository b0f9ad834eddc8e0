"""Chats and tokens of a store, whether a server runs on it or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from turnledger.chat import Chat
from turnledger.cli.place import ID, check_named
from turnledger.cli.told import (
    ChatPage,
    ChatShown,
    ChatTold,
    DeletedChat,
    HitPage,
    HitTold,
    ListedChat,
    RestoredChat,
    TokenMade,
    TokenTold,
    TurnTold,
)
from turnledger.engine.limits import Limits
from turnledger.errors import NotAStore, TokenNotFound
from turnledger.ledger import OWNER, Ledger
from turnledger.model.conversation import Conversation
from turnledger.model.flags import gone_in, hidden_from_user
from turnledger.model.ids import TokenId
from turnledger.model.item import Item
from turnledger.model.listing import Listed
from turnledger.model.token import Token
from turnledger.model.token_text import digest_of, is_token_text
from turnledger.model.transfer_report import ImportReport
from turnledger.model.turn import Turn
from turnledger.stores.opening import visit_store

PAGE = 50
TOKENS = 1_000


@asynccontextmanager
async def in_store(
    url: str, owner: str | None, limits: Limits | None = None, *, makes: bool = False
) -> AsyncIterator[StorePlace]:
    """The store at this URL; where it is not there it is made, or NotAStore is raised."""
    if not makes:
        await (await visit_store(url)).close()
    elif url.startswith("memory:"):
        raise NotAStore("A store in memory is gone with its process. Name a file, as in sqlite:///chats.db.")
    async with await Ledger.open(url, limits=limits) as ledger:
        yield StorePlace(ledger, OWNER if owner is None else owner)


class StorePlace:
    """The chats of one owner, and the tokens of all."""

    def __init__(self, ledger: Ledger, owner: str) -> None:
        self._ledger = ledger
        self._owner = owner

    async def list(self, **wish: Any) -> ChatPage:
        page = await self._ledger.catalogue.list(owner=self._owner, **wish)
        return ChatPage(tuple(map(listed, page.chats)), page.next)

    async def search(self, text: str, *, scope: str | None, limit: int, cursor: str | None) -> HitPage:
        page = await self._ledger.search(text, owner=self._owner, scope=scope, limit=limit, cursor=cursor)
        hits = [
            HitTold(
                chat=chat_told(hit.conversation),
                turn=hit.turn,
                branch=hit.branch,
                snippet=hit.snippet,
                marks=hit.marks,
            )
            for hit in page.hits
        ]
        return HitPage(tuple(hits), page.next, page.is_complete)

    async def show(self, chat: str, *, scope: str, turns: int) -> ChatShown:
        """Of each turn, the items that its owner sees."""
        found = await self._chat(chat, scope)
        read: list[Turn] = []
        while len(read) < turns:
            before = read[0].number if read else None
            page = await found.turns(before=before, limit=min(PAGE, turns - len(read)))
            if not page:
                break
            read = [*page, *read]
        shown = [turn_told(turn, *seen) for turn, seen in zip(read, await _seen(found, read), strict=True)]
        more = read[0].number if read and read[0].number > 1 else None
        return ChatShown(**_listed(await found.summary()), turns=tuple(shown), before=more)

    async def update(self, chat: str, *, scope: str, **changes: Any) -> ListedChat:
        found = await self._chat(chat, scope)
        await found.update(**changes)
        return listed(await found.summary())

    async def delete(self, chat: str, *, scope: str, purge: bool) -> DeletedChat:
        deleted = await self._ledger.delete(await self._id(chat, scope), owner=self._owner, purge=purge)
        return DeletedChat(id=deleted.id, state=deleted.state, purge_at=deleted.purge_at)

    async def restore(self, id: str) -> RestoredChat:
        chat = await self._ledger.restore(id, owner=self._owner)
        lost = chat.former_conversation_key if chat.conversation_key is None else None
        return RestoredChat(**_told(chat.as_opened), former_conversation_key=lost)

    async def export(self, chat: str, *, scope: str, format: str) -> AsyncIterator[bytes]:
        id, transfer = await self._id(chat, scope), self._ledger.transfer
        if format == "markdown":
            async for part in transfer.markdown(id, owner=self._owner):
                yield part.encode()
        else:
            async for line in transfer.export(id, owner=self._owner):
                yield line

    def export_all(self, *, scope: str | None) -> AsyncIterator[bytes]:
        return self._ledger.transfer.export_all(owner=self._owner, scope=scope)

    def import_lines(self, pieces: Iterable[bytes], *, scope: str | None) -> AsyncIterator[ImportReport]:
        return self._ledger.transfer.import_lines(pieces, owner=self._owner, scope=scope)

    async def create_token(self, *, expires_at: int | None, **wish: Any) -> tuple[TokenMade, bool]:
        tokens = self._ledger.tokens
        is_first = not (await tokens.find(None)).any_tokens
        made, text = await tokens.create(**wish, expires_at=expires_at)
        return TokenMade(**_token(made), token=text), is_first

    async def list_tokens(self, owner: str | None) -> Sequence[TokenTold]:
        found: list[Token] = []
        while True:
            before = found[-1].id if found else None
            page = await self._ledger.tokens.list(owner=owner, before=before, limit=TOKENS)
            found += page
            if len(page) < TOKENS:
                return tuple(map(token_told, found))

    async def revoke_token(self, token: str) -> Sequence[TokenTold]:
        if is_token_text(token):
            # Who found one that leaked knows nothing else of it.
            found = (await self._ledger.tokens.find(digest_of(token))).token
            if found is None:
                raise TokenNotFound("There is no token with this text.")
            token = found.id
        return tuple(map(token_told, await self._ledger.tokens.revoke(TokenId(token))))

    async def _chat(self, name: str, scope: str) -> Chat:
        check_named(name)
        id, conversation_key = (name, None) if name.startswith(ID) else (None, name)
        return await self._ledger.conversation(
            id, conversation_key=conversation_key, owner=self._owner, scope=scope, create=False
        )

    async def _id(self, name: str, scope: str) -> str:
        """The id that a chat is named by, also one that is deleted; or the one of its conversation_key."""
        return name if name.startswith(ID) else (await self._chat(name, scope)).id


async def _seen(chat: Chat, turns: Sequence[Turn]) -> list[tuple[tuple[Item, ...], tuple[Item, ...]]]:
    """Input and output of each turn, without what is hidden from the owner."""
    hidden: dict[Any, Any] = {}
    for start in range(0, len(turns), PAGE):
        hidden |= hidden_from_user(await chat.flags(*(turn.id for turn in turns[start : start + PAGE])))
    gone = gone_in([turn.items for turn in turns], [hidden.get(turn.id, ()) for turn in turns])
    return [
        (_left(turn.input, places, 0), _left(turn.output, places, len(turn.input)))
        for turn, places in zip(turns, gone, strict=True)
    ]


def _left(items: tuple[Item, ...], gone: Collection[int], first: int) -> tuple[Item, ...]:
    return tuple(item for place, item in enumerate(items, first) if place not in gone)


def chat_told(conversation: Conversation) -> ChatTold:
    """What is told of a chat."""
    return ChatTold(**_told(conversation))


def listed(each: Listed) -> ListedChat:
    """What is told of a chat in a list."""
    return ListedChat(**_listed(each))


def turn_told(turn: Turn, input: tuple[Item, ...], output: tuple[Item, ...]) -> TurnTold:
    """What is told of a turn: of its items, those that are given."""
    return TurnTold(
        id=turn.id,
        number=turn.number,
        kind=turn.kind,
        parent=turn.parent,
        created_at=turn.created_at,
        committed_at=turn.committed_at,
        input=input,
        output=output,
        details=dict(turn.details),
    )


def token_told(token: Token) -> TokenTold:
    """What is told of a token."""
    return TokenTold(**_token(token))


def _told(conversation: Conversation) -> dict[str, Any]:
    told = {name: getattr(conversation, name) for name in ChatTold.__struct_fields__}
    return {**told, "scope": conversation.scope or None}


def _listed(each: Listed) -> dict[str, Any]:
    told = {"turn_count": each.turns, "preview": each.preview, "is_running": each.is_running}
    return {**_told(each.conversation), **told}


def _token(token: Token) -> dict[str, Any]:
    named = {
        "chat": token.conversation,
        "chat_scope": token.chat_scope or None,
        "scopes": tuple(sorted(token.scopes)),
    }
    fields = [name for name in TokenTold.__struct_fields__ if name not in named]
    return {**{name: getattr(token, name) for name in fields}, **named}
