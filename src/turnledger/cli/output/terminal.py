"""Writes lines to a terminal: wraps them to its width, and styles them. Text is never parsed as markup, and
no line ends in spaces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from shutil import get_terminal_size

from rich.console import Console
from rich.text import Text

from turnledger.cli.output.table import GAP, Column

MIN_WIDTH = 8
"""Minimum characters of a line, however narrow the window."""


def open_screen() -> TerminalLines:
    """Open the terminal behind the standard output. Respects NO_COLOR and TERM."""
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_dumb_terminal:  # rich assumes 80 columns for all of these
        console.size = get_terminal_size()
    return TerminalLines(console)


class TerminalLines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self.width = console.width
        """Cells in a line of the window when the command began to write."""

    def table(self, columns: Sequence[Column], widths: Sequence[int], rows: Sequence[Sequence[str]]) -> None:
        self._row(columns, widths, [Text(column.title, "bold") for column in columns])
        for row in rows:
            self._row(columns, widths, list(map(Text, row)))

    def paragraph(self, lines: Sequence[str]) -> None:
        """Print a bold line, and others indented below it."""
        for number, line in enumerate(lines):
            self.text(Text(line, "" if number else "bold"), GAP if number else 0)

    def text(self, text: Text | str, indent: int = 0) -> None:
        """Print a text, wrapped at the window's width, with each line indented."""
        rendered = Text(text) if isinstance(text, str) else text
        room, margin = max(self.width - indent, MIN_WIDTH), " " * indent
        for line in self._wrap(rendered, room) if rendered.cell_len > room else [rendered]:
            self._line(Text(margin).append_text(line))

    def _row(self, columns: Sequence[Column], widths: Sequence[int], cells: Sequence[Text]) -> None:
        wrapped_cells = [
            self._wrap(cell, width) if column.wraps else [self._shorten(cell, width)]
            for column, width, cell in zip(columns, widths, cells, strict=True)
        ]
        for parts in zip_longest(*wrapped_cells, fillvalue=Text()):
            line = Text()
            for part, width in zip(parts, widths, strict=True):
                line.append_text(part)
                line.append(" " * (width - part.cell_len + GAP))
            self._line(line)

    def _wrap(self, text: Text, width: int) -> list[Text]:
        return list(text.wrap(self._console, width, overflow="fold")) or [Text()]

    def _shorten(self, text: Text, width: int) -> Text:
        text.truncate(width, overflow="ellipsis")
        return text

    def _line(self, line: Text) -> None:
        line.rstrip()
        if line.style or line.spans:
            self._console.print(line, soft_wrap=True)
        else:  # most of a chat, which may be long
            self._console.file.write(f"{line.plain}\n")
