"""What is written, and where: results to standard output, what is said about them to standard error. Nothing
that people or models wrote reaches a terminal but what can be printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TextIO

import typer

from turnledger.model.text.plain import plain

_BETWEEN_TOKENS = str.maketrans("\n\r\t", "   ")


def say(text: str) -> None:
    """Tell who sits there, beside what is printed."""
    typer.echo(plain(text), err=True)


def tell(text: str) -> None:
    """Print one line of what was asked for."""
    typer.echo(plain(text))


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether somebody looks at the standard output, or at another one, and no program reads it."""
    stream = stream or sys.stdout
    return stream is not None and stream.isatty()  # None: it was closed by who started us


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, whole, with the cells of a column below each other."""
    shown = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(_cells, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  ".join(cell + " " * (width - _cells(cell)) for cell, width in zip(row, widths, strict=True))
        for row in shown
    ]
    return [line.rstrip() for line in lines]


def _cells(text: str) -> int:
    """How much room it takes where all letters of a line have as much, and some have twice that."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def json_of(value: Any) -> str:
    """A value as JSON, on one line that can be printed: what cannot stands there as `\\u` and its number."""
    from turnledger.api.json import encode

    return printable_json(encode(value).decode())


def printable_json(text: str) -> str:
    """The same JSON, of which everything can be printed: items are kept as they were given, and JSON allows
    most control characters in a text."""
    if text.isprintable():
        return text
    text = text.translate(_BETWEEN_TOKENS)  # no text has them as they are
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
