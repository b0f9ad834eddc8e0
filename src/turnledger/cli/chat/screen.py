"""The terminal: finished output stays above, and below it some lines change until they are finished.

Nothing is erased before it is written again, and all changes are written at once, so the screen does not
flicker. Only the last lines are ever rewritten, fewer than the window has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from turnledger.cli.chat.markdown import THEME, Markdown, MarkdownBlock
from turnledger.cli.output.sanitize import sanitize

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # synchronized output, where supported
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
# Terminals differ in the width of some letters. A changing line takes one row all the same: it is cut where
# it would wrap, and shown whole once it is finished.
_CUT, _BREAK = "\x1b[?7l", "\x1b[?7h"


def console_for(file: TextIO) -> Console:
    """Return the console for a file; output is never parsed as markup."""
    return Console(file=file, theme=THEME, markup=False, highlight=False, emoji=False, soft_wrap=False)


def is_light(environment: str | None) -> bool:
    """Whether `COLORFGBG` says that the window is light."""
    return (environment or "").rpartition(";")[2] in ("7", "15")


class Screen:
    """Writes to one terminal. `code_theme` is for code in Markdown."""

    def __init__(self, console: Console, code_theme: str = "ansi_dark") -> None:
        self._console = console
        self._code_theme = code_theme
        self._live: list[str] = []
        self._is_blank = True
        # The last drawn block, cached: it stays the same while no text arrives.
        self._drawn: tuple[MarkdownBlock, int] | None = None
        self._drawn_lines: list[str] = []
        self.can_rewrite = console.is_terminal and not console.is_dumb_terminal

    @property
    def is_ascii(self) -> bool:
        return self._console.options.ascii_only

    @property
    def height(self) -> int:
        return self._console.height

    @property
    def width(self) -> int:
        return self._console.width

    def print(self, *parts: RenderableType) -> None:
        """Print output that stays, each part on a new line."""
        self._write([line for each in parts for line in self._lines(each)], [])

    def blank(self) -> None:
        if not self._is_blank:
            self._write([""], [])

    def mark_input(self) -> None:
        """Note that the user has typed a line: output continues below it."""
        self._is_blank = False

    def blocks(
        self, done: Sequence[MarkdownBlock], tail: MarkdownBlock | None = None, status: str = ""
    ) -> None:
        """Print finished blocks, and below them an unfinished one and the status. If a block is higher than
        the window, only its end is shown until it is finished."""
        self._check_width()
        settled: list[str] = []
        for block in done:
            settled += self._spaced(block, settled)
        live: list[str] = []
        if self.can_rewrite:
            room = max(1, self._console.height - 3)
            live = self._spaced(tail, settled)[-room:] if tail is not None else []
            live += self._lines(Text(status[: self.width - 1], "dim")) if status else []
        self._write(settled, live)

    def clear_live(self) -> None:
        self._write([], [])

    def _check_width(self) -> None:
        """Check that the changing lines are still where they were written. A narrower window has wrapped them
        in an unknown way: they stay, and are written again below. Duplicates can be read; overwritten text
        cannot."""
        if any(cell_len(_COLOURS.sub("", line)) > self.width for line in self._live):
            self._write_raw("\x1b[1A\r\x1b[J")  # the last line is the status
            self._live, self._is_blank = [], False

    def _spaced(self, block: MarkdownBlock, before: Sequence[str]) -> list[str]:
        """Return the lines of a block, after an empty one if needed."""
        key = (block, self.width)
        if key != self._drawn:
            lines = self._lines(Markdown(block, code_theme=self._code_theme))
            is_whole = block.opens and block.closes
            self._drawn, self._drawn_lines = key, _without_margins(lines) if is_whole else lines
        lines = self._drawn_lines
        is_below_blank = before[-1] == "" if before else self._is_blank
        return lines if block.joins or is_below_blank else ["", *lines]

    def _lines(self, renderable: RenderableType) -> list[str]:
        """Return the lines of something rendered, with colours, without trailing spaces."""
        options = self._console.options.update(height=None)
        rendered = self._console.render_lines(renderable, options, pad=False)
        return [self._line(_trim(line)) for line in rendered]

    def _line(self, segments: list[Segment]) -> str:
        with self._console.capture() as captured:
            self._console.print(Segments(segments), end="", soft_wrap=True)
        return captured.get().rstrip("\n")

    def _write(self, settled: Sequence[str], live: Sequence[str]) -> None:
        if not self.can_rewrite:
            self._write_raw("".join(f"{line}\n" for line in settled))
        else:
            up = f"\r\x1b[{len(self._live)}A" if self._live else ""
            lines = [f"{line}\x1b[K\n" for line in settled]
            if live:
                lines += [_CUT, *(f"{line}\x1b[K\n" for line in live), _BREAK]
            clear = "\x1b[J" if self._live else ""
            cursor = (_HIDE if live else "") + (_SHOW if self._live and not live else "")
            if lines or clear:
                self._write_raw("".join((_BEGIN, cursor, up, *lines, clear, _END)))
        if settled:
            self._is_blank = settled[-1] == ""
        self._live = list(live)

    def _write_raw(self, text: str) -> None:
        if text:
            self._console.file.write(text)
            self._console.file.flush()


def _without_margins(lines: list[str]) -> list[str]:
    full = [index for index, line in enumerate(lines) if line]
    return lines[full[0] : full[-1] + 1] if full else []


def _trim(line: Sequence[Segment]) -> list[Segment]:
    kept = [Segment(sanitize(text), style) for text, style, control in line if text and not control]
    while kept and not kept[-1].text.rstrip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept
