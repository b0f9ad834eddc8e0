"""`turnledger chats rename`, `pin`, `archive`, `delete` and `restore`: what changes chats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.backend.backend import Backend, Where
from turnledger.cli.failures import NOT_DONE
from turnledger.cli.options import (
    AsJson,
    Config,
    Deleted,
    Named,
    Owner,
    Scope,
    Server,
    Several,
    Store,
    date_of,
)
from turnledger.cli.output.progress import Progress
from turnledger.cli.output.streams import json_of, say, tell
from turnledger.errors import ConversationUnavailable, InvalidInput
from turnledger.model.text.plain import plain

if TYPE_CHECKING:
    from turnledger.api.chats import ChatInfo
    from turnledger.api.chats import Deleted as DeletedChat

Off = Annotated[bool, typer.Option("--off", help="No more.")]


def rename(
    chat: Named,
    title: Annotated[str, typer.Argument(help="What it is called from now on.")],
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Give a chat a name, which nothing but a person changes."""
    where = Where(server=server, store=store, config=config, owner=owner)
    found = where.do(lambda place: place.update(chat, scope=scope, title=title))
    if as_json:
        typer.echo(json_of(found))
    else:
        tell(f"{found.id} is called {found.title!r}.")


def pin(
    chats: Several,
    off: Off = False,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Pin chats, so that `list --pinned` shows them; with --off no more."""
    told = "is not pinned any more" if off else "is pinned"
    _update_each(
        Where(server=server, store=store, config=config, owner=owner),
        chats,
        scope,
        {"pinned": not off},
        json_of if as_json else lambda chat: f"{chat.id} {told}.",
    )


def archive(
    chats: Several,
    off: Off = False,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Archive chats, so that only `list --archived` shows them; with --off, `list` does again."""
    told = "is not archived any more" if off else "is archived"
    _update_each(
        Where(server=server, store=store, config=config, owner=owner),
        chats,
        scope,
        {"archived": not off},
        json_of if as_json else lambda chat: f"{chat.id} {told}.",
    )


def delete(
    chats: Several,
    purge: Annotated[
        bool, typer.Option("--purge", help="For good, also what is deleted already. Else it can be restored.")
    ] = False,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete chats. What runs in one ends with it."""

    async def one(place: Backend, name: str) -> str:
        deleted = await place.delete(name, scope=scope, purge=purge)
        return json_of(deleted) if as_json else _deleted(deleted)

    where = Where(server=server, store=store, config=config, owner=owner, deletes=True)
    _do_each(where, chats, one, "Deleting")


def restore(
    chats: Deleted,
    owner: Owner = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Bring deleted chats back."""

    async def one(place: Backend, name: str) -> str:
        chat = await place.restore(name)
        return json_of(chat) if as_json else _restored(chat)

    _do_each(Where(server=server, store=store, config=config, owner=owner), chats, one, "Restoring")


def _deleted(chat: DeletedChat) -> str:
    if chat.purge_at is None:
        return f"Deleted {chat.id} for good."
    return f"Deleted {chat.id}. It can be restored until {date_of(chat.purge_at)} UTC."


def _restored(chat: ChatInfo) -> str:
    lost = chat.former_conversation_key
    told = "" if lost is None else f" Its conversation_key {lost!r} is another chat's by now."
    return f"Restored {chat.id}.{told}"


def _update_each(
    where: Where,
    names: Sequence[str],
    scope: str,
    changes: dict[str, Any],
    told: Callable[[ChatInfo], str],
) -> None:
    async def one(place: Backend, name: str) -> str:
        return told(await place.update(name, scope=scope, **changes))

    _do_each(where, names, one, "Changing")


def _do_each(
    where: Where, names: Sequence[str], do: Callable[[Backend, str], Awaitable[str]], doing: str
) -> None:
    """Do something with each of these chats, and tell what was done, and what is wrong with the others."""

    problems: list[str] = []

    async def work(place: Backend) -> None:
        with Progress(doing, len(names)) as progress:
            for name in names:
                try:
                    progress.tell(plain(await do(place, name)))
                except (ConversationUnavailable, InvalidInput) as problem:
                    problems.append(f"{problem.code}: {name}: {problem}")
                progress.advance(1)

    try:
        where.do(work)
    finally:  # also where something else has ended it
        for problem in problems:
            say(problem)
    if problems:
        raise typer.Exit(NOT_DONE)
