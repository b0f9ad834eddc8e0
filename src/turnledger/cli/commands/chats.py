"""`turnledger chats`: list, find, read and change chats. Export and import are in `transfer`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.backend.completion import complete_chat
from turnledger.cli.commands.batch import run_each
from turnledger.cli.commands.target import CommandTarget, on_target
from turnledger.cli.options import (
    PAGE,
    ChatName,
    ChatNames,
    Cursor,
    DeletedIds,
    Limit,
    ScopeFilter,
    date_of,
    seconds_of,
)
from turnledger.cli.output.streams import is_terminal, print_message, print_result
from turnledger.cli.output.table import GAP, print_records
from turnledger.errors import InvalidInput

if TYPE_CHECKING:
    from turnledger.api.chats import ChatInfo, Deletion, Hit, Page
    from turnledger.api.turns import ChatContext, ChatHistory, Job, StopAnswer, Turn, TurnFlags
    from turnledger.cli.backend.backend import Backend
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
@on_target(uses_settings=True)
def create(
    target: CommandTarget,
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
) -> None:
    """Create a chat, or find the one with the key, and print its id.

    Without --expires-after and --reset, the settings of the server apply.
    """
    seconds = None if expires_after is None else seconds_of("--expires-after", expires_after)
    target.print(
        lambda backend: backend.create(
            scope=target.scope,
            conversation_key=conversation_key,
            title=title,
            internal=internal,
            expires_after=seconds,
            reset=reset,
        ),
        lambda chat: typer.echo(chat.id),
    )


@chats.command("list")
@on_target("scope")
def list_(
    target: CommandTarget,
    scope: ScopeFilter = None,
    tag: Annotated[str | None, typer.Option(help="Only chats with this tag.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned chats.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Only archived chats.")] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Only deleted chats that can be restored.")
    ] = False,
    limit: Limit = PAGE,
    cursor: Cursor = None,
) -> None:
    """List chats, most recently used first."""
    target.print(
        lambda backend: backend.list(
            scope=scope,
            tag=tag,
            pinned=pinned or None,
            archived=archived,
            deleted=deleted,
            limit=limit,
            cursor=cursor,
        ),
        _print_chats,
    )


@chats.command()
@on_target("scope")
def search(
    target: CommandTarget,
    text: Annotated[list[str], typer.Argument(metavar="WORD…", help="Words to search for; quote a phrase.")],
    scope: ScopeFilter = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
) -> None:
    """Find chats by the words of their titles and messages, newest first."""
    target.print(
        lambda backend: backend.search(" ".join(text), scope=scope, limit=limit, cursor=cursor),
        _print_hits,
    )


@chats.command()
@on_target()
def show(
    target: CommandTarget,
    chat: ChatName,
    turns: Annotated[int, typer.Option(min=1, help="Number of turns, from the end.")] = PAGE,
) -> None:
    """Print a chat, as its owner sees it."""
    target.print(lambda backend: backend.show(chat, scope=target.scope, turns=turns), _print_history)


@chats.command()
@on_target()
def context(
    target: CommandTarget,
    chat: ChatName,
    last: Annotated[int | None, typer.Option(min=0, help="Only this many of the last turns.")] = None,
    budget: Annotated[
        int | None, typer.Option(min=0, help="As many of the last turns as fit into these tokens.")
    ] = None,
) -> None:
    """Print what a model would be shown of a chat now, and its estimated tokens."""
    target.print(
        lambda backend: backend.context(chat, scope=target.scope, last=last, budget=budget), _print_context
    )


@chats.command()
@on_target("scope")
def jobs(target: CommandTarget, limit: Limit = PAGE, cursor: Cursor = None) -> None:
    """List the background turns that wait or run, oldest first."""
    target.print(lambda backend: backend.jobs(limit=limit, cursor=cursor), _print_jobs)


@chats.command()
@on_target()
def stop(
    target: CommandTarget,
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
) -> None:
    """Stop a turn, in any process, and print how it ended."""

    async def stop_it(backend: Backend) -> StopAnswer:
        if chat is not None:
            return await backend.stop(chat, scope=target.scope, policy=policy)
        if turn is not None:
            return await backend.stop_turn(turn, policy=policy)
        assert idempotency_key is not None  # noqa: S101 - one of the three is named
        return await backend.stop_key(idempotency_key, policy=policy)

    if [chat, turn, idempotency_key].count(None) != 2:
        raise InvalidInput("Give exactly one: a chat, to stop its running turn, --turn or --key.")
    target.print(stop_it, _print_end)


def _print_chats(page: Page[ChatInfo]) -> None:
    from turnledger.cli.output.chat_text import COLUMNS, record_of

    print_records(COLUMNS, list(map(record_of, page.data)))
    _print_cursor(page, NO_CHATS)


def _print_jobs(page: Page[Job]) -> None:
    from turnledger.cli.output.chat_text import JOB_COLUMNS, record_of_job

    print_records(JOB_COLUMNS, list(map(record_of_job, page.data)))
    _print_cursor(page, "No background turns wait or run.")


def _print_history(history: ChatHistory) -> None:
    from turnledger.cli.output.chat_text import lines_of

    _print_lines(lines_of(history))


def _print_context(context: ChatContext) -> None:
    from turnledger.cli.output.chat_text import lines_of_context

    _print_lines(lines_of_context(context))


def _print_end(ended: StopAnswer) -> None:
    if ended.state is None:
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


def _print_hits(page: Page[Hit]) -> None:
    from turnledger.cli.output.chat_text import TextLine, pieces_of, title_of

    for hit in page:
        title, pieces = f"{hit.chat.id}  {title_of(hit.chat) or '-'}", pieces_of(hit)
        if is_terminal():
            _print_marked(title, pieces)
        else:
            _print_lines([TextLine(title), TextLine("".join(piece for piece, _ in pieces), 2)])
    _print_cursor(page, NO_CHATS)
    if not page.complete:
        print_message("The newest turns are not indexed yet. Search again in a moment.")


def _print_marked(title: str, pieces: Iterable[tuple[str, bool]]) -> None:
    from rich.text import Text

    from turnledger.cli.output.terminal import open_screen

    screen = open_screen()
    screen.text(Text(title, "bold"))
    screen.text(
        Text.assemble(*((piece, "bold yellow" if is_match else "") for piece, is_match in pieces)), GAP
    )


def _print_cursor(page: Page[Any], empty_message: str) -> None:
    if not page.data:
        print_message(empty_message)
    if page.next is not None:
        print_message(f"More: --cursor {page.next}")


@chats.command()
@on_target()
def append(
    target: CommandTarget,
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
) -> None:
    """Add a turn that no model answers, such as a message from another system."""
    items: list[Any] = [] if text is None else [text]
    items += [] if answer is None else [{"role": "assistant", "content": answer}]
    items = items or _read_items()

    async def add(backend: Backend) -> Turn:
        options = {"idempotency_key": idempotency_key, "interaction": not no_interaction}
        return await backend.append(chat, items, scope=target.scope, **options)

    target.print(add, lambda turn: print_result(f"Added {turn.id} as turn {turn.number}."))


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
@on_target()
def rename(
    target: CommandTarget, chat: ChatName, title: Annotated[str, typer.Argument(help="The new title.")]
) -> None:
    """Set the title of a chat; only a person can change it again."""
    target.print(
        lambda backend: backend.update(chat, scope=target.scope, title=title),
        lambda found: print_result(f"Renamed {found.id} to {found.title!r}."),
    )


@chats.command()
@on_target()
def flag(
    target: CommandTarget,
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
) -> None:
    """Show items of a turn to the model and the user, or hide them; without a flag, print what is hidden."""
    target.print(
        lambda backend: backend.flag(
            chat, turn, scope=target.scope, items=item or None, to_model=to_model, to_user=to_user
        ),
        _print_flags,
    )


def _print_flags(flags: TurnFlags) -> None:
    for name, places in (("model", flags.hidden_from_model), ("user", flags.hidden)):
        print_result(f"Hidden from the {name}: {', '.join(map(str, places)) or 'nothing'}.")


@chats.command()
@on_target()
def pin(target: CommandTarget, chats: ChatNames, off: Off = False) -> None:
    """Pin chats, so that `list --pinned` shows them; --off unpins them."""
    _update_each(target, chats, "is no longer pinned" if off else "is pinned", pinned=not off)


@chats.command()
@on_target()
def archive(target: CommandTarget, chats: ChatNames, off: Off = False) -> None:
    """Archive chats, so that only `list --archived` shows them; --off unarchives them."""
    _update_each(target, chats, "is no longer archived" if off else "is archived", archived=not off)


def _update_each(target: CommandTarget, names: list[str], result: str, **changes: bool) -> None:
    run_each(
        "Changing",
        target,
        names,
        lambda backend, name: backend.update(name, scope=target.scope, **changes),
        lambda chat: f"{chat.id} {result}.",
    )


@chats.command()
@on_target(uses_settings=True)
def delete(
    target: CommandTarget,
    chats: ChatNames,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Delete permanently, even if already deleted. Default: restorable."),
    ] = False,
) -> None:
    """Delete chats, and end the turns running there."""
    run_each(
        "Deleting",
        target,
        chats,
        lambda backend, name: backend.delete(name, scope=target.scope, purge=purge),
        _deletion_message,
    )


@chats.command()
@on_target("scope")
def restore(target: CommandTarget, chats: DeletedIds) -> None:
    """Restore deleted chats."""
    run_each("Restoring", target, chats, lambda backend, id: backend.restore(id), _restore_message)


def _deletion_message(chat: Deletion) -> str:
    if chat.purge_at is None:
        return f"Deleted {chat.id} permanently."
    return f"Deleted {chat.id}. It can be restored until {date_of(chat.purge_at)} UTC."


def _restore_message(chat: ChatInfo) -> str:
    former_key = chat.former_conversation_key
    note = "" if former_key is None else f" Another chat now has its conversation_key {former_key!r}."
    return f"Restored {chat.id}.{note}"
