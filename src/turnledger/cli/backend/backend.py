"""Where chats are: in a store that is opened here, or on a server. Both have the same methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from turnledger.cli.output.streams import print_message
from turnledger.errors import InvalidInput

if TYPE_CHECKING:
    from turnledger.api.chats import ChatInfo
    from turnledger.cli.backend.server import ServerBackend
    from turnledger.cli.backend.store import StoreBackend

    Backend: TypeAlias = StoreBackend | ServerBackend

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
