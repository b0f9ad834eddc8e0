"""Words as SQLite's full-text index keeps them, and a search in its language.

Each term begins with a mark of its owner: a search reads the terms of one owner only, however many others
there are, and their beginnings too. Whose a turn really is, its conversation says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from turnledger.model.search_words import Phrase, words_of

_MARK = 12
"""Hexadecimal digits that stand for an owner, or for a scope. The tables know how long they are."""


@lru_cache(maxsize=4096)
def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_MARK]


def _scope_term(owner: str, scope: str) -> str:
    return f"{_mark(owner)}s{_mark(scope)}"


def terms_of(owner: str, scope: str, texts: Iterable[str]) -> str:
    """The terms of texts that are found together; empty if they have no words. Between two texts stands a
    term that no search asks for: no phrase reaches from one into the next."""
    mark = _mark(owner)
    word, pause = f" {mark}w", f" {mark}"
    found = [word.join(["", *words_of(text)]) for text in texts]
    return f"{_scope_term(owner, scope)}{pause.join(found)}" if any(found) else ""


def asked(owner: str, scope: str | None, sought: Sequence[Phrase]) -> str:
    """A search for all of these phrases, in one scope or in all."""
    mark = _mark(owner)
    parts = [] if scope is None else [_scope_term(owner, scope)]
    for phrase in sought:
        terms = " ".join(f"{mark}w{word}" for word in phrase.words)
        parts.append(f'"{terms}" *' if phrase.is_open else f'"{terms}"')
    return " AND ".join(parts)
