# Generated from client/aio by `make twins`. Edit that.
"""The client, blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from turnledger.api.access import ModelUsage
from turnledger.api.chats import ChatInfo, Hit
from turnledger.api.events import Change
from turnledger.api.turns import Job
from turnledger.client.core.access import AccessCore
from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore
from turnledger.client.core.exchange import Pacing, Retries, Timeouts
from turnledger.client.core.transfer import Source
from turnledger.client.outbox.outbox import OutboxLike, open_outbox
from turnledger.client.shapes import Model, StopOutcome
from turnledger.client.sync import edge
from turnledger.client.sync.access import Shares, Tokens
from turnledger.client.sync.chat import Chat
from turnledger.client.sync.outbox import UnsentMessages
from turnledger.client.sync.pages import Pages
from turnledger.client.sync.wire import Stream, Wire
from turnledger.errors import InvalidInput
from turnledger.model.transfer import ImportReport

if TYPE_CHECKING:
    import httpx2


class Client:
    """A client of one Turnledger server. Any number of threads may share it; close it at the end,
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
        http: httpx2.Client | None = None,
        pacing: Pacing | None = None,
        allow_http: bool = False,
    ) -> None:
        """`http` is an httpx2.Client of your own, for proxies and certificates; you close it. `outbox`
        is the path of a file that remembers unfinished messages, even if the program crashes; see Outbox. An
        api_key is sent over plain http only to this machine; `allow_http` lifts that, for a private network.
        Raises InvalidInput."""
        from turnledger.client.core.transport import Address  # which loads httpx2

        pacing = pacing or Pacing()
        self._address = Address(base_url, api_key, timeouts or Timeouts(), allow_http=allow_http)
        self._file = open_outbox(outbox, self._address.base_url, api_key, open_now=edge.OPENS_FILES)
        record = None if self._file is None else self._file.carry_out
        self._wire = Wire(self._address, pacing, http, record)
        self._core = ClientCore(model, retries or Retries(), pacing, uses_outbox=outbox is not None)
        self.chats = Chats(self._wire, self._core)
        self.tokens = Tokens(self._wire, AccessCore(self._core))
        self.shares = Shares(self._wire, AccessCore(self._core))
        self.outbox = UnsentMessages(self._wire, self._core, self._file)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._address.base_url!r})"

    def __enter__(self) -> Self:
        if self._file is not None:
            try:
                edge.run_blocking(self._file.check)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Turns that were requested continue on the server."""
        self._wire.close()
        if self._file is not None:
            edge.run_blocking(self._file.close)

    def events(self, *, after: str | None = None) -> Stream[Change]:
        """Follow changes to the caller's chats until closed. Reconnects by itself, and continues after the
        last change. `after` is the `position` of a change, or `as_of` of a page of chats. After a `gap`, read
        everything again."""
        return Stream[Change](self._wire, self._core.follow_feed(after).steps())._begin()

    def export(self, scope: str | None = None) -> Stream[bytes]:
        """Export all listed chats as one file, line by line, the least recently used first. Raises
        ServerUnavailable if it breaks off: then it is incomplete."""
        return Stream[bytes](self._wire, self._core.export(scope))._begin()

    def import_chats(self, source: Source, *, scope: str | None = None) -> tuple[ImportReport, ...]:
        """Import chats from an export, and return what was done with each line. Existing chats are never
        changed. Repeated after a lost response if the source can be read again: bytes, a list, a file."""
        return self._wire.run(self._core.import_chats(source, scope))

    def jobs(
        self, *, chat: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Pages[Job]:
        """Return the background turns that wait or run, of one chat or of all, the oldest first; see
        Chat.enqueue."""
        return Pages(self._wire.run, partial(self._core.jobs_page, chat=chat), limit, cursor)

    def usage(self) -> Pages[ModelUsage]:
        """Return turns, tokens and bytes by owner and model; requires a token with `admin`. Each page counts
        up to 1,000 turns: add up the entries of an owner and model."""
        return Pages(self._wire.run, self._core.usage_page)

    def models(self) -> tuple[Model, ...]:
        """Return the models that the caller may use."""
        return self._wire.run(self._core.models())


class Chats:
    """The caller's chats."""

    def __init__(self, wire: Wire, core: ClientCore) -> None:
        self._wire = wire
        self._core = core

    def create(
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
    ) -> Chat:
        """Create a chat before its first turn, or find the one with the conversation_key. Repeating it under
        the same idempotency_key creates it once. No list, search or change shows an internal one, which is
        for programs. It expires after that many seconds without use; `reset` is
        the policy of the conversation_key: `never`, `idle 1800`, `daily 4 Europe/Berlin`."""
        info = self._wire.run(
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
        return Chat(self._wire, ChatCore.from_info(self._core, info), self._core)

    def open(
        self, id: str | None = None, *, conversation_key: str | None = None, scope: str | None = None
    ) -> Chat:
        """Return a chat by id or conversation_key, without a request. A chat opened by its conversation_key
        is created with its first turn, if necessary. Raises InvalidId."""
        return Chat(self._wire, ChatCore.open(self._core, id, conversation_key, scope), self._core)

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
    ) -> Pages[ChatInfo]:
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
            return Pages(self._wire.run, read_page, limit, cursor)
        if deleted:
            raise InvalidInput("Deleted chats cannot be searched. Omit q or deleted.")
        read_page = partial(
            self._core.search_chats_page, q=q, scope=scope, tag=tag, archived=archived, pinned=pinned
        )
        return Pages(self._wire.run, read_page, limit, cursor)

    def search(
        self, q: str, *, scope: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Pages[Hit]:
        """Find chats by words of their titles and messages, one hit per chat."""
        read_page = partial(self._core.search_page, q=q, scope=scope)
        return Pages(self._wire.run, read_page, limit, cursor)

    def stop(self, idempotency_key: str, *, policy: str | None = None) -> StopOutcome | None:
        """Stop the turn that was requested under an idempotency_key, before its id is known. Return the final
        outcome, whichever won; None if no request with this key has arrived."""
        return self._wire.run(self._core.stop(idempotency_key, policy))

    def reset(self, conversation_key: str, *, replaces: str, scope: str | None = None) -> Chat:
        """Give a conversation_key to a new chat, if it still names the replaced one, which keeps its id."""
        info = self._wire.run(self._core.reset(conversation_key, replaces=replaces, scope=scope))
        return Chat(self._wire, ChatCore.from_info(self._core, info), self._core)
