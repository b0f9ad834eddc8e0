"""An answer while it comes: which of its blocks are finished, and what the last one looks like so far."""

from __future__ import annotations

import re
from enum import Enum

from msgspec.structs import replace

from turnledger.cli.talking.harmless import harmless
from turnledger.cli.talking.markdown import LARGEST, Block, blocks_of

_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})[^\n]*\n")
_UNDECIDED = re.compile(r"\s*(?:[0-9]{1,9}|[-+*])\s*")
"""May become another item of the list before it."""
CODE_LINES = 40
"""Lines of code that are held until the block ends; of more, the first are finished before."""


class Behind(Enum):
    """What the text that is held comes behind."""

    BLOCK = "block"  # or nothing
    ITEM = "item"  # of a list, of which it may be another
    CODE = "code"  # which goes on in it
    PIECE = "piece"  # of a block that was too large


class Streamed:
    """Takes text as it comes. What it holds, and thereby what a look at it costs, is one block."""

    def __init__(self, code_lines: int = CODE_LINES) -> None:
        self._code_lines = code_lines
        self._text = ""
        self._behind = Behind.BLOCK
        self._half = ""  # of a line's end
        self.is_blank = True
        """Whether nothing was said yet."""

    def feed(self, text: str) -> None:
        """Take what has come."""
        text, self._half = self._half + text, ""
        if text.endswith("\r"):
            text, self._half = text[:-1], "\r"
        self.is_blank = self.is_blank and not text.strip()
        self._text += harmless(text)

    def finished(self) -> list[Block]:
        """Let go of the blocks that nothing can change any more."""
        blocks = blocks_of(self._text)
        if len(blocks) > 1 and _UNDECIDED.fullmatch(blocks[-1].text):
            blocks[-2:] = [replace(blocks[-2], text=f"{blocks[-2].text}\n{blocks[-1].text}")]
        return [*self._all_but_last(blocks), *self._pieces()]

    def _all_but_last(self, blocks: list[Block]) -> list[Block]:
        if len(blocks) < 2:
            return []
        done = [self._placed(blocks[0]), *blocks[1:-1]]
        self._text = blocks[-1].text
        self._behind = Behind.ITEM if blocks[-1].joins else Behind.BLOCK
        return done

    def _pieces(self) -> list[Block]:
        """What is finished of a block that goes on and on."""
        done: list[Block] = []
        fence = _FENCE.match(self._text)
        lines = self._text.split("\n")
        half = self._code_lines // 2
        while fence is not None and len(lines) > self._code_lines:
            done.append(self._placed(Block("\n".join(lines[: half + 1]), closes=False)))
            lines[1 : half + 1] = []
            self._text, self._behind = "\n".join(lines), Behind.CODE
        if len(self._text) > LARGEST:
            done.append(self._placed(Block(self._text)))
            self._text, self._behind = "", Behind.PIECE
        return done

    def _placed(self, first: Block) -> Block:
        """The first block that is held, as it stands behind the one before."""
        is_next_item = self._behind is Behind.ITEM and first.is_item
        goes_on = self._behind in (Behind.CODE, Behind.PIECE)
        return replace(first, joins=is_next_item or goes_on, opens=self._behind is not Behind.CODE)

    @property
    def tail(self) -> Block | None:
        """The block that is not finished."""
        blocks = blocks_of(self._text)
        return self._placed(blocks[0]) if blocks else None

    def rest(self) -> list[Block]:
        """Let go of everything: nothing comes any more."""
        self._text += harmless(self._half)
        done = [*self._all_but_last(blocks_of(self._text)), *self._pieces()]
        tail = self.tail
        self._text, self._behind, self._half = "", Behind.BLOCK, ""
        return done if tail is None else [*done, tail]
