"""Records in columns: a table where the window is wide enough, a few lines for each where it is not; in a
pipe, whole lines. What must be copied, as an id, is never shortened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import typer

from turnledger.cli.output.streams import aligned, is_terminal
from turnledger.model.text.plain import plain

GAP = 2
"""Spaces between columns, and before what stands below a line."""


class Column(NamedTuple):
    """A column. One with a `least` width is shortened down to that before the table is given up."""

    title: str
    least: int | None = None
    wraps: bool = False
    """Whether what does not fit goes on below; else it ends in an ellipsis."""
    is_spare: bool = False
    """Whether it is left out where that makes room for the others."""


class Record(NamedTuple):
    """What stands in each column; and the same as lines of their own, the first of which stands out."""

    cells: tuple[str, ...]
    lines: tuple[str, ...]


def print_records(columns: Sequence[Column], records: Sequence[Record]) -> None:
    """Print them; nothing for none."""
    if not records:
        return
    if is_terminal():
        _on_screen(columns, records)
        return
    for line in aligned([[column.title for column in columns], *(record.cells for record in records)]):
        typer.echo(line)


def _on_screen(columns: Sequence[Column], records: Sequence[Record]) -> None:
    from turnledger.cli.output.terminal import open_screen

    screen = open_screen()
    shown = [[plain(cell) for cell in record.cells] for record in records]
    needed = [at for at, column in enumerate(columns) if not column.is_spare]
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
    """How wide each column is in a window; None if there is no room for a table."""
    from rich.cells import cell_len

    titled = [[column.title for column in columns], *rows]
    widths = [max(map(cell_len, cells)) for cells in zip(*titled, strict=True)]
    least = [
        width if column.least is None else min(width, max(column.least, len(column.title)))
        for column, width in zip(columns, widths, strict=True)
    ]
    room = window - GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    while (beyond := sum(widths) - room) > 0:
        spare = [width - few for width, few in zip(widths, least, strict=True)]
        widest = max(range(len(widths)), key=lambda at: (spare[at] > 0, widths[at]))
        others = [width for at, width in enumerate(widths) if at != widest and spare[at] > 0]
        # The widest gives first, down to the next one: a long text shall not cost a short one its end.
        step = max(1, widths[widest] - max(others, default=0))
        widths[widest] -= min(beyond, spare[widest], step)
    return widths
