"""`turnledger chats`: list, find, read and change chats. Export and import are in `transfer`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.backend.backend import Backend, BackendSelector
from turnledger.cli.backend.completion import complete_chat
from turnledger.cli.commands.batch import run_each
from turnledger.cli.options import (
    PAGE,
    AsJson,
    ChatName,
    ChatNames,
    Config,
    Cursor,
    DeletedIds,
    Limit,
    Owner,
    Scope,
    ScopeFilter,
    Server,
    Store,
    date_of,
    seconds_of,
)
from turnledger.cli.output.streams import is_terminal, json_of, print_message, print_result
from turnledger.cli.output.table import GAP, print_records
from turnledger.errors import InvalidInput

if TYPE_CHECKING:
    from turnledger.api.chats import ChatInfo, Deletion, Hit
    from turnledger.api.turns import StopAnswer
    from turnledger.cli.output.chat_text import TextLine

NO_CHATS = "No chats of this owner found."
ITEMS_BYTES = 16 * 1024 * 1024
"""Most bytes of the items of a turn."""
Off = Annotated[bool, typer.Option("--off", help="Undo it.")]

chats = typer.Typer(
    help="List, find, read and change chats; export and import them.",
    no_args_is_help=True,
)


@chats.command()
def create(
    conversation_key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Its conversation_key, unique in its scope.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its title. Default: its first words.")] = None,
    expires_after: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Time without use after which it expires, as in 12h or 30d."),
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="For programs: no list, search or change shows it.")
    ] = False,
    reset: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY", help='When the key moves to a fresh chat: never, "idle 1800" or "daily 4 UTC".'
        ),
    ] = None,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a chat, or find the one with the key, and print its id.

    Without --expires-after and --reset, the settings of the server apply.
    """
    seconds = None if expires_after is None else seconds_of("--expires-after", expires_after)
    selector = BackendSelector(server=server, store=store, config=config, owner=owner, uses_settings=True)
    chat = selector.run(
        lambda backend: backend.create(
            scope=scope,
            conversation_key=conversation_key,
            title=title,
            internal=internal,
            expires_after=seconds,
            reset=reset,
        )
    )
    typer.echo(json_of(chat) if as_json else chat.id)


@chats.command("list")
def list_(
    owner: Owner = None,
    scope: ScopeFilter = None,
    tag: Annotated[str | None, typer.Option(help="Only chats with this tag.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned chats.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Only archived chats.")] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Only deleted chats that can be restored.")
    ] = False,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List chats, most recently used first."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    page = selector.run(
        lambda backend: backend.list(
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
    _print_cursor(page.data, page.next, NO_CHATS)


@chats.command()
def search(
    text: Annotated[list[str], typer.Argument(metavar="WORD…", help="Words to search for; quote a phrase.")],
    owner: Owner = None,
    scope: ScopeFilter = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find chats by the words of their titles and messages, newest first."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    page = selector.run(
        lambda backend: backend.search(" ".join(text), scope=scope, limit=limit, cursor=cursor)
    )
    if as_json:
        typer.echo(json_of(page))
        return
    _print_hits(page.data)
    _print_cursor(page.data, page.next, NO_CHATS)
    if not page.complete:
        print_message("The newest turns are not indexed yet. Search again in a moment.")


@chats.command()
def show(
    chat: ChatName,
    turns: Annotated[int, typer.Option(min=1, help="Number of turns, from the end.")] = PAGE,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print a chat, as its owner sees it."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    history = selector.run(lambda backend: backend.show(chat, scope=scope, turns=turns))
    if as_json:
        typer.echo(json_of(history))
        return
    from turnledger.cli.output.chat_text import lines_of

    _print_lines(lines_of(history))


@chats.command()
def context(
    chat: ChatName,
    last: Annotated[int | None, typer.Option(min=0, help="Only this many of the last turns.")] = None,
    budget: Annotated[
        int | None, typer.Option(min=0, help="As many of the last turns as fit into these tokens.")
    ] = None,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print what a model would be shown of a chat now, and its estimated tokens."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    shown = selector.run(lambda backend: backend.context(chat, scope=scope, last=last, budget=budget))
    if as_json:
        typer.echo(json_of(shown))
        return
    from turnledger.cli.output.chat_text import lines_of_context

    _print_lines(lines_of_context(shown))


@chats.command()
def jobs(
    owner: Owner = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the background turns that wait or run, oldest first."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    page = selector.run(lambda backend: backend.jobs(limit=limit, cursor=cursor))
    if as_json:
        typer.echo(json_of(page))
        return
    from turnledger.cli.output.chat_text import JOB_COLUMNS, record_of_job

    print_records(JOB_COLUMNS, list(map(record_of_job, page.data)))
    _print_cursor(page.data, page.next, "No background turns wait or run.")


@chats.command()
def stop(
    chat: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHAT]", help="A chat, to stop its running turn.", autocompletion=complete_chat
        ),
    ] = None,
    turn: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The turn, running or queued, as in turn_…."),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="The idempotency_key with which it was requested."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="keep or discard its answer so far. Default: as it was requested.")
    ] = None,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Stop a turn, in any process, and print how it ended."""

    async def stop_it(backend: Backend) -> StopAnswer:
        if chat is not None:
            return await backend.stop(chat, scope=scope, policy=policy)
        if turn is not None:
            return await backend.stop_turn(turn, policy=policy)
        assert idempotency_key is not None  # noqa: S101 - one of the three is named
        return await backend.stop_key(idempotency_key, policy=policy)

    if [chat, turn, idempotency_key].count(None) != 2:
        raise InvalidInput("Name one of a chat, whose running turn is stopped, --turn and --key.")
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    ended = selector.run(stop_it)
    if as_json:
        typer.echo(json_of(ended))
    elif ended.state is None:
        print_message("No such turn waits or runs.")
    else:
        print_result(f"{ended.turn} is {ended.state}.")


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
    screen.text(
        Text.assemble(*((piece, "bold yellow" if is_match else "") for piece, is_match in pieces)), GAP
    )


def _print_cursor(found: tuple[object, ...], cursor: str | None, empty_message: str) -> None:
    if not found:
        print_message(empty_message)
    if cursor is not None:
        print_message(f"More: --cursor {cursor}")


@chats.command()
def append(
    chat: ChatName,
    text: Annotated[
        str | None,
        typer.Argument(
            help="The message of the user. Default: items on standard input, a JSON object per line."
        ),
    ] = None,
    answer: Annotated[str | None, typer.Option(help="The answer of the assistant.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Add the turn once, however often this is run.")
    ] = None,
    no_interaction: Annotated[
        bool, typer.Option("--no-interaction", help="Postpone neither the expiry of the chat nor a reset.")
    ] = False,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Add a turn that no model answers, such as a message from another system."""
    items: list[Any] = [] if text is None else [text]
    items += [] if answer is None else [{"role": "assistant", "content": answer}]
    items = items or _read_items()
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    turn = selector.run(
        lambda backend: backend.append(
            chat, items, scope=scope, idempotency_key=idempotency_key, interaction=not no_interaction
        )
    )
    if as_json:
        typer.echo(json_of(turn))
    else:
        print_result(f"Added {turn.id} as turn {turn.number}.")


def _read_items() -> list[Any]:
    """Read items from standard input. Raises InvalidInput."""
    if sys.stdin is None or is_terminal(sys.stdin):
        raise InvalidInput("Nothing to append. Give a text, --answer, or items on standard input.")
    text = sys.stdin.buffer.read(ITEMS_BYTES + 1)
    if len(text) > ITEMS_BYTES:
        raise InvalidInput(f"Standard input has more than {ITEMS_BYTES} bytes. Append fewer items at once.")
    return [_item_of(line, number) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _item_of(line: bytes, number: int) -> dict[str, Any]:
    import json

    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        item = None
    if not isinstance(item, dict):
        raise InvalidInput(f"Line {number} of standard input is not a JSON object. Write one item per line.")
    return item


@chats.command()
def rename(
    chat: ChatName,
    title: Annotated[str, typer.Argument(help="The new title.")],
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Set the title of a chat; only a person can change it again."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    found = selector.run(lambda backend: backend.update(chat, scope=scope, title=title))
    if as_json:
        typer.echo(json_of(found))
    else:
        print_result(f"Renamed {found.id} to {found.title!r}.")


@chats.command()
def flag(
    chat: ChatName,
    turn: Annotated[str, typer.Argument(metavar="TURN", help="The id of a turn, as in turn_….")],
    item: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="An item, from 0 through input and output. Default: all."),
    ] = None,
    to_model: Annotated[
        bool | None, typer.Option("--to-model/--not-to-model", help="Whether models receive it later.")
    ] = None,
    to_user: Annotated[
        bool | None, typer.Option("--to-user/--not-to-user", help="Whether the user sees it.")
    ] = None,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show items of a turn to the model and the user, or hide them; without a flag, print what is hidden."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    hidden = selector.run(
        lambda backend: backend.flag(
            chat, turn, scope=scope, items=item or None, to_model=to_model, to_user=to_user
        )
    )
    if as_json:
        typer.echo(json_of(hidden))
        return
    for name, places in (("model", hidden.hidden_from_model), ("user", hidden.hidden)):
        print_result(f"Hidden from the {name}: {', '.join(map(str, places)) or 'nothing'}.")


@chats.command()
def pin(
    chats: ChatNames,
    off: Off = False,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Pin chats, so that `list --pinned` shows them; --off unpins them."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    result = "is no longer pinned" if off else "is pinned"
    _update_each(selector, chats, scope, result, as_json=as_json, pinned=not off)


@chats.command()
def archive(
    chats: ChatNames,
    off: Off = False,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Archive chats, so that only `list --archived` shows them; --off unarchives them."""
    selector = BackendSelector(server=server, store=store, config=config, owner=owner)
    result = "is no longer archived" if off else "is archived"
    _update_each(selector, chats, scope, result, as_json=as_json, archived=not off)


@chats.command()
def delete(
    chats: ChatNames,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Delete permanently, even if already deleted. Default: restorable."),
    ] = False,
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete chats, and end the turns running there."""

    async def change_one(backend: Backend, name: str) -> str:
        deleted = await backend.delete(name, scope=scope, purge=purge)
        return json_of(deleted) if as_json else _deletion_message(deleted)

    selector = BackendSelector(server=server, store=store, config=config, owner=owner, uses_settings=True)
    run_each(selector, chats, change_one, "Deleting")


@chats.command()
def restore(
    chats: DeletedIds,
    owner: Owner = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Restore deleted chats."""

    async def change_one(backend: Backend, name: str) -> str:
        chat = await backend.restore(name)
        return json_of(chat) if as_json else _restore_message(chat)

    run_each(
        BackendSelector(server=server, store=store, config=config, owner=owner),
        chats,
        change_one,
        "Restoring",
    )


def _deletion_message(chat: Deletion) -> str:
    if chat.purge_at is None:
        return f"Deleted {chat.id} permanently."
    return f"Deleted {chat.id}. It can be restored until {date_of(chat.purge_at)} UTC."


def _restore_message(chat: ChatInfo) -> str:
    former_key = chat.former_conversation_key
    note = "" if former_key is None else f" Another chat now has its conversation_key {former_key!r}."
    return f"Restored {chat.id}.{note}"


def _update_each(
    selector: BackendSelector, names: Sequence[str], scope: str, result: str, *, as_json: bool, **changes: Any
) -> None:
    async def change_one(backend: Backend, name: str) -> str:
        chat = await backend.update(name, scope=scope, **changes)
        return json_of(chat) if as_json else f"{chat.id} {result}."

    run_each(selector, names, change_one, "Changing")
