"""Output streams: results on standard output, messages about them on standard error. Only printable
characters reach a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TextIO

import typer

from turnledger.model.text.plain import plain

_BETWEEN_TOKENS = str.maketrans("\n\r\t", "   ")


def print_message(text: str) -> None:
    """Print a message to standard error."""
    typer.echo(plain(text), err=True)


def print_result(text: str) -> None:
    """Print one line of the result."""
    typer.echo(plain(text))


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether the standard output, or another stream, is a terminal."""
    stream = stream or sys.stdout
    return stream is not None and stream.isatty()  # None: the parent process closed it


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with aligned columns and no cell shortened."""
    shown = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(_width_of, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  ".join(cell + " " * (width - _width_of(cell)) for cell, width in zip(row, widths, strict=True))
        for row in shown
    ]
    return [line.rstrip() for line in lines]


def _width_of(text: str) -> int:
    """Return the width in a monospaced font, where some letters take two cells."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def json_of(value: Any) -> str:
    """Return a value as JSON on one line, with unprintable characters as `\\u` escapes."""
    from turnledger.api.json import encode

    return printable_json(encode(value).decode())


def printable_json(text: str) -> str:
    """Escape unprintable characters in JSON: items are stored as given, and JSON allows most control
    characters in a text."""
    if text.isprintable():
        return text
    text = text.translate(_BETWEEN_TOKENS)  # they only occur between tokens
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
