"""`turnledger tokens`: made, listed and revoked in the store of the server, whether it runs or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from turnledger.cli.at_store import NOT_DONE, AsJson, Config, Store, as_text, run, say, table
from turnledger.cli.expiry import date_of, expiry_of
from turnledger.cli.own_store import store_url
from turnledger.engine.system_clock import SystemClock
from turnledger.engine.tokens import ListRequest, list_tokens
from turnledger.errors import InvalidInput, NotAStore, TokenNotFound, TokenRefused
from turnledger.ledger import OWNER, Ledger
from turnledger.model.ids import TokenId
from turnledger.model.printable import plain
from turnledger.model.token import Token, TokenScope
from turnledger.model.token_text import digest_of, is_token_text
from turnledger.model.within import EVERYWHERE
from turnledger.stores.opening import visit_store

USUAL = "chats:read,chats:write,turns:run"
PAGE = 1_000

tokens = typer.Typer(help="Make, list and revoke the tokens that the server lets in.", no_args_is_help=True)


@tokens.command()
def create(
    owner: Annotated[str, typer.Option(help="Whose conversations it opens.")] = OWNER,
    scopes: Annotated[str, typer.Option(help=f"What it allows, of: {', '.join(TokenScope)}.")] = USUAL,
    name: Annotated[str, typer.Option(help="What you call it.")] = "",
    chat_scope: Annotated[
        str | None, typer.Option(metavar="SCOPE", help="Only conversations of this scope. Default: all.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these models. Default: all.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="As in 12h, 30d or 2027-01-31. Default: never.")
    ] = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a token, and print its text: the secret that its bearer shows.

    It is kept nowhere, and printed this once: alone on the standard output, so that it can be piped to where
    it belongs. The first token of a store shuts out those who come without.
    """
    wish = {
        "owner": owner,
        "scopes": _words(scopes),
        "name": name,
        "chat_scope": chat_scope,
        "models": None if models is None else _words(models),
    }
    made, text, is_first = run(lambda: _create(store_url(store, config), expires, wish))
    if as_json:
        typer.echo(as_text({**shown(made), "token": text}))
        return
    ends = "never expires" if made.expires_at is None else f"expires {date_of(made.expires_at)} UTC"
    allowed = ", ".join([*sorted(made.scopes), *_narrowing(made)])
    say(f"Made {made.id} for {made.owner!r}: {allowed}; {ends}. This is its text, which is not shown again:")
    typer.echo(text)
    if is_first:
        say("It is the first one: from now on nobody is let in without a token.")


@tokens.command("list")
def list_(
    owner: Annotated[str | None, typer.Option(help="Only those of this owner.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the tokens that are valid, the last made first. Their texts are not known."""
    listed = run(lambda: _list(store_url(store, config), owner))
    now = SystemClock().now_ms()
    listed = [each for each in listed if all_ or each.is_valid(now)]
    if as_json:
        typer.echo(as_text([shown(each) for each in listed]))
    elif listed:
        for line in table_of(listed, now):
            typer.echo(line)
    else:
        say("There are no tokens here. Make one with: turnledger tokens create")


@tokens.command()
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="As in tok_…; or the text of one.")],
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """End tokens at once, in every process, and with each all that it made."""
    ended, problems = run(lambda: _revoke(store_url(store, config), ids))
    if as_json:
        typer.echo(as_text([shown(each) for family in ended for each in family]))
    else:
        for token, *made in ended:
            also = f", and {len(made)} made by it" if made else ""
            typer.echo(plain(f"Revoked {token.id}{also}."))
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(NOT_DONE)


async def _create(url: str, expires: str | None, wish: dict[str, Any]) -> tuple[Token, str, bool]:
    if url.startswith("memory:"):
        raise NotAStore("A store in memory is gone with its process. Name a file, as in sqlite:///chats.db.")
    for name in ("chat_scope", "models"):
        if wish[name] is not None and not wish[name]:  # as of a variable that was not set: it would mean all
            raise InvalidInput(f"--{name.replace('_', '-')} names nothing. Leave it out if all are meant.")
    ends = None if expires is None else expiry_of(expires, SystemClock().now_ms())
    async with await Ledger.open(url) as ledger:
        is_first = not (await ledger.tokens.find(None)).any_tokens
        made, text = await ledger.tokens.create(**wish, expires_at=ends)
    return made, text, is_first


async def _list(url: str, owner: str | None) -> list[Token]:
    visit = await visit_store(url)
    try:
        listed: list[Token] = []
        while True:
            before = listed[-1].id if listed else None
            page = await visit.read(list_tokens, ListRequest(owner, EVERYWHERE, before, PAGE))
            listed += page
            if len(page) < PAGE:
                return listed
    finally:
        await visit.close()


async def _revoke(url: str, ids: Sequence[str]) -> tuple[list[tuple[Token, ...]], list[str]]:
    """Revoke each of these; return what has ended, and what is wrong with the others."""
    for id in ids:
        if not is_token_text(id):
            TokenId(id)
    await (await visit_store(url)).close()  # else one that is not there would be made
    ended, problems = [], []
    async with await Ledger.open(url) as ledger:
        for id in ids:
            try:
                ended.append(await ledger.tokens.revoke(await _id_of(ledger, id)))
            except TokenRefused as problem:
                named = "a text" if is_token_text(id) else id
                problems.append(f"{problem.code}: {named}: {problem}")
    return ended, problems


async def _id_of(ledger: Ledger, text: str) -> str:
    """The id of a token that is given as such, or by its text: who found a leaked one knows nothing else."""
    if not is_token_text(text):
        return text
    found = (await ledger.tokens.find(digest_of(text))).token
    if found is None:
        raise TokenNotFound("There is no token with this text.")
    return found.id


def shown(token: Token) -> dict[str, Any]:
    """What is told of a token, by the names of its fields: all but what leads to its text."""
    told = {name: getattr(token, name) for name in token.__struct_fields__ if name != "digest"}
    return {**told, "scopes": sorted(token.scopes)}


def table_of(listed: Sequence[Token], now: int) -> list[str]:
    """Tokens as a table, a line for each."""
    head = ("ID", "OWNER", "NAME", "ALLOWS", "EXPIRES", "LAST USED", "STATE")
    return table([head, *(_cells(each, now) for each in listed)])


def _cells(token: Token, now: int) -> tuple[str, ...]:
    state = "valid" if token.is_valid(now) else "expired" if token.revoked_at is None else "revoked"
    return (
        token.id,
        token.owner,
        token.name or "-",
        ", ".join([*sorted(token.scopes), *_narrowing(token)]),
        "never" if token.expires_at is None else date_of(token.expires_at),
        "never" if token.used_at is None else date_of(token.used_at),
        state,
    )


def _narrowing(token: Token) -> Iterable[str]:
    if token.chat_scope:
        yield f"only conversations of {token.chat_scope!r}"
    if token.conversation is not None:
        yield f"only {token.conversation}"
    if token.models:
        yield f"only {' and '.join(token.models)}"
    if token.share is not None:
        yield f"by {token.share}"


def _words(text: str) -> list[str]:
    return [word for word in (each.strip() for each in text.split(",")) if word]
