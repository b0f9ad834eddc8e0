"""An answer that comes in pieces looks as if it had come whole."""

from __future__ import annotations

import random

from tests.unit.cli.talking.paper import Paper
from turnledger.cli.talking.markdown import LARGEST, blocks_of
from turnledger.cli.talking.streamed import CODE_LINES, Streamed

ANSWER = """\
# Heading

A paragraph of some *words* that is long enough to be broken, and **goes on** for a while
with a second line.

Setext
------

1. first
   - nested
   - more
2. second

   with a paragraph
3. third

10. tenth

11. eleventh

* bullet
* bullet

| a | b |
|---|---|
| 1 | 2 |

> quoted
lazily

```python
x = '''
# no heading

- no list
'''
```

    indented code

    goes on

Last words.
"""


def streamed(answer: str, pieces: list[str], columns: int, rows: int) -> Paper:
    paper, coming = Paper(columns, rows), Streamed()
    for piece in pieces:
        coming.feed(piece)
        paper.screen.blocks(coming.finished(), coming.tail, "status")
    paper.screen.blocks(coming.rest())
    paper.screen.settle()
    return paper


def pieces_of(text: str, chance: random.Random, longest: int) -> list[str]:
    pieces = []
    while text:
        length = chance.randint(1, longest)
        pieces.append(text[:length])
        text = text[length:]
    return pieces


def at_once(answer: str, columns: int, rows: int) -> list[str]:
    paper = Paper(columns, rows)
    paper.screen.blocks(blocks_of(answer))
    return paper.lines


def test_however_it_is_cut_the_screen_ends_the_same() -> None:
    chance = random.Random(3)
    for answer, longest, columns, rows in (
        (ANSWER, 3, 60, 30),
        (ANSWER, 12, 40, 6),
        (ANSWER.replace("\n", "\r\n"), 5, 40, 6),
    ):
        pieces = pieces_of(answer, chance, longest)
        assert streamed(answer, pieces, columns, rows).lines == at_once(ANSWER, columns, rows)


def test_a_paragraph_higher_than_the_window_is_whole_in_the_end() -> None:
    words = " ".join(f"word{number}" for number in range(120))
    shown = streamed(words, pieces_of(words, random.Random(5), 9), 40, 6).lines
    assert " ".join(shown).split() == words.split()


def test_long_code_is_finished_in_pieces() -> None:
    code = [f"line {number}\n" for number in range(3 * CODE_LINES)]
    coming = Streamed()
    coming.feed("```text\n")
    most = 0
    for line in code:
        coming.feed(line)
        coming.finished()
        most = max(most, len(coming.tail.text if coming.tail else ""))
    assert most < 2 * CODE_LINES * len(code[-1])
    answer = f"Before\n\n```text\n{''.join(code)}```\nBehind"
    shown = streamed(answer, pieces_of(answer, random.Random(1), 30), 40, 10).lines
    assert shown == ["Before", "", "```text", *map(str.rstrip, code), "```", "", "Behind"]


def test_a_block_without_end_is_not_held_for_ever() -> None:
    coming = Streamed()
    held = 0
    for _ in range(100):
        coming.feed("word " * 200)
        coming.finished()
        held = max(held, len(coming.tail.text if coming.tail else ""))
    assert held <= LARGEST + 1000
