"""Chats and tokens of a store, whether a server runs on it or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from turnledger.api.access import NewToken, Share, Token
from turnledger.api.chats import ChatInfo, Deletion, Hit, Page, RestoredChat, SearchPage
from turnledger.api.turns import ChatContext, ChatHistory, Job, StopAnswer, TurnFlags
from turnledger.api.turns import Turn as ShownTurn
from turnledger.api.views import (
    show_chat,
    show_flags,
    show_job,
    show_listed,
    show_listed_as,
    show_new_share,
    show_share,
    show_token,
    show_turn,
    view,
)
from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.cli.backend.backend import ID_PREFIX, Source, check_chat_name
from turnledger.cli.backend.read_only_store import all_shares, all_tokens, without_hidden
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.history.context import context_of
from turnledger.engine.limits import Limits
from turnledger.errors import NotAStore, TokenNotFound
from turnledger.hosting import Host
from turnledger.ledger import OWNER, Ledger
from turnledger.model.access.share import VISIT
from turnledger.model.access.token import digest_of, is_token_text
from turnledger.model.ids import TurnId
from turnledger.model.item import raws
from turnledger.model.reset_policy import policy_of
from turnledger.model.transfer import ImportReport
from turnledger.model.turn import Turn
from turnledger.stores.url import open_read_only, store_exists

PAGE = 50


@asynccontextmanager
async def open_store(
    url: str, owner: str | None, limits: Limits | None = None, *, create: bool = False
) -> AsyncIterator[StoreBackend]:
    """Open the store at this URL. A missing one is created with `create`; otherwise raises NotAStore."""
    if not create:
        await (await open_read_only(url)).close()
    elif url.startswith("memory:"):
        raise NotAStore("A store in memory ends with its process. Use a file, as in sqlite:///chats.db.")
    is_new = create and not store_exists(url)
    async with AsyncExitStack() as stack:
        yield StoreBackend(url, OWNER if owner is None else owner, limits, stack, is_new=is_new)


class StoreBackend:
    """The chats of one owner, and the tokens of all. A chat is named by its id, or by its conversation_key in
    `scope`."""

    def __init__(
        self, url: str, owner: str, limits: Limits | None, stack: AsyncExitStack, *, is_new: bool
    ) -> None:
        self.is_new = is_new
        """Whether this command created the store."""
        self._url = url
        self._owner = owner
        self._limits = limits
        self._stack = stack
        self._open_ledger: Ledger | None = None

    async def _ledger(self) -> Ledger:
        """Open it when needed: commands that only read do not join the store as a process."""
        if self._open_ledger is None:
            ledger = await Ledger.open(self._url, limits=self._limits)
            self._open_ledger = await self._stack.enter_async_context(ledger)
        return self._open_ledger

    async def _chats(self, scope: str | None = None) -> Chats:
        return (await self._ledger()).for_owner(self._owner, scope=scope)

    async def list(self, *, scope: str | None = None, **fields: Any) -> Page[ChatInfo]:
        page = await (await self._chats(scope)).list(**fields)
        return Page(tuple(map(show_listed, page.chats)), page.next)

    async def search(self, text: str, *, scope: str | None, limit: int, cursor: str | None) -> Page[Hit]:
        page = await (await self._chats(scope)).search(text, limit=limit, cursor=cursor)
        hits = tuple(view(Hit, hit, chat=show_chat(ChatInfo, hit.conversation)) for hit in page.hits)
        return SearchPage(hits, page.next, page.is_complete)

    async def create(self, *, scope: str, reset: str | None = None, **details: Any) -> ChatInfo:
        """Create a chat, or find the one with the conversation_key."""
        chat = await (await self._chats(scope)).conversation(reset=policy_of(reset), **details)
        return show_listed(await chat.summary())

    async def show(self, chat: str, *, scope: str, turns: int) -> ChatHistory:
        found = await self._chat(chat, scope)
        listed = await found.summary()
        read: list[Turn] = []
        while len(read) < turns:
            before, limit = read[0].number if read else None, min(PAGE, turns - len(read))
            # Of one branch, even if the chat switches to another meanwhile.
            page = await found.turns(before=before, limit=limit, branch=listed.conversation.branch)
            if not page:
                break
            read = [*page, *read]
        shown = without_hidden(list(map(show_turn, read, await found.hidden(read))))
        earlier = read[0].number if read and read[0].number > 1 else None
        return show_listed_as(ChatHistory, listed, turns=shown, before=earlier)

    async def context(self, chat: str, *, scope: str, last: int | None, budget: int | None) -> ChatContext:
        found = await self._chat(chat, scope)
        shown = await found.snapshot(context=context_of(last, budget))
        return view(ChatContext, shown, raw_items=raws(shown.items))

    async def jobs(self, *, limit: int, cursor: str | None) -> Page[Job]:
        found = await (await self._chats()).jobs(after=cursor, limit=limit)
        return Page(tuple(map(show_job, found)), found[-1].id if len(found) == limit else None)

    async def stop(self, chat: str, *, scope: str, policy: str | None) -> StopAnswer:
        """Stop the running turn, and return how it ended, once that is final."""
        return _show_end(await (await self._chat(chat, scope)).stop(policy=policy))

    async def stop_turn(self, turn: str, *, policy: str | None) -> StopAnswer:
        chat = await (await self._chats()).of_turn(turn)
        return _show_end(await chat.stop(turn, policy=policy), turn)

    async def stop_key(self, idempotency_key: str, *, policy: str | None) -> StopAnswer:
        return _show_end(await (await self._chats()).stop(idempotency_key, policy=policy))

    async def update(self, chat: str, *, scope: str, **changes: Any) -> ChatInfo:
        found = await self._chat(chat, scope)
        await found.update(**changes)
        return show_listed(await found.summary())

    async def append(self, chat: str, items: Sequence[Any], *, scope: str, **options: Any) -> ShownTurn:
        return show_turn(await (await self._chat(chat, scope)).append(items, **options))

    async def flag(
        self, chat: str, turn: str, *, scope: str, items: Sequence[int] | None = None, **flags: Any
    ) -> TurnFlags:
        hidden = await (await self._chat(chat, scope)).flag(turn, items, **flags)
        return show_flags(turn, hidden)

    async def delete(self, chat: str, *, scope: str, purge: bool) -> Deletion:
        """Delete a chat; a deleted one can be named by its id."""
        chats, id = await self._chats(), await self._id(chat, scope)
        return view(Deletion, await chats.delete(id, purge=purge))

    async def restore(self, id: str) -> ChatInfo:
        chat = await (await self._chats()).restore(id)
        former_key = chat.former_conversation_key if chat.conversation_key is None else None
        return show_chat(RestoredChat, chat.as_opened, former_conversation_key=former_key)

    async def export(self, chat: str, *, scope: str, format: str) -> AsyncIterator[bytes]:
        id, chats = await self._id(chat, scope), await self._chats()
        if format == "markdown":
            async for part in chats.markdown(id):
                yield part.encode()
        else:
            async for line in chats.export(id):
                yield line

    async def export_all(self, *, scope: str | None) -> AsyncIterator[bytes]:
        async for line in (await self._chats(scope)).export_all():
            yield line

    async def import_lines(self, source: Source, *, scope: str | None) -> AsyncIterator[ImportReport]:
        async for report in (await self._chats(scope)).import_lines(source):
            yield report

    async def create_token(self, *, expires_at: int | None, **fields: Any) -> tuple[Token, bool]:
        """Create a token; also return whether it is the first one, after which callers without a token are
        refused."""
        tokens = Host(await self._ledger()).tokens
        is_first = not (await tokens.find(None)).any_tokens
        created, text = await tokens.create(**fields, expires_at=expires_at)
        return show_token(NewToken, created, token=text), is_first

    async def list_tokens(self, owner: str | None) -> Sequence[Token]:
        return await all_tokens(self._url, owner)

    async def revoke_token(self, token: str) -> Sequence[Token]:
        """Revoke a token, given by its id or its text, with all its descendants; itself comes first."""
        tokens = Host(await self._ledger()).tokens
        if is_token_text(token):
            # A leaked token may be known by its text only.
            found = (await tokens.find(digest_of(token))).token
            if found is None:
                raise TokenNotFound("No token has this text. Copy it completely.")
            token = found.id
        return tuple(map(partial(show_token, Token), await tokens.revoke(token)))

    async def create_share(
        self, *, expires_in: float | None = None, visitor_expires_in: float | None = VISIT, **fields: Any
    ) -> tuple[Share, bool]:
        """Create a link, with the fields of ShareBody; also return whether callers without a token are
        refused from now on."""
        host = Host(await self._ledger())
        is_first = not (await host.tokens.find(None)).any_tokens
        created, code = await host.shares.create(
            owner=self._owner, lifetime=expires_in, visitor_lifetime=visitor_expires_in, **fields
        )
        return show_new_share(created, code), is_first

    async def list_shares(self) -> Sequence[Share]:
        return await all_shares(self._url)

    async def revoke_share(self, share: str) -> Share:
        return show_share(Share, await Host(await self._ledger()).shares.revoke(share))

    async def _chat(self, name: str, scope: str) -> Chat:
        check_chat_name(name)
        id, conversation_key = (name, None) if name.startswith(ID_PREFIX) else (None, name)
        chats = await self._chats(scope)
        return await chats.conversation(id, conversation_key=conversation_key, create=False)

    async def _id(self, name: str, scope: str) -> str:
        """Return the id of a chat, even of a deleted one; or look it up by its conversation_key."""
        return name if name.startswith(ID_PREFIX) else (await self._chat(name, scope)).id


def _show_end(ended: Outcome | None, turn: str | None = None) -> StopAnswer:
    if ended is None:
        return StopAnswer(state=None)
    id = ended.id if turn is None else TurnId(turn)
    return StopAnswer(turn=id, state=ended.state, committed=ended.turn is not None, failure=ended.failure)
