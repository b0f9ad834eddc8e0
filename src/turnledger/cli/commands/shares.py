"""`turnledger shares`: create, list and revoke share links in the server's store, or on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.commands.batch import run_each
from turnledger.cli.commands.target import CommandTarget, on_target
from turnledger.cli.options import date_of, expiry_of, expiry_text, now_ms, seconds_of, split_names
from turnledger.cli.output.streams import json_of, print_message
from turnledger.cli.output.table import Column, Record
from turnledger.errors import InvalidInput

if TYPE_CHECKING:
    from turnledger.api.access import Share

COLUMNS = (
    Column("ID"),
    Column("LEADS TO", min_width=12, wraps=True),
    Column("NAME", min_width=8),
    Column("VISITORS"),
    Column("EXPIRES"),
    Column("STATE"),
)

shares = typer.Typer(help="Create, list and revoke links for visitors.", no_args_is_help=True)


@shares.command()
@on_target("scope")
def create(
    target: CommandTarget,
    scope: Annotated[
        str | None, typer.Option(help="Each visitor gets their own chats in this scope; needs `admin`.")
    ] = None,
    chat: Annotated[
        str | None, typer.Option(metavar="ID", help="Or: visitors may read this chat, as in conv_….")
    ] = None,
    name: Annotated[str, typer.Option(help="A name for the link, which visitors see.")] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="As in 12h, 30d or 2027-01-31. Default: never.")
    ] = None,
    visitor_expires: Annotated[
        str | None, typer.Option(metavar="SPAN", help="How long each visitor may stay. Default: 1d.")
    ] = None,
    max_uses: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of visitors. Default: no limit.")
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum visitors per minute. Default: 60.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these models. Default: all.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum tokens per answer to a visitor.")
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", metavar="N", help="Maximum answers per request of a visitor.")
    ] = None,
    turns: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum open turns of all visitors.")
    ] = None,
    turns_per_minute: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum turns per minute of all visitors.")
    ] = None,
    bytes: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum bytes stored by all visitors.")
    ] = None,
    chats: Annotated[int | None, typer.Option(metavar="N", help="Maximum chats of all visitors.")] = None,
) -> None:
    """Create a link to a scope or to a chat, and print it.

    Its code is not stored, and printed only here: alone on the standard output, so that it can be piped. In a
    store, the link is printed without the address of the server. Once a store has a link, callers without a
    token are refused.
    """
    now = now_ms()
    fields = {
        "scope": scope,
        "chat": chat,
        "name": name,
        "expires_in": None if expires is None else (expiry_of(expires, now) - now) / 1000,
        "visitor_expires_in": visitor_expires and seconds_of("--visitor-expires", visitor_expires),
        "max_uses": max_uses,
        "per_minute": per_minute,
        "models": None if models is None else split_names(models),
        "max_tokens": max_tokens,
        "n": n,
        "turns": turns,
        "turns_per_minute": turns_per_minute,
        "bytes": bytes,
        "chats": chats,
    }
    if fields["models"] == []:  # from an unset variable, for example: it would mean all
        raise InvalidInput("--models is empty. Omit it to use all.")
    given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    created, is_first = target.run(lambda backend: backend.create_share(**given))
    if not target.as_json:
        print_message(f"Created {created.id}: {_target_of(created)}; {expiry_text(created.expires_at)}.")
    if is_first:
        print_message("From now on, every request needs a token: turnledger tokens create")
    if not target.as_json:
        print_message("Keep the link, which is not shown again.")
    typer.echo(json_of(created) if target.as_json else f"{(target.server or '').rstrip('/')}{created.path}")


@shares.command("list")
@on_target("owner", "scope")
def list_(
    target: CommandTarget,
    all_: Annotated[bool, typer.Option("--all", help="Include links that have ended.")] = False,
) -> None:
    """List links that admit visitors, newest first. Their codes are not stored."""
    found, now = target.run(lambda backend: backend.list_shares()), now_ms()
    target.print_listing(
        [each for each in found if all_ or state_of(each, now) == "valid"],
        COLUMNS,
        lambda share: record_of(share, now),
        "No links. Create one: turnledger shares create",
    )


@shares.command()
@on_target("owner", "scope")
def revoke(
    target: CommandTarget, ids: Annotated[list[str], typer.Argument(metavar="ID…", help="As in share_….")]
) -> None:
    """Revoke links at once, in every process, with the tokens of all their visitors."""
    from turnledger.model.ids import ShareId

    for id in ids:
        ShareId(id)  # raises before any is revoked
    run_each(
        "Revoking",
        target,
        ids,
        lambda backend, id: backend.revoke_share(id),
        lambda share: f"Revoked {share.id}.",
    )


def record_of(share: Share, now: int) -> Record:
    target, state = _target_of(share), state_of(share, now)
    visitors = f"{share.uses}" if share.max_uses is None else f"{share.uses} of {share.max_uses}"
    expires = "never" if share.expires_at is None else date_of(share.expires_at)
    lines = (
        share.id,
        f"{target}{f', {share.name!r}' if share.name else ''}",
        f"visitors: {visitors}, {expiry_text(share.expires_at)}",
        *(() if state == "valid" else (state,)),
    )
    return Record((share.id, target, share.name or "-", visitors, expires, state), lines)


def state_of(share: Share, now: int) -> str:
    if share.revoked_at is not None:
        return "revoked"
    if share.expires_at is not None and share.expires_at <= now:
        return "expired"
    return "used up" if share.max_uses is not None and share.uses >= share.max_uses else "valid"


def _target_of(share: Share) -> str:
    return f"reads {share.chat}" if share.chat is not None else f"chats in {share.scope!r}"
