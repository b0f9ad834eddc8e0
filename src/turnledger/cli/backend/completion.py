"""Shell completion of chat names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from turnledger.api.chats import ChatInfo

MAX_CHATS = 100
"""Chats to complete from: the last used."""
TITLE_LENGTH = 40
"""Characters of a title beside an id."""

# Some shells evaluate completions, and models write titles. So titles lose all characters with a meaning to a
# shell, and conversation_keys that have one are not offered.
_NOT_SAFE = re.compile(r"[^\w .,!?-]")
_SAFE_NAME = re.compile(r"[\w.@%+/][\w.@%+/-]*")


def complete_chat(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids and conversation_keys with this prefix, with the titles of their chats; none if none can be
    read."""
    return _complete(ctx, incomplete, deleted=False)


def complete_deleted_id(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    return _complete(ctx, incomplete, deleted=True)


def _complete(ctx: typer.Context, incomplete: str, *, deleted: bool) -> list[tuple[str, str]]:
    present = ctx.params.get("chat") or ctx.params.get("chats") or ()
    # The shell waits: return an answer whatever is wrong.
    with suppress(Exception):
        return [
            (name, title)
            for chat in _last_used(ctx.params, deleted)
            for name, title in _names(chat, keys=not deleted)
            if name.startswith(incomplete) and name not in present
        ]
    return []


def _last_used(params: dict[str, Any], deleted: bool) -> Sequence[ChatInfo]:
    from turnledger.cli.backend.backend import BackendSelector

    selector = BackendSelector(
        server=params.get("server"),
        store=params.get("store"),
        config=params.get("config"),
        owner=params.get("owner"),
    )
    return selector.last_used(scope=params.get("scope") or None, deleted=deleted, limit=MAX_CHATS)


def _names(chat: ChatInfo, *, keys: bool) -> list[tuple[str, str]]:
    title = " ".join(_NOT_SAFE.sub(" ", chat.title or chat.preview).split())[:TITLE_LENGTH].strip() or "-"
    names: list[tuple[str, str]] = [(chat.id, title)]
    if keys and chat.conversation_key is not None and _SAFE_NAME.fullmatch(chat.conversation_key):
        names.append((chat.conversation_key, title))
    return names
