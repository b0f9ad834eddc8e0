"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnledger.cli.backend.completion import chats_beginning_with, ids_of_deleted

PAGE = 50
"""Chats or turns that are shown where nobody says how many."""

Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A server in place of a store. Default: TURNLEDGER_SERVER, if set."),
]
Store = Annotated[str | None, typer.Option(metavar="URL", help="Default: that of `turnledger serve`.")]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The server's turnledger.toml, which names its store.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs; times are milliseconds since 1970.")]
Owner = Annotated[
    str | None, typer.Option(help="Whose they are, in a store. Default: of who comes without a token.")
]
Only = Annotated[str | None, typer.Option(help="Only those of this scope. Default: all.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="So many at most.")]
Cursor = Annotated[str | None, typer.Option(help="Where the page before has ended, as it said.")]
Scope = Annotated[str, typer.Option(help="The scope in which a conversation_key is looked up.")]
Named = Annotated[
    str,
    typer.Argument(
        metavar="CHAT",
        help="An id, as in conv_…, or a conversation_key.",
        autocompletion=chats_beginning_with,
    ),
]
Several = Annotated[
    list[str],
    typer.Argument(metavar="CHAT…", help="Ids, or conversation_keys.", autocompletion=chats_beginning_with),
]
Deleted = Annotated[
    list[str],
    typer.Argument(
        metavar="ID…", help="As in conv_…; `list --deleted` has them.", autocompletion=ids_of_deleted
    ),
]
