"""What commands share that work on the store of a server, whether that runs or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from turnledger.errors import TurnledgerError
from turnledger.model.printable import plain

NOT_DONE = 2
"""Exit code: it could not be done, or not all of it. 0: it was."""

Done = TypeVar("Done")
Store = Annotated[str | None, typer.Option(metavar="URL", help="Default: that of `turnledger serve`.")]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The server's turnledger.toml, which names its store.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs; times are milliseconds since 1970.")]


def run(work: Callable[[], Coroutine[Any, Any, Done]]) -> Done:
    """Do something with a store; what goes wrong is told on one line."""
    try:
        return asyncio.run(work())
    except TurnledgerError as problem:
        say(f"{problem.code}: {problem}")
        raise typer.Exit(NOT_DONE) from None


def say(text: str) -> None:
    """Tell who sits there, beside what is printed."""
    typer.echo(plain(text), err=True)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, with the cells of a column below each other."""
    shown = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)) for row in shown]
    return [line.rstrip() for line in lines]


def as_text(value: Any) -> str:
    """A value as JSON, on one line."""
    return msgspec.json.encode(value, enc_hook=str).decode()
