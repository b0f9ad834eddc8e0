"""Words as SQLite's full-text index keeps them, and a search in its language.

Each term begins with a mark of its owner and of a block of his turns: a search reads the terms of one owner
and block, however many others there are. What begins with some letters is gathered before the first of it
is told, so that a search for the beginning of a word costs what there is of it in a block. Whose a turn
really is, its conversation says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from turnledger.model.search_words import Phrase, words_of

_MARK = 12
"""Hexadecimal digits that stand for an owner, or for a scope."""


@lru_cache(maxsize=4096)
def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_MARK]


def _block_mark(owner: str, block: int) -> str:
    return f"{_mark(owner)}{block:x}"


def terms_of(owner: str, scope: str, block: int, texts: Iterable[str]) -> str:
    """The terms of texts that are found together; empty if they have no words."""
    mark = _block_mark(owner, block)
    found = dict.fromkeys(each for text in texts for each in words_of(text))
    return f" {mark}w".join([f"{mark}s{_mark(scope)}", *found]) if found else ""


def asked(owner: str, scope: str | None, block: int, sought: Sequence[Phrase]) -> str:
    """A search for all words of these phrases, in one scope or in all."""
    mark = _block_mark(owner, block)
    terms = [] if scope is None else [f"{mark}s{_mark(scope)}"]
    for phrase in sought:
        terms += [f'"{mark}w{word}"' for word in phrase.words]
        terms[-1] += " *" if phrase.is_open else ""
    return " AND ".join(terms)
