"""Search: words, phrases, snippets and results. Stored, typed and marked text is split by the same rules.

Letters are compared without case, accents and typographic variants. In scripts without spaces each character
is a word, and adjacent characters form a phrase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from unicodedata import category, combining, normalize

from msgspec import Struct

from turnledger.model.ids import ConversationId, TurnId

WORD_LENGTH = 64
"""Characters by which words are distinguished; natural words are shorter."""
WORDS_OF_TEXT = 50_000
"""Words of one text that are indexed; a long book has more."""
QUERY_WORDS = 32
"""Words of one query; further ones are ignored."""

_ACCENTS = 10
"""Combining class from which marks are accents, points and tones; lower ones are parts of letters."""
_SPACELESS = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai and Lao, Burmese, Khmer
    *((0x3005, 0x3007), (0x3040, 0x312F), (0x31F0, 0x31FF)),  # kana and bopomofo
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x3FFFF)),  # Han
)
FIRST_SYLLABLE = "\uac00"
_ZERO_WIDTH_SPACE = "\u200b"
_QUOTES = re.compile('["\u201c\u201d\u201e\u201f\uff02]')


class Phrase(Struct, frozen=True):
    """Words that must follow each other. In an open phrase the last word is a prefix."""

    words: tuple[str, ...]
    is_open: bool = False


class Span(Struct, frozen=True):
    word: str
    start: int
    end: int


class _Folds(dict[int, str]):
    """Cache of folded characters, filled on first use."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold(chr(code))
        return folded


_folds = _Folds()


def _fold(letter: str) -> str:
    """Return what a character adds to words: letters, nothing, or a space between words."""
    decomposed = normalize("NFKD", normalize("NFKD", letter).casefold())
    kept = normalize("NFC", "".join(each for each in decomposed if not _is_dropped(each)))
    return "".join(map(_separate, kept))


def _is_dropped(letter: str) -> bool:
    kind = category(letter)
    if kind == "Mn":
        return combining(letter) >= _ACCENTS or "\ufe00" <= letter <= "\ufe0f"
    return kind == "Me" or (kind == "Cf" and letter != _ZERO_WIDTH_SPACE)


def _separate(letter: str) -> str:
    if any(first <= ord(letter) <= last for first, last in _SPACELESS):
        return f" {letter} " if letter.isalnum() or category(letter)[0] == "M" else " "
    return letter if letter.isalnum() or category(letter)[0] == "M" else " "


def compose(text: str) -> str:
    """Compose each letter and its accents into one character; offsets count these."""
    return text if text.isascii() else normalize("NFC", text)


def words_of(text: str) -> list[str]:
    words = compose(text).translate(_folds).split(None, WORDS_OF_TEXT)[:WORDS_OF_TEXT]
    return [word[:WORD_LENGTH] for word in words]


def spans_of(text: str) -> list[Span]:
    """Return the words of a composed text with offsets. Slower than `words_of`: for short texts."""
    found: list[Span] = []
    word, start, end = "", 0, 0
    for place, letter in enumerate(text):
        folded = _folds[ord(letter)]
        if not folded and word:
            end = place + 1
        for each in folded:
            if each != " ":
                start = start if word else place
                word, end = word + each, place + 1
            elif word:
                found.append(Span(word[:WORD_LENGTH], start, end))
                word = ""
    if word:
        found.append(Span(word[:WORD_LENGTH], start, end))
    return found


def parse_query(query: str) -> tuple[Phrase, ...]:
    """Parse a query: all of its words must match.

    Text in quotes, or without a space, is one phrase. The last word is a prefix unless its quote is closed or
    it is a single letter. Any text is valid; one without words finds nothing.
    """
    phrases: list[Phrase] = []
    left = QUERY_WORDS
    for chunk, is_open in _chunks(query):
        words = tuple(words_of(chunk)[:left])
        left -= len(words)
        if words:
            phrases.append(Phrase(words, is_open and _may_be_prefix(words[-1])))
        if not left:
            break
    return tuple(phrases)


def _may_be_prefix(word: str) -> bool:
    """Return whether a word is long enough for a prefix; one Korean syllable is."""
    return len(word) > 1 or word >= FIRST_SYLLABLE


def _chunks(query: str) -> Iterator[tuple[str, bool]]:
    """Split a query into quoted parts and parts between spaces, each with whether it is a prefix."""
    *quoted, last = _QUOTES.split(query)
    is_quoted = False
    for part in quoted:
        yield from ((each, False) for each in ([part] if is_quoted else part.split()))
        is_quoted = not is_quoted
    pieces = [last] if is_quoted else last.split()
    yield from ((each, place == len(pieces)) for place, each in enumerate(pieces, 1))


def places_of(phrase: Phrase, words: Sequence[str]) -> Iterator[int]:
    """Yield each position in a text at which a phrase begins."""
    *before, last = phrase.words
    count = len(before)
    for place in range(count, len(words)):
        word = words[place]
        is_last = word.startswith(last) if phrase.is_open else word == last
        if is_last and before == list(words[place - count : place]):
            yield place - count


def contains(phrase: Phrase, words: Sequence[str]) -> bool:
    return next(places_of(phrase, words), None) is not None


LENGTH = 160
"""Characters of a snippet at most."""
BEFORE = 40
"""Of these, those before the first match."""
CUT = "…"

_BREAK = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_CHUNK = re.compile(r"[^ ]+")


class Snippet(Struct, frozen=True):
    """Plain text on one line, and its matches as character offsets."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def snippet_of(texts: Sequence[str], phrases: Sequence[Phrase]) -> Snippet | None:
    """Return the part of these texts with the most matches; None if a phrase is missing."""
    if not phrases:
        return None
    words = [words_of(text) for text in texts]
    there = [[phrase for phrase in phrases if contains(phrase, each)] for each in words]
    if not all(any(phrase in found for found in there) for phrase in phrases):
        return None
    best = max(range(len(texts)), key=lambda place: (len(there[place]), -place))
    line = compose(_BREAK.sub(" ", texts[best]).strip())
    first = min(next(places_of(phrase, words[best])) for phrase in there[best])
    return _mark(_window(line, first), there[best])


def _window(line: str, word: int) -> str:
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
    passed = 0
    for chunk in _CHUNK.finditer(line):
        count = len(words_of(chunk[0]))
        if passed + count > word:
            return chunk.start() + spans_of(chunk[0])[word - passed].start
        passed += count
    return 0


def _mark(text: str, phrases: Sequence[Phrase]) -> Snippet:
    spans = spans_of(text)
    words = [span.word for span in spans]
    marks = {
        (spans[place].start, spans[place + len(phrase.words) - 1].end)
        for phrase in phrases
        for place in places_of(phrase, words)
    }
    return Snippet(text, tuple(_join(sorted(marks))))


def _join(marks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in marks:
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


TITLES = 1 << 61
"""Places above this are titles, which come before all turns."""


class SearchMatch(Struct, frozen=True):
    """A result. Results are in descending order of place: titles first, newest conversation first, then
    turns, last committed first. A place is unique while it is taken."""

    place: int
    conversation: ConversationId
    turn: TurnId | None = None
    """None for a match in the title."""
