"""All commands, in the order in which `turnledger --help` lists them."""

from __future__ import annotations

import typer

from turnledger.cli.chats import chats
from turnledger.cli.check import check
from turnledger.cli.doctor import doctor
from turnledger.cli.serve import serve
from turnledger.cli.talking.command import chat
from turnledger.cli.tokens import tokens
from turnledger.cli.transfer import export, import_chats

app = typer.Typer(
    help="Keeps conversations for chat apps and agents, and makes every turn a transaction.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(chat)
app.command()(check)
app.command()(doctor)
app.add_typer(tokens, name="tokens")
chats.command("export")(export)
chats.command("import")(import_chats)
app.add_typer(chats, name="chats")
