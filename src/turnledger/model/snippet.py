"""Snippets: the part of a text that shows why it was found."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from turnledger.model.search_words import Phrase, composed, has, places_of, spans_of, words_of

LENGTH = 160
"""Characters that a snippet has at most."""
BEFORE = 40
"""Of these, how many come before the first word that was looked for."""
CUT = "…"

_BREAK = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_CHUNK = re.compile(r"[^ ]+")


class Snippet(Struct, frozen=True):
    """Plain text on one line, and the parts of it that were looked for, as offsets of its characters."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def snippet_of(texts: Sequence[str], sought: Sequence[Phrase]) -> Snippet | None:
    """The part of these texts that shows most of what was sought; None if not all of it is there."""
    if not sought:
        return None
    words = [words_of(text) for text in texts]
    there = [[phrase for phrase in sought if has(phrase, each)] for each in words]
    if not all(any(phrase in found for found in there) for phrase in sought):
        return None
    best = max(range(len(texts)), key=lambda place: (len(there[place]), -place))
    line = composed(_BREAK.sub(" ", texts[best]).strip())
    first = min(next(places_of(phrase, words[best])) for phrase in there[best])
    return _marked(_window(line, first), there[best])


def _window(line: str, word: int) -> str:
    """The part of a line around the word of this number."""
    if len(line) <= LENGTH:
        return line
    at = _offset(line, word)
    start = min(max(0, at - BEFORE), len(line) - LENGTH)
    end = start + LENGTH
    if start:
        start = line.find(" ", start, at) + 1 or start
    if end < len(line):
        end = max(line.rfind(" ", at + 1, end), 0) or end
    return (CUT if start else "") + line[start:end] + (CUT if end < len(line) else "")


def _offset(line: str, word: int) -> int:
    """Where the word of this number stands."""
    passed = 0
    for chunk in _CHUNK.finditer(line):
        count = len(words_of(chunk[0]))
        if passed + count > word:
            return chunk.start() + spans_of(chunk[0])[word - passed].start
        passed += count
    return 0


def _marked(text: str, sought: Sequence[Phrase]) -> Snippet:
    spans = spans_of(text)
    words = [span.word for span in spans]
    marks = {
        (spans[place].start, spans[place + len(phrase.words) - 1].end)
        for phrase in sought
        for place in places_of(phrase, words)
    }
    return Snippet(text, tuple(_joined(sorted(marks))))


def _joined(marks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same marks without overlaps."""
    joined: list[tuple[int, int]] = []
    for start, end in marks:
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
