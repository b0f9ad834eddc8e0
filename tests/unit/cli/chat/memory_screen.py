"""A terminal screen in memory."""

from __future__ import annotations

import io
import re

import pyte
from rich.console import Console

from turnledger.cli.chat.markdown import THEME
from turnledger.cli.chat.screen import Screen

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class MemoryScreen:
    """A window with its scrollback."""

    def __init__(self, columns: int = 60, rows: int = 12) -> None:
        self.file = io.StringIO()
        self.console = Console(
            file=self.file,
            width=columns,
            height=rows,
            theme=THEME,
            force_terminal=True,
            color_system="standard",
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
        self.screen = Screen(self.console)
        self._window = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.Stream(self._window)
        self._read = 0

    @property
    def written(self) -> str:
        return self.file.getvalue()

    @property
    def lines(self) -> list[str]:
        """Lines of scrollback and window."""
        self._stream.feed(self.written[self._read :].replace("\n", "\r\n"))
        self._read = len(self.written)
        columns = range(self._window.columns)
        above = ["".join(line[column].data for column in columns) for line in self._window.history.top]
        lines = [line.rstrip() for line in (*above, *self._window.display)]
        while lines and not lines[-1]:
            lines.pop()
        return lines
