"""Records in columns: a table if the window is wide enough, otherwise a few lines for each; in a pipe, whole
lines. Values to copy, such as an id, are never shortened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import typer

from turnledger.cli.output.streams import align_rows, is_terminal
from turnledger.model.text.plain import plain

GAP = 2
"""Spaces between columns, and the indent of lines below the first."""


class Column(NamedTuple):
    """A column. One with a `min_width` width is shortened down to that before the table is given up."""

    title: str
    min_width: int | None = None
    wraps: bool = False
    """Whether long text continues below; otherwise it ends in an ellipsis."""
    is_optional: bool = False
    """Whether it may be left out to make room for the others."""


class Record(NamedTuple):
    """The cells of a row; and the same as separate lines, the first of them bold."""

    cells: tuple[str, ...]
    lines: tuple[str, ...]


def print_records(columns: Sequence[Column], records: Sequence[Record]) -> None:
    if not records:
        return
    if is_terminal():
        _print_on_terminal(columns, records)
        return
    for line in align_rows([[column.title for column in columns], *(record.cells for record in records)]):
        typer.echo(line)


def _print_on_terminal(columns: Sequence[Column], records: Sequence[Record]) -> None:
    from turnledger.cli.output.terminal import open_screen

    screen = open_screen()
    shown = [[plain(cell) for cell in record.cells] for record in records]
    needed = [at for at, column in enumerate(columns) if not column.is_optional]
    for chosen in (range(len(columns)), needed):
        some = [columns[at] for at in chosen]
        rows = [[row[at] for at in chosen] for row in shown]
        widths = widths_of(some, rows, screen.width)
        if widths is not None:
            screen.table(some, widths, rows)
            return
    for record in records:
        screen.paragraph([plain(line) for line in record.lines])


def widths_of(columns: Sequence[Column], rows: Sequence[Sequence[str]], window: int) -> list[int] | None:
    """Return the width of each column in a window; None if there is no room for a table."""
    from rich.cells import cell_len

    titled = [[column.title for column in columns], *rows]
    widths = [max(map(cell_len, cells)) for cells in zip(*titled, strict=True)]
    min_widths = [
        width if column.min_width is None else min(width, max(column.min_width, len(column.title)))
        for column, width in zip(columns, widths, strict=True)
    ]
    room = window - GAP * (len(columns) - 1)
    if sum(min_widths) > room:
        return None
    while (excess := sum(widths) - room) > 0:
        spare = [width - minimum for width, minimum in zip(widths, min_widths, strict=True)]
        widest = max(range(len(widths)), key=lambda at: (spare[at] > 0, widths[at]))
        others = [width for at, width in enumerate(widths) if at != widest and spare[at] > 0]
        # The widest column shrinks first, down to the next one: a long text must not cut a short one.
        step = max(1, widths[widest] - max(others, default=0))
        widths[widest] -= min(excess, spare[widest], step)
    return widths
