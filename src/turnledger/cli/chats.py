"""`turnledger chats`: read and changed in the store of the server, whether it runs or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from turnledger.chat import Chat
from turnledger.cli.at_store import NOT_DONE, AsJson, Config, Store, as_text, run, say
from turnledger.cli.chat_text import about, hit_lines, hit_told, lines_of, listed, table_of, turn_told
from turnledger.cli.expiry import date_of
from turnledger.cli.own_store import limits_of, store_url
from turnledger.engine.limits import Limits
from turnledger.engine.searching import SearchPage
from turnledger.errors import ConversationUnavailable, InvalidInput
from turnledger.ledger import OWNER, Ledger
from turnledger.model.conversation import Conversation
from turnledger.model.flags import hidden_from_user, without_hidden
from turnledger.model.ids import ConversationId
from turnledger.model.item import Item
from turnledger.model.listing import Page
from turnledger.model.printable import plain
from turnledger.model.turn import Turn
from turnledger.stores.opening import visit_store

PAGE = 50

Owner = Annotated[str, typer.Option(help="Whose they are.")]
Only = Annotated[str | None, typer.Option(help="Only those of this scope. Default: all.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="So many at most.")]
Cursor = Annotated[str | None, typer.Option(help="Where the page before has ended, as it said.")]
Scope = Annotated[str, typer.Option(help="The scope in which a conversation_key is looked up.")]
Named = Annotated[str, typer.Argument(metavar="CHAT", help="An id, as in conv_…, or a conversation_key.")]
Several = Annotated[list[str], typer.Argument(metavar="CHAT…", help="Ids, or conversation_keys.")]

chats = typer.Typer(
    help="List, find, read, rename, delete and restore chats; write them to files, and read those.",
    no_args_is_help=True,
)


@chats.command("list")
def list_(
    owner: Owner = OWNER,
    scope: Only = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only those that are pinned.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Only those that are archived.")] = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="Only those that can be restored.")] = False,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List chats, the last used first."""
    chosen = {"tag": tag, "pinned": pinned or None, "archived": archived, "deleted": deleted}
    wish = {**chosen, "owner": owner, "scope": scope, "limit": limit, "cursor": cursor}
    page = run(lambda: _list(store_url(store, config), wish))
    if as_json:
        typer.echo(as_text({"data": [listed(each) for each in page.chats], "next": page.next}))
    else:
        _print(table_of(page.chats), page.next, "There are no such chats here.")


@chats.command()
def search(
    text: Annotated[list[str], typer.Argument(metavar="WORD…", help="What is sought; a phrase in quotes.")],
    owner: Owner = OWNER,
    scope: Only = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find chats by the words of their titles and messages, the newest first."""
    wish = {"owner": owner, "scope": scope, "limit": limit, "cursor": cursor}
    page = run(lambda: _search(store_url(store, config), " ".join(text), wish))
    if as_json:
        typer.echo(as_text({"data": [hit_told(hit) for hit in page.hits], "next": page.next}))
    else:
        _print([line for hit in page.hits for line in hit_lines(hit)], page.next, "Nothing was found.")


@chats.command()
def show(
    chat: Named,
    turns: Annotated[int, typer.Option(min=1, help="So many of its last turns.")] = PAGE,
    owner: Owner = OWNER,
    scope: Scope = "",
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print what was said in a chat, as its owner sees it."""
    found, shown = run(lambda: _show(store_url(store, config), chat, owner, scope, turns))
    if as_json:
        typer.echo(as_text({**about(found), "turns": [turn_told(turn, items) for turn, items in shown]}))
        return
    for line in lines_of(found, shown):
        typer.echo(line)


@chats.command()
def rename(
    chat: Named,
    title: Annotated[str, typer.Argument(help="What it is called from now on.")],
    owner: Owner = OWNER,
    scope: Scope = "",
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Give a chat a name, which nothing but a person changes."""
    found = run(lambda: _rename(store_url(store, config), chat, title, owner, scope))
    typer.echo(as_text(about(found)) if as_json else plain(f"{found.id} is called {found.title!r}."))


@chats.command()
def delete(
    chats: Several,
    purge: Annotated[
        bool, typer.Option("--purge", help="For good, also what is deleted already. Else it can be restored.")
    ] = False,
    owner: Owner = OWNER,
    scope: Scope = "",
    store: Store = None,
    config: Config = None,
) -> None:
    """Delete chats. What runs in one ends with it."""

    async def one(ledger: Ledger, name: str) -> str:
        id = await _id_of(ledger, name, owner, scope)
        deleted = await ledger.delete(id, owner=owner, purge=purge)
        if deleted.purge_at is None:
            return f"Deleted {id} for good."
        return f"Deleted {id}. It can be restored until {date_of(deleted.purge_at)} UTC."

    _do_each(store, config, chats, one)


@chats.command()
def restore(
    chats: Annotated[
        list[str], typer.Argument(metavar="ID…", help="As in conv_…; `list --deleted` has them.")
    ],
    owner: Owner = OWNER,
    store: Store = None,
    config: Config = None,
) -> None:
    """Bring deleted chats back."""

    async def one(ledger: Ledger, name: str) -> str:
        chat = await ledger.restore(name, owner=owner)
        lost = chat.former_conversation_key if chat.conversation_key is None else None
        told = "" if lost is None else f" Its conversation_key {lost!r} is another chat's by now."
        return f"Restored {chat.id}.{told}"

    _do_each(store, config, chats, one)


def _do_each(
    store: str | None, config: Path | None, names: Sequence[str], do: Callable[[Ledger, str], Awaitable[str]]
) -> None:
    """Do something with each of these chats, and tell what was done, and what is wrong with the others."""

    async def work() -> list[str]:
        problems = []
        async with opened(store_url(store, config), limits_of(store, config)) as ledger:
            for name in names:
                try:
                    typer.echo(plain(await do(ledger, name)))
                except (ConversationUnavailable, InvalidInput) as problem:
                    problems.append(f"{problem.code}: {name}: {problem}")
        return problems

    problems = run(work)
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(NOT_DONE)


def _print(lines: Sequence[str], cursor: str | None, nothing: str) -> None:
    for line in lines:
        typer.echo(line)
    if not lines:
        say(nothing)
    if cursor is not None:
        say(f"There are more: --cursor {cursor}")


@asynccontextmanager
async def opened(url: str, limits: Limits | None = None) -> AsyncIterator[Ledger]:
    """The ledger of a store that is there: one that is not would be made."""
    await (await visit_store(url)).close()
    async with await Ledger.open(url, limits=limits) as ledger:
        yield ledger


async def _found(ledger: Ledger, name: str, owner: str, scope: str) -> Chat:
    is_id = name.startswith(ConversationId.prefix)
    id, conversation_key = (name, None) if is_id else (None, name)
    if not name:
        raise InvalidInput("A chat is named by its id, as in conv_…, or by its conversation_key.")
    return await ledger.conversation(
        id, conversation_key=conversation_key, owner=owner, scope=scope, create=False
    )


async def _id_of(ledger: Ledger, name: str, owner: str, scope: str) -> str:
    """The id that a chat is named by, also one that is deleted; or the one of its conversation_key."""
    return name if name.startswith(ConversationId.prefix) else (await _found(ledger, name, owner, scope)).id


async def _list(url: str, wish: dict[str, Any]) -> Page:
    async with opened(url) as ledger:
        return await ledger.catalogue.list(**wish)


async def _search(url: str, text: str, wish: dict[str, Any]) -> SearchPage:
    async with opened(url) as ledger:
        return await ledger.search(text, **wish)


async def _show(
    url: str, name: str, owner: str, scope: str, limit: int
) -> tuple[Conversation, list[tuple[Turn, tuple[Item, ...]]]]:
    """A chat with its last turns, and of each the items that its owner sees."""
    async with opened(url) as ledger:
        chat = await _found(ledger, name, owner, scope)
        turns: list[Turn] = []
        while len(turns) < limit:
            before = turns[0].number if turns else None
            page = await chat.turns(before=before, limit=min(PAGE, limit - len(turns)))
            if not page:
                break
            turns = [*page, *turns]
        hidden = await _hidden(chat, turns)
        seen = without_hidden([turn.items for turn in turns], [hidden.get(turn.id, ()) for turn in turns])
        return await chat.info(), list(zip(turns, seen, strict=True))


async def _hidden(chat: Chat, turns: Sequence[Turn]) -> dict[Any, Any]:
    hidden: dict[Any, Any] = {}
    for start in range(0, len(turns), PAGE):
        hidden |= hidden_from_user(await chat.flags(*(turn.id for turn in turns[start : start + PAGE])))
    return hidden


async def _rename(url: str, name: str, title: str, owner: str, scope: str) -> Conversation:
    async with opened(url) as ledger:
        chat = await _found(ledger, name, owner, scope)
        return await chat.update(title=title)
