"""All commands, in the order in which `turnledger --help` lists them.

Each imports its packages when it runs: a shell asks for completions at every Tab.
"""

from __future__ import annotations

from typing import Annotated

import typer

from turnledger.cli.chat.command import chat
from turnledger.cli.commands.chats import chats
from turnledger.cli.commands.check import check
from turnledger.cli.commands.doctor import doctor
from turnledger.cli.commands.serve import serve
from turnledger.cli.commands.shares import shares
from turnledger.cli.commands.store_copy import copy
from turnledger.cli.commands.tokens import tokens
from turnledger.cli.commands.transfer import backup, export, import_chats
from turnledger.cli.failures import CommandGroup

app = typer.Typer(
    help="Keeps conversations for chat apps and agents, and makes every turn a transaction.",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help of plain lines, in a fifth of the time
)


def _version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        typer.echo(f"turnledger {version('turnledger')}")
        raise typer.Exit


@app.callback()
def turnledger(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Keeps conversations for chat apps and agents, and makes every turn a transaction."""


app.command()(serve)
app.command()(chat)
app.command()(check)
app.command()(backup)
app.command()(copy)
app.command()(doctor)
chats.command("export")(export)
chats.command("import")(import_chats)
app.add_typer(chats, name="chats")
app.add_typer(tokens, name="tokens")
app.add_typer(shares, name="shares")
