"""`turnledger tokens`: create, list and revoke tokens in the server's store, or on a server with `admin`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from turnledger.cli.backend.backend import Backend, Where
from turnledger.cli.failures import NOT_DONE
from turnledger.cli.options import AsJson, Config, Server, Store, date_of, expiry_of
from turnledger.cli.output.streams import json_of, say, tell
from turnledger.cli.output.table import Column, Record, print_records
from turnledger.errors import InvalidInput, TokenRefused

if TYPE_CHECKING:
    from turnledger.api.access import Token

USUAL = "chats:read,chats:write,turns:run"
KNOWN = "chats:read, chats:write, turns:run, admin"
COLUMNS = (
    Column("ID"),
    Column("OWNER", least=8, wraps=True),
    Column("NAME", least=8),
    Column("ALLOWS", least=14, wraps=True),
    Column("EXPIRES"),
    Column("LAST USED"),
    Column("STATE"),
)

tokens = typer.Typer(help="Create, list and revoke the tokens of the server.", no_args_is_help=True)


@tokens.command()
def create(
    owner: Annotated[
        str | None, typer.Option(help="The owner of its conversations. Default: the owner without tokens.")
    ] = None,
    scopes: Annotated[str, typer.Option(help=f"What it allows, of: {KNOWN}.")] = USUAL,
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
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Most tokens in one answer. Default: no bound.")
    ] = None,
    n: Annotated[
        int | None,
        typer.Option("--n", metavar="N", help="Most answers to one request. Default: 1 if narrowed."),
    ] = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a token, and print its text: the secret that its bearer sends.

    The text is not stored, and printed only here: alone on the standard output, so that it can be piped. Once
    a store has a token, callers without one are refused. A server creates no token with more rights than the
    one of the request.
    """
    for flag, given in (("--chat-scope", chat_scope), ("--models", models and _words(models))):
        if given is not None and not given:  # from an unset variable, for example: it would mean all
            raise InvalidInput(f"{flag} is empty. Omit it to use all.")
    ends = None if expires is None else expiry_of(expires, _now())
    where = Where(server=server, store=store, config=config, creates_store=True)
    made, is_first = where.do(
        lambda place: place.create_token(
            owner=owner,
            scopes=_words(scopes),
            name=name,
            chat_scope=chat_scope,
            models=None if models is None else _words(models),
            expires_at=ends,
            max_tokens=max_tokens,
            n=n,
        )
    )
    if as_json:
        typer.echo(json_of(made))
    else:
        message = f"Made {made.id} for {made.owner!r}: {_allows(made)}; {_ends(made)}."
        say(f"{message} This is its text, which is not shown again:")
        typer.echo(made.token)
    if is_first:
        say("It is the first token: from now on every request needs one.")


@tokens.command("list")
def list_(
    owner: Annotated[str | None, typer.Option(help="Only those of this owner.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the valid tokens, the newest first. Their texts are not stored."""
    found = Where(server=server, store=store, config=config).do(lambda place: place.list_tokens(owner))
    now = _now()
    listed = [each for each in found if all_ or state_of(each, now) == "valid"]
    if as_json:
        from turnledger.api.chats import Listing

        typer.echo(json_of(Listing(tuple(listed))))
        return
    print_records(COLUMNS, [record_of(each, now) for each in listed])
    if not listed:
        say("There are no tokens here. Make one with: turnledger tokens create")


@tokens.command()
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="As in tok_…; or the text of one.")],
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Revoke tokens at once, in every process, with all their descendants."""
    _check(ids)
    where = Where(server=server, store=store, config=config)
    ended: list[Sequence[Token]] = []
    problems: list[str] = []
    is_done = False
    try:
        where.do(lambda place: _revoke(place, ids, ended, problems))
        is_done = True
    finally:  # report the revoked ones, even after another error
        if ended or is_done:
            _tell_ended(ended, as_json=as_json)
        for problem in problems:
            say(problem)
    if problems:
        raise typer.Exit(NOT_DONE)


def _tell_ended(ended: Sequence[Sequence[Token]], *, as_json: bool) -> None:
    if as_json:
        from turnledger.api.chats import Listing

        typer.echo(json_of(Listing(tuple(each for family in ended for each in family))))
        return
    for token, *made in ended:
        tell(f"Revoked {token.id}{f', and {len(made)} made by it' if made else ''}.")


def _check(ids: Sequence[str]) -> None:
    """Raise InvalidId before anything is done, if one of these is not a token."""
    from turnledger.model.access.token import is_token_text
    from turnledger.model.ids import TokenId

    for id in ids:
        if not is_token_text(id):
            TokenId(id)


async def _revoke(
    place: Backend, ids: Sequence[str], ended: list[Sequence[Token]], problems: list[str]
) -> None:
    """Revoke each of these; collect the revoked tokens, and the errors."""
    from turnledger.model.access.token import is_token_text

    for id in ids:
        try:
            ended.append(await place.revoke_token(id))
        except TokenRefused as problem:
            named = "a text" if is_token_text(id) else id
            problems.append(f"{problem.code}: {named}: {problem}")


def record_of(token: Token, now: int) -> Record:
    allows, state = _allows(token), state_of(token, now)
    ends = "never" if token.expires_at is None else date_of(token.expires_at)
    used = "never" if token.used_at is None else date_of(token.used_at)
    lines = (
        token.id,
        f"of {token.owner!r}{f', {token.name!r}' if token.name else ''}",
        allows,
        f"{_ends(token)}, last used {used}" if token.used_at else f"{_ends(token)}, never used",
        *(() if state == "valid" else (state,)),
    )
    return Record((token.id, token.owner, token.name or "-", allows, ends, used, state), lines)


def state_of(token: Token, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.expires_at is None or now < token.expires_at else "expired"


def _ends(token: Token) -> str:
    return "never expires" if token.expires_at is None else f"expires {date_of(token.expires_at)} UTC"


def _allows(token: Token) -> str:
    return ", ".join([*sorted(token.scopes), *_narrowing(token)])


def _narrowing(token: Token) -> Iterable[str]:
    if token.chat_scope:
        yield f"only conversations of {token.chat_scope!r}"
    if token.chat is not None:
        yield f"only {token.chat}"
    if token.models:
        yield f"only {' and '.join(token.models)}"
    if token.share is not None:
        yield f"by {token.share}"


def _now() -> int:
    return time.time_ns() // 1_000_000


def _words(text: str) -> list[str]:
    return [word for word in (each.strip() for each in text.split(",")) if word]
