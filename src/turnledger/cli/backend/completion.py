"""Shell completion of chat names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from turnledger.api.chats import ChatInfo

MOST = 100
"""Chats to complete from: the last used."""
WORDS = 40
"""Characters of a title beside an id."""

# Some shells evaluate completions, and models write titles. So titles lose all characters with a meaning to a
# shell, and conversation_keys that have one are not offered.
_NOT_SAFE = re.compile(r"[^\w .,!?-]")
_SAFE_NAME = re.compile(r"[\w.@%+/][\w.@%+/-]*")


def chats_beginning_with(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids and conversation_keys with this prefix, with the titles of their chats; none if none can be
    read."""
    return _offered(ctx, incomplete, deleted=False)


def ids_of_deleted(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    return _offered(ctx, incomplete, deleted=True)


def _offered(ctx: typer.Context, incomplete: str, *, deleted: bool) -> list[tuple[str, str]]:
    given = ctx.params.get("chat") or ctx.params.get("chats") or ()
    # The shell waits: return an answer whatever is wrong.
    with suppress(Exception):
        return [
            (name, words)
            for chat in _listed(ctx.params, deleted)
            for name, words in _names(chat, keys=not deleted)
            if name.startswith(incomplete) and name not in given
        ]
    return []


def _listed(params: dict[str, Any], deleted: bool) -> Sequence[ChatInfo]:
    from turnledger.cli.backend.backend import Where

    where = Where(
        server=params.get("server"),
        store=params.get("store"),
        config=params.get("config"),
        owner=params.get("owner"),
    )
    return where.last_used(scope=params.get("scope") or None, deleted=deleted, limit=MOST)


def _names(chat: ChatInfo, *, keys: bool) -> list[tuple[str, str]]:
    words = " ".join(_NOT_SAFE.sub(" ", chat.title or chat.preview).split())[:WORDS].strip() or "-"
    named: list[tuple[str, str]] = [(chat.id, words)]
    if keys and chat.conversation_key is not None and _SAFE_NAME.fullmatch(chat.conversation_key):
        named.append((chat.conversation_key, words))
    return named
