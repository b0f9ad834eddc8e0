"""An answer while it comes: which of its blocks are finished, and what the last one looks like so far."""

from __future__ import annotations

import re

from turnledger.cli.talking.harmless import harmless
from turnledger.cli.talking.markdown import LARGEST, Block, blocks_of

_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})[^\n]*\n")
CODE_LINES = 40
"""Lines of code that are held until the block ends; of more, the first are finished before."""


class Streamed:
    """Takes text as it comes. What it holds, and thereby what a look at it costs, is one block."""

    def __init__(self, code_lines: int = CODE_LINES) -> None:
        self._code_lines = code_lines
        self._open = Block("")
        self._half = ""  # of a line's end
        self.is_blank = True
        """Whether nothing was said yet."""

    def feed(self, text: str) -> None:
        """Take what has come."""
        text, self._half = self._half + text, ""
        if text.endswith("\r"):
            text, self._half = text[:-1], "\r"
        self.is_blank = self.is_blank and not text.strip()
        self._open = Block(self._open.text + harmless(text), self._open.joins, self._open.opens)

    def finished(self) -> list[Block]:
        """Let go of the blocks that nothing can change any more."""
        if not self._open.opens:
            return self._of_long_code()
        *done, last = blocks_of(self._open.text) or [Block("")]
        if not done and last.text == "":
            return []
        first = [Block(done[0].text, self._open.joins)] if done else []
        joins = last.joins if done else self._open.joins
        self._open = Block(last.text, joins)
        return [*first, *done[1:], *self._of_long_code(), *self._of_large()]

    def _of_long_code(self) -> list[Block]:
        """Code that goes on and on is finished in pieces."""
        fence = _FENCE.match(self._open.text)
        if fence is None:
            return []
        if len(blocks_of(self._open.text)) > 1:
            *done, last = blocks_of(self._open.text)
            code = Block(done[0].text, self._open.joins, self._open.opens)
            self._open = last
            return [code, *done[1:]]
        lines = self._open.text[fence.end() :].split("\n")
        if len(lines) <= self._code_lines:
            return []
        half = self._code_lines // 2
        piece = fence[0] + "\n".join(lines[:half])
        held = self._open
        self._open = Block(fence[0] + "\n".join(lines[half:]), joins=True, opens=False)
        return [Block(piece, held.joins, held.opens, closes=False)]

    def _of_large(self) -> list[Block]:
        if len(self._open.text) <= LARGEST:
            return []
        done, self._open = self._open, Block("", joins=True)
        return [done]

    @property
    def tail(self) -> Block | None:
        """The block that is not finished."""
        return self._open if self._open.text.strip() else None

    def rest(self) -> list[Block]:
        """Let go of everything: nothing comes any more."""
        done = self.finished()
        if self.tail is not None:
            done.append(self._open)
        self._open = Block("", joins=False)
        return done
