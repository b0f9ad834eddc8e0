"""`turnledger chats`: list, find and read them. What changes them is in `changing`, files in `transfer`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from turnledger.cli.backend.backend import Where
from turnledger.cli.options import (
    PAGE,
    AsJson,
    Config,
    Cursor,
    Limit,
    Named,
    Only,
    Owner,
    Scope,
    Server,
    Store,
)
from turnledger.cli.output.streams import is_terminal, json_of, say
from turnledger.cli.output.table import GAP, print_records

if TYPE_CHECKING:
    from turnledger.api.chats import Hit
    from turnledger.cli.output.chat_text import TextLine

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
    _go_on(page.data, page.next, "There are no such chats here.")


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
    _go_on(page.data, page.next, "Nothing was found.")
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
    """Print what was said in a chat, as its owner sees it."""
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


def _go_on(found: tuple[object, ...], cursor: str | None, nothing: str) -> None:
    if not found:
        say(nothing)
    if cursor is not None:
        say(f"There are more: --cursor {cursor}")
