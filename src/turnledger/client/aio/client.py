"""The client, awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from turnledger.api.access import ModelUsage
from turnledger.api.chats import ChatInfo, Hit
from turnledger.api.events import Change
from turnledger.api.turns import Job
from turnledger.client.aio import edge
from turnledger.client.aio.access import AsyncShares, AsyncTokens
from turnledger.client.aio.chat import AsyncChat
from turnledger.client.aio.outbox import AsyncUnsentMessages
from turnledger.client.aio.pages import AsyncPages
from turnledger.client.aio.wire import AsyncStream, AsyncWire
from turnledger.client.core.access import AccessCore
from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore
from turnledger.client.core.exchange import Pacing, Retries, Timeouts
from turnledger.client.core.transfer import Source
from turnledger.client.outbox.outbox import OutboxLike, open_outbox
from turnledger.client.shapes import Model, StopOutcome
from turnledger.errors import InvalidInput
from turnledger.model.transfer import ImportReport

if TYPE_CHECKING:
    import httpx2


class AsyncClient:
    """A client of one Turnledger server. Any number of tasks of one loop may share it; close it at the end,
    or use it as a context manager."""

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8383",
        api_key: str | None = None,
        *,
        model: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        outbox: OutboxLike = None,
        http: httpx2.AsyncClient | None = None,
        pacing: Pacing | None = None,
        allow_http: bool = False,
    ) -> None:
        """`http` is an httpx2.AsyncClient of your own, for proxies and certificates; you close it. `outbox`
        is the path of a file that remembers unfinished messages, even if the program crashes; see Outbox. An
        api_key is sent over plain http only to this machine; `allow_http` lifts that, for a private network.
        Raises InvalidInput."""
        from turnledger.client.core.transport import Address  # which loads httpx2

        pacing = pacing or Pacing()
        self._address = Address(base_url, api_key, timeouts or Timeouts(), allow_http=allow_http)
        self._file = open_outbox(outbox, self._address.base_url, api_key, open_now=edge.OPENS_FILES)
        record = None if self._file is None else self._file.carry_out
        self._wire = AsyncWire(self._address, pacing, http, record)
        self._core = ClientCore(model, retries or Retries(), pacing, uses_outbox=outbox is not None)
        self.chats = AsyncChats(self._wire, self._core)
        self.tokens = AsyncTokens(self._wire, AccessCore(self._core))
        self.shares = AsyncShares(self._wire, AccessCore(self._core))
        self.outbox = AsyncUnsentMessages(self._wire, self._core, self._file)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._address.base_url!r})"

    async def __aenter__(self) -> Self:
        if self._file is not None:
            try:
                await edge.run_blocking(self._file.check)
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Turns that were requested continue on the server."""
        await self._wire.close()
        if self._file is not None:
            await edge.run_blocking(self._file.close)

    async def events(self, *, after: str | None = None) -> AsyncStream[Change]:
        """Follow changes to the caller's chats until closed. Reconnects by itself, and continues after the
        last change. `after` is the `position` of a change, or `as_of` of a page of chats. After a `gap`, read
        everything again."""
        return await AsyncStream[Change](self._wire, self._core.follow_feed(after).steps())._begin()

    async def export(self, scope: str | None = None) -> AsyncStream[bytes]:
        """Export all listed chats as one file, line by line, the least recently used first. Raises
        ServerUnavailable if it breaks off: then it is incomplete."""
        return await AsyncStream[bytes](self._wire, self._core.export(scope))._begin()

    async def import_chats(self, source: Source, *, scope: str | None = None) -> tuple[ImportReport, ...]:
        """Import chats from an export, and return what was done with each line. Existing chats are never
        changed. Repeated after a lost response if the source can be read again: bytes, a list, a file."""
        return await self._wire.run(self._core.import_chats(source, scope))

    def jobs(
        self, *, chat: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> AsyncPages[Job]:
        """Return the background turns that wait or run, of one chat or of all, the oldest first; see
        Chat.enqueue."""
        return AsyncPages(self._wire.run, partial(self._core.jobs_page, chat=chat), limit, cursor)

    def usage(self) -> AsyncPages[ModelUsage]:
        """Return turns, tokens and bytes by owner and model; requires a token with `admin`. Each page counts
        up to 1,000 turns: add up the entries of an owner and model."""
        return AsyncPages(self._wire.run, self._core.usage_page)

    async def models(self) -> tuple[Model, ...]:
        """Return the models that the caller may use."""
        return await self._wire.run(self._core.models())


class AsyncChats:
    """The caller's chats."""

    def __init__(self, wire: AsyncWire, core: ClientCore) -> None:
        self._wire = wire
        self._core = core

    async def create(
        self,
        *,
        conversation_key: str | None = None,
        scope: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] | None = None,
        internal: bool = False,
        expires_after: float | None = None,
        reset: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncChat:
        """Create a chat before its first turn, or find the one with the conversation_key. Repeating it under
        the same idempotency_key creates it once. No list, search or change shows an internal one, which is
        for programs. It expires after that many seconds without use; `reset` is
        the policy of the conversation_key: `never`, `idle 1800`, `daily 4 Europe/Berlin`."""
        info = await self._wire.run(
            self._core.create(
                conversation_key=conversation_key,
                scope=scope,
                title=title,
                metadata=metadata,
                tags=tags,
                internal=internal or None,
                expires_after=expires_after,
                reset=reset,
                idempotency_key=idempotency_key,
            )
        )
        return AsyncChat(self._wire, ChatCore.from_info(self._core, info), self._core)

    def open(
        self, id: str | None = None, *, conversation_key: str | None = None, scope: str | None = None
    ) -> AsyncChat:
        """Return a chat by id or conversation_key, without a request. A chat opened by its conversation_key
        is created with its first turn, if necessary. Raises InvalidId."""
        return AsyncChat(self._wire, ChatCore.open(self._core, id, conversation_key, scope), self._core)

    def list(
        self,
        *,
        q: str | None = None,
        scope: str | None = None,
        tag: str | None = None,
        archived: bool | None = False,
        pinned: bool | None = None,
        deleted: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> AsyncPages[ChatInfo]:
        """List chats, most recently used first; with `q`, those that a search finds. A filter of None matches
        all. `cursor` is `next` of a page, to continue after it."""
        if q is None:
            read_page = partial(
                self._core.list_page,
                scope=scope,
                tag=tag,
                archived=archived,
                pinned=pinned,
                deleted=deleted,
            )
            return AsyncPages(self._wire.run, read_page, limit, cursor)
        if deleted:
            raise InvalidInput("Deleted chats cannot be searched. Omit q or deleted.")
        read_page = partial(
            self._core.search_chats_page, q=q, scope=scope, tag=tag, archived=archived, pinned=pinned
        )
        return AsyncPages(self._wire.run, read_page, limit, cursor)

    def search(
        self, q: str, *, scope: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> AsyncPages[Hit]:
        """Find chats by words of their titles and messages, one hit per chat."""
        read_page = partial(self._core.search_page, q=q, scope=scope)
        return AsyncPages(self._wire.run, read_page, limit, cursor)

    async def stop(self, idempotency_key: str, *, policy: str | None = None) -> StopOutcome | None:
        """Stop the turn that was requested under an idempotency_key, before its id is known. Return the final
        outcome, whichever won; None if no request with this key has arrived."""
        return await self._wire.run(self._core.stop(idempotency_key, policy))

    async def reset(self, conversation_key: str, *, replaces: str, scope: str | None = None) -> AsyncChat:
        """Give a conversation_key to a new chat, if it still names the replaced one, which keeps its id."""
        info = await self._wire.run(self._core.reset(conversation_key, replaces=replaces, scope=scope))
        return AsyncChat(self._wire, ChatCore.from_info(self._core, info), self._core)
