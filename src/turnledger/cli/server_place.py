"""Chats and tokens of a server, which is asked for them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from turnledger.cli.place import Place
from turnledger.errors import InvalidInput


def at_server(url: str, api_key: str | None) -> AbstractAsyncContextManager[Place]:
    """The server at this URL."""
    raise InvalidInput("Commands cannot ask a server yet.")
