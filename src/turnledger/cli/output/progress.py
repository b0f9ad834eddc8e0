"""Progress of long work: a bar on standard error, if that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import typer

from turnledger.cli.output.streams import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn, TaskID

DELAY = 0.5
"""Seconds before a bar appears; shorter work needs none."""


class Progress:
    """A bar that appears when work takes long, and disappears at its end. `total` is None if unknown."""

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        in_bytes: bool = False,
        is_shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._total, self._in_bytes = label, total, in_bytes
        self._clock, self._began = clock, clock()
        self._is_shown = is_shown and sys.stderr is not None and is_terminal(sys.stderr)
        self._done = 0
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def poll_interval(self) -> float | None:
        """Seconds after which a waiting caller should `advance` by 0, so that a bar appears; None if none
        will."""
        return DELAY if self._is_shown else None

    def advance(self, by: int) -> None:
        self.reach(self._done + by)

    def reach(self, done: int) -> None:
        self._done = done
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._is_shown and self._clock() - self._began >= DELAY:
            self._begin()

    def print_line(self, line: str) -> None:
        """Print a line to the standard output, above the bar if there is one."""
        if self._bar is None or not is_terminal():
            typer.echo(line)
            return
        from rich.text import Text

        # Both are the same terminal: a line written without the bar's console would end up within it.
        self._bar.console.print(Text(line), soft_wrap=True)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        console.width = max(1, console.width - len("^C"))  # leaves room for it: otherwise the line would wrap
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            *self._amount_columns(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(self._label, total=self._total, completed=self._done)
        self._bar.start()

    def _amount_columns(self) -> tuple[ProgressColumn, ...]:
        """Return the columns for the amount done, and the total if known."""
        from rich.progress import DownloadColumn, FileSizeColumn, MofNCompleteColumn
        from rich.table import Column

        no_wrap = Column(no_wrap=True)
        if self._total is None:
            return (FileSizeColumn(table_column=no_wrap),) if self._in_bytes else ()
        if self._in_bytes:
            return (DownloadColumn(table_column=no_wrap),)
        return (MofNCompleteColumn(table_column=no_wrap),)
