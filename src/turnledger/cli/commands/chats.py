"""`turnledger chats`: list, find, read and change chats. Export and import are in `transfer`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.backend.backend import Backend, Where
from turnledger.cli.failures import NOT_DONE
from turnledger.cli.options import (
    PAGE,
    AsJson,
    Config,
    Cursor,
    Deleted,
    Limit,
    Named,
    Only,
    Owner,
    Scope,
    Server,
    Several,
    Store,
    date_of,
)
from turnledger.cli.output.progress import Progress
from turnledger.cli.output.streams import is_terminal, json_of, say, tell
from turnledger.cli.output.table import GAP, print_records
from turnledger.errors import ConversationUnavailable, InvalidInput
from turnledger.model.text.plain import plain

if TYPE_CHECKING:
    from turnledger.api.chats import ChatInfo, Hit
    from turnledger.api.chats import Deleted as DeletedChat
    from turnledger.cli.output.chat_text import TextLine

Off = Annotated[bool, typer.Option("--off", help="No more.")]

chats = typer.Typer(
    help="List, find, read and change chats; write them to files, and read those.",
    no_args_is_help=True,
)


@chats.command("list")
def list_(
    owner: Owner = None,
    scope: Only = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only those that are pinned.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Only those that are archived.")] = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="Only those that can be restored.")] = False,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List chats, the last used first."""
    where = Where(server=server, store=store, config=config, owner=owner)
    page = where.do(
        lambda place: place.list(
            scope=scope,
            tag=tag,
            pinned=pinned or None,
            archived=archived,
            deleted=deleted,
            limit=limit,
            cursor=cursor,
        )
    )
    if as_json:
        typer.echo(json_of(page))
        return
    from turnledger.cli.output.chat_text import COLUMNS, record_of

    print_records(COLUMNS, list(map(record_of, page.data)))
    _print_cursor(page.data, page.next, "There are no such chats here.")


@chats.command()
def search(
    text: Annotated[list[str], typer.Argument(metavar="WORD…", help="What is sought; a phrase in quotes.")],
    owner: Owner = None,
    scope: Only = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find chats by the words of their titles and messages, the newest first."""
    where = Where(server=server, store=store, config=config, owner=owner)
    page = where.do(lambda place: place.search(" ".join(text), scope=scope, limit=limit, cursor=cursor))
    if as_json:
        typer.echo(json_of(page))
        return
    _print_hits(page.data)
    _print_cursor(page.data, page.next, "Nothing was found.")
    if not page.complete:
        say("The newest turns cannot be found yet. Search again in a moment.")


@chats.command()
def show(
    chat: Named,
    turns: Annotated[int, typer.Option(min=1, help="So many of its last turns.")] = PAGE,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print a chat, as its owner sees it."""
    where = Where(server=server, store=store, config=config, owner=owner)
    shown = where.do(lambda place: place.show(chat, scope=scope, turns=turns))
    if as_json:
        typer.echo(json_of(shown))
        return
    from turnledger.cli.output.chat_text import lines_of

    _print_lines(lines_of(shown))


def _print_lines(lines: Iterable[TextLine]) -> None:
    if not is_terminal():
        for line in lines:
            typer.echo(str(line))
        return
    from rich.text import Text

    from turnledger.cli.output.terminal import open_screen

    screen = open_screen()
    for line in lines:
        screen.text(Text(line.text, line.style), line.indent)


def _print_hits(hits: Iterable[Hit]) -> None:
    from turnledger.cli.output.chat_text import TextLine, pieces_of, title_of

    for hit in hits:
        title, pieces = f"{hit.chat.id}  {title_of(hit.chat) or '-'}", pieces_of(hit)
        if is_terminal():
            _print_marked(title, pieces)
        else:
            _print_lines([TextLine(title), TextLine("".join(piece for piece, _ in pieces), 2)])


def _print_marked(title: str, pieces: Iterable[tuple[str, bool]]) -> None:
    from rich.text import Text

    from turnledger.cli.output.terminal import open_screen

    screen = open_screen()
    screen.text(Text(title, "bold"))
    screen.text(Text.assemble(*((piece, "bold yellow" if sought else "") for piece, sought in pieces)), GAP)


def _print_cursor(found: tuple[object, ...], cursor: str | None, nothing: str) -> None:
    if not found:
        say(nothing)
    if cursor is not None:
        say(f"There are more: --cursor {cursor}")


@chats.command()
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
    """Set the title of a chat; only a person can change it again."""
    where = Where(server=server, store=store, config=config, owner=owner)
    found = where.do(lambda place: place.update(chat, scope=scope, title=title))
    if as_json:
        typer.echo(json_of(found))
    else:
        tell(f"{found.id} is called {found.title!r}.")


@chats.command()
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
    """Pin chats, so that `list --pinned` shows them; --off unpins them."""
    where = Where(server=server, store=store, config=config, owner=owner)
    result = "is not pinned any more" if off else "is pinned"
    _update_each(where, chats, scope, result, as_json=as_json, pinned=not off)


@chats.command()
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
    """Archive chats, so that only `list --archived` shows them; --off unarchives them."""
    where = Where(server=server, store=store, config=config, owner=owner)
    result = "is not archived any more" if off else "is archived"
    _update_each(where, chats, scope, result, as_json=as_json, archived=not off)


@chats.command()
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
    """Delete chats, and end the turns running there."""

    async def one(place: Backend, name: str) -> str:
        deleted = await place.delete(name, scope=scope, purge=purge)
        return json_of(deleted) if as_json else _deleted(deleted)

    where = Where(server=server, store=store, config=config, owner=owner, deletes=True)
    _do_each(where, chats, one, "Deleting")


@chats.command()
def restore(
    chats: Deleted,
    owner: Owner = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Restore deleted chats."""

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
    note = "" if lost is None else f" Its conversation_key {lost!r} now names another chat."
    return f"Restored {chat.id}.{note}"


def _update_each(
    where: Where, names: Sequence[str], scope: str, result: str, *, as_json: bool, **changes: Any
) -> None:
    async def one(place: Backend, name: str) -> str:
        chat = await place.update(name, scope=scope, **changes)
        return json_of(chat) if as_json else f"{chat.id} {result}."

    _do_each(where, names, one, "Changing")


def _do_each(
    where: Where, names: Sequence[str], do: Callable[[Backend, str], Awaitable[str]], doing: str
) -> None:
    """Process each of these chats; print the results, and the errors of the others."""

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
    finally:  # also after another error
        for problem in problems:
            say(problem)
    if problems:
        raise typer.Exit(NOT_DONE)
