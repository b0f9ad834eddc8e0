"""Where chats are: in a store that is opened here, or on a server. Commands see no difference."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from turnledger.cli.output.streams import print_message
from turnledger.errors import InvalidInput

if TYPE_CHECKING:
    from turnledger.api.access import Share, Token
    from turnledger.api.chats import ChatInfo, Deletion, Hit, Page
    from turnledger.api.turns import ChatContext, ChatHistory, Job, StopAnswer, Turn, TurnFlags
    from turnledger.model.transfer import ImportReport

SERVER, API_KEY = "TURNLEDGER_SERVER", "TURNLEDGER_API_KEY"
"""Environment variables: the URL of a server, and its token. Everybody on the machine could read a token on
the command line."""
ALLOW_HTTP = "TURNLEDGER_ALLOW_HTTP"
"""Environment variable: `1` to send the token over plain http to other machines, too."""
ID_PREFIX = "conv_"
"""Prefix of an id; no conversation_key has it."""

Result = TypeVar("Result")


def allows_http() -> bool:
    return os.environ.get(ALLOW_HTTP) == "1"


class Source(Protocol):
    """A file that can be read from the beginning, once or, if `seekable`, again."""

    def __iter__(self) -> Iterator[bytes]: ...
    def read(self, size: int, /) -> bytes: ...
    def seekable(self) -> bool: ...
    def seek(self, position: int, /) -> object: ...
    def tell(self) -> int: ...


class Backend(Protocol):
    """Operations on chats and tokens. A chat is named by its id, or by its conversation_key in `scope`."""

    is_new: bool
    """Whether this command created the store."""

    async def list(
        self,
        *,
        scope: str | None,
        tag: str | None,
        pinned: bool | None,
        archived: bool,
        deleted: bool,
        limit: int,
        cursor: str | None,
    ) -> Page[ChatInfo]: ...

    async def search(self, text: str, *, scope: str | None, limit: int, cursor: str | None) -> Page[Hit]: ...

    async def create(self, *, scope: str, **details: Any) -> ChatInfo:
        """Create a chat, or find the one with the conversation_key."""
        ...

    async def show(self, chat: str, *, scope: str, turns: int) -> ChatHistory: ...

    async def context(
        self, chat: str, *, scope: str, last: int | None, budget: int | None
    ) -> ChatContext: ...

    async def jobs(self, *, limit: int, cursor: str | None) -> Page[Job]:
        """Return background turns that wait or run."""
        ...

    async def stop(self, chat: str, *, scope: str, policy: str | None) -> StopAnswer:
        """Stop the running turn, and return how it ended, once that is final."""
        ...

    async def stop_turn(self, turn: str, *, policy: str | None) -> StopAnswer: ...

    async def stop_key(self, idempotency_key: str, *, policy: str | None) -> StopAnswer: ...

    async def update(self, chat: str, *, scope: str, **changes: Any) -> ChatInfo: ...

    async def append(self, chat: str, items: Sequence[Any], *, scope: str, **options: Any) -> Turn:
        """Add a turn that no model answers; once under the same `idempotency_key`."""
        ...

    async def flag(self, chat: str, turn: str, *, scope: str, **flags: Any) -> TurnFlags: ...

    async def delete(self, chat: str, *, scope: str, purge: bool) -> Deletion:
        """Delete a chat; a deleted one can be named by its id."""
        ...

    async def restore(self, id: str) -> ChatInfo: ...

    def export(self, chat: str, *, scope: str, format: str) -> AsyncIterator[bytes]: ...

    def export_all(self, *, scope: str | None) -> AsyncIterator[bytes]:
        """Yield all listed chats as lines of a file."""
        ...

    def import_lines(self, source: Source, *, scope: str | None) -> AsyncIterator[ImportReport]: ...

    async def create_token(self, *, expires_at: int | None, **fields: Any) -> tuple[Token, bool]:
        """Create a token; also return whether it is the first one, after which callers without a token are
        refused."""
        ...

    async def list_tokens(self, owner: str | None) -> Sequence[Token]: ...

    async def revoke_token(self, token: str) -> Sequence[Token]:
        """Revoke a token, given by its id or its text, with all its descendants; itself comes first."""
        ...

    async def create_share(self, **fields: Any) -> tuple[Share, bool]:
        """Create a link, with the fields of ShareBody; also return whether callers without a token are
        refused from now on."""
        ...

    async def list_shares(self) -> Sequence[Share]: ...

    async def revoke_share(self, share: str) -> Share: ...


class BackendSelector:
    """Selects the backend: by flags, else the server in the environment, else the store of `turnledger
    serve`. `creates_store`: create a missing store. `uses_settings`: chats last, and deleted ones can be
    restored, for as long as the server's settings say."""

    def __init__(
        self,
        *,
        server: str | None,
        store: str | None,
        config: Path | None,
        owner: str | None = None,
        creates_store: bool = False,
        uses_settings: bool = False,
    ) -> None:
        if server is not None and (store is not None or config is not None):
            raise InvalidInput("--server excludes --store and --config. Use one of them.")
        if server is None and store is None and config is None:
            server = os.environ.get(SERVER) or None
        if server is not None and owner is not None:
            raise InvalidInput(
                f"--owner works with --store only. A server uses the owner of the token in {API_KEY}."
            )
        self.server = server
        self.location = server or ""
        """The URL of the server, or of the store once it is open."""
        self._store, self._config, self._owner = store, config, owner
        self._creates_store, self._uses_settings = creates_store, uses_settings

    def open(self) -> AbstractAsyncContextManager[Backend]:
        """Open it. Raises InvalidInput, or StoreError if the store cannot be opened."""
        if self.server is not None:
            from turnledger.cli.backend.server import open_server

            return open_server(self.server, os.environ.get(API_KEY) or None)
        from turnledger.cli.backend.own_store import limits_of, store_url
        from turnledger.cli.backend.store import open_store

        self.location = url = store_url(self._store, self._config, create=self._creates_store)
        limits = limits_of(self._store, self._config) if self._uses_settings else None
        return open_store(url, self._owner, limits, create=self._creates_store)

    def run(self, work: Callable[[Backend], Coroutine[Any, Any, Result]]) -> Result:
        """Open the backend, run `work` on it, and return its result. Report a store that was created."""
        import asyncio

        async def open_and_run() -> tuple[Result, bool]:
            async with self.open() as backend:
                return await work(backend), backend.is_new

        result, is_new = asyncio.run(open_and_run())
        if is_new:
            print_message(
                f"Created the store {self.location}. If a server runs already, name its store with --store "
                "or --config, or run this as its user."
            )
        return result

    def last_used(self, *, scope: str | None, deleted: bool, limit: int) -> Sequence[ChatInfo]:
        """Return the chats used last, without joining the store as a process, or waiting long for a
        server."""
        import asyncio

        return asyncio.run(self._last_used(scope, deleted, limit))

    async def _last_used(self, scope: str | None, deleted: bool, limit: int) -> Sequence[ChatInfo]:
        if self.server is not None:
            from turnledger.cli.backend.server import open_server

            async with open_server(self.server, os.environ.get(API_KEY) or None, is_quick=True) as backend:
                page = await backend.list(scope=scope, deleted=deleted, limit=limit)
            return page.data
        from turnledger.cli.backend.own_store import store_url
        from turnledger.cli.backend.read_only_store import last_used

        url = store_url(self._store, self._config)
        return await last_used(url, owner=self._owner, scope=scope, deleted=deleted, limit=limit)


def check_chat_name(chat: str) -> None:
    """Raise InvalidInput for an empty name, as from an unset variable."""
    if not chat:
        raise InvalidInput("The chat name is empty. Give an id, as in conv_…, or a conversation_key.")
