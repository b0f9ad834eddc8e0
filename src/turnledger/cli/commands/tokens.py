"""`turnledger tokens`: create, list and revoke tokens in the server's store, or on a server with `admin`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from turnledger.cli.commands.target import CommandTarget, on_target
from turnledger.cli.failures import FAILED
from turnledger.cli.options import date_of, expiry_of, expiry_text, now_ms, split_names
from turnledger.cli.output.streams import json_of, print_message, print_result
from turnledger.cli.output.table import Column, Record
from turnledger.errors import InvalidInput, TokenRefused

if TYPE_CHECKING:
    from turnledger.api.access import Token
    from turnledger.cli.backend.backend import Backend

DEFAULT_SCOPES = "chats:read,chats:write,turns:run"
ALL_SCOPES = "chats:read, chats:write, turns:run, admin"
COLUMNS = (
    Column("ID"),
    Column("OWNER", min_width=8, wraps=True),
    Column("NAME", min_width=8),
    Column("ALLOWS", min_width=14, wraps=True),
    Column("EXPIRES"),
    Column("LAST USED"),
    Column("STATE"),
)

tokens = typer.Typer(help="Create, list and revoke the tokens of the server.", no_args_is_help=True)


@tokens.command()
@on_target("owner", "scope", creates_store=True)
def create(
    target: CommandTarget,
    owner: Annotated[
        str | None,
        typer.Option(help="The owner of its conversations. Default: the owner of requests without a token."),
    ] = None,
    scopes: Annotated[str, typer.Option(help=f"Permissions, from: {ALL_SCOPES}.")] = DEFAULT_SCOPES,
    name: Annotated[str, typer.Option(help="A name for the token.")] = "",
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
        int | None, typer.Option(metavar="N", help="Maximum tokens per answer. Default: no limit.")
    ] = None,
    n: Annotated[
        int | None,
        typer.Option("--n", metavar="N", help="Maximum answers per request. Default: 1 if narrowed."),
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A policy of its turns, as in on_busy=reject. Repeatable."),
    ] = None,
) -> None:
    """Create a token, and print its text: the secret that its bearer sends.

    The text is not stored, and printed only here: alone on the standard output, so that it can be piped. Once
    a store has a token, callers without one are refused. A server creates no token with more rights than the
    one of the request.
    """
    for flag, value in (("--chat-scope", chat_scope), ("--models", models and split_names(models))):
        if value is not None and not value:  # from an unset variable, for example: it would mean all
            raise InvalidInput(f"{flag} is empty. Omit it to use all.")
    expires_at = None if expires is None else expiry_of(expires, now_ms())
    created, is_first = target.run(
        lambda backend: backend.create_token(
            owner=owner,
            scopes=split_names(scopes),
            name=name,
            chat_scope=chat_scope,
            models=None if models is None else split_names(models),
            expires_at=expires_at,
            max_tokens=max_tokens,
            n=n,
            defaults=_defaults_of(default or ()),
        )
    )
    if not target.as_json:
        rights = f"{_permissions_of(created)}; {expiry_text(created.expires_at)}"
        print_message(f"Created {created.id} for {created.owner!r} at {target.location}: {rights}.")
    if is_first:
        print_message("This is the first token: from now on, every request needs one.")
    if not target.as_json:
        print_message("Keep its text, which is not shown again.")
    typer.echo(json_of(created) if target.as_json else created.token)


@tokens.command("list")
@on_target("owner", "scope")
def list_(
    target: CommandTarget,
    owner: Annotated[str | None, typer.Option(help="Only tokens of this owner.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Include expired and revoked tokens.")] = False,
) -> None:
    """List valid tokens, newest first. Their texts are not stored."""
    listed = target.run(lambda backend: backend.list_tokens(owner))
    now = now_ms()
    target.print_listing(
        [each for each in listed if all_ or state_of(each, now) == "valid"],
        COLUMNS,
        lambda token: record_of(token, now),
        "No tokens. Create one: turnledger tokens create",
    )


@tokens.command()
@on_target("owner", "scope")
def revoke(
    target: CommandTarget,
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="As in tok_…, or the text of a token.")],
) -> None:
    """Revoke tokens at once, in every process, with all their descendants."""
    _check(ids)
    revoked: list[Sequence[Token]] = []
    problems: list[str] = []
    is_done = False
    try:
        target.run(lambda backend: _revoke(backend, ids, revoked, problems))
        is_done = True
    finally:  # report the revoked ones, even after another error
        if revoked or is_done:
            _print_revoked(revoked, as_json=target.as_json)
        for problem in problems:
            print_message(problem)
    if problems:
        raise typer.Exit(FAILED)


def _print_revoked(revoked: Sequence[Sequence[Token]], *, as_json: bool) -> None:
    if as_json:
        from turnledger.api.chats import Listing

        typer.echo(json_of(Listing(tuple(each for family in revoked for each in family))))
        return
    for token, *descendants in revoked:
        print_result(f"Revoked {token.id}{', and those created with it:' if descendants else '.'}")
        for each in descendants:
            print_result(f"  {each.id} of {each.owner}{f' ({each.name})' if each.name else ''}")


def _check(ids: Sequence[str]) -> None:
    """Raise InvalidId before anything is done, if one of these is not a token."""
    from turnledger.model.access.token import is_token_text
    from turnledger.model.ids import TokenId

    for id in ids:
        if not is_token_text(id):
            TokenId(id)


async def _revoke(
    backend: Backend, ids: Sequence[str], revoked: list[Sequence[Token]], problems: list[str]
) -> None:
    """Revoke each of these; collect the revoked tokens, and the errors."""
    from turnledger.model.access.token import is_token_text

    for id in ids:
        try:
            revoked.append(await backend.revoke_token(id))
        except TokenRefused as problem:
            name = "a text" if is_token_text(id) else id
            problems.append(f"{problem.code}: {name}: {problem}")


def record_of(token: Token, now: int) -> Record:
    permissions, state = _permissions_of(token), state_of(token, now)
    expires = "never" if token.expires_at is None else date_of(token.expires_at)
    used = "never" if token.used_at is None else date_of(token.used_at)
    lines = (
        token.id,
        f"of {token.owner!r}{f', {token.name!r}' if token.name else ''}",
        permissions,
        f"{expiry_text(token.expires_at)}, {f'last used {used}' if token.used_at else 'never used'}",
        *(() if state == "valid" else (state,)),
    )
    return Record((token.id, token.owner, token.name or "-", permissions, expires, used, state), lines)


def state_of(token: Token, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.expires_at is None or now < token.expires_at else "expired"


def _permissions_of(token: Token) -> str:
    return ", ".join([*sorted(token.scopes), *_restrictions_of(token)])


def _restrictions_of(token: Token) -> Iterable[str]:
    if token.chat_scope:
        yield f"only conversations of {token.chat_scope!r}"
    if token.chat is not None:
        yield f"only {token.chat}"
    if token.models:
        yield f"only {' and '.join(token.models)}"
    if token.share is not None:
        yield f"by {token.share}"
    for name, value in sorted(token.defaults.items()):
        yield f"default {name}={value}"


def _defaults_of(options: Sequence[str]) -> dict[str, str] | None:
    pairs = [option.partition("=") for option in options]
    for name, equals, _ in pairs:
        if not equals:
            raise InvalidInput(f"--default {name!r} must be NAME=VALUE, as in on_busy=reject.")
    return {name.strip(): value.strip() for name, _, value in pairs} or None
