"""Search in a PostgreSQL store: the words of texts as a tsvector, and the texts that are not indexed yet.

Each term begins with a mark of its owner and of a block of the owner's places, so that a search reads the
terms of one owner and block only. Places are numbers without gaps, given when a text is first indexed; they
need no sequence, since the row of the owner is locked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain

from turnledger.engine.tables.search import ShownBranch
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.text.search import TITLES, WORD_LENGTH, Phrase, SearchMatch, words_of
from turnledger.stores.damage import decoder
from turnledger.stores.postgresql.tables.queries import OwnedQueries, StoreQueries
from turnledger.stores.sql import search as sql_search
from turnledger.stores.sql.search import MARK_LENGTH, MOST_MADE, places_by_turn, texts_of

BLOCK = 8_192
"""Places of a block."""
MOST_TERM_BYTES = 900_000
"""Of one text: PostgreSQL allows 1 MB. Only a text without repetitions, such as encoded data, has more."""
LONGEST_TERM = 4 * WORD_LENGTH + 64
"""Bytes of a term at most, with its mark; PostgreSQL allows 2,046."""
_BEYOND = 2**62


@lru_cache(maxsize=4096)
def _mark(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:MARK_LENGTH]


def terms_of(owner: str, scope: str, place: int, texts: Iterable[str]) -> str:
    """Return the terms of texts that are found together, with spaces between them; empty if they have no
    words."""
    mark = f"{_mark(owner)}{place // BLOCK:x}"
    found = dict.fromkeys(chain.from_iterable(map(words_of, texts)))
    terms = [f"{mark}w{word}" for word in found]
    if len(found) * LONGEST_TERM > MOST_TERM_BYTES:
        sizes = accumulate(len(term.encode()) + 4 for term in terms)
        terms = [term for term, size in zip(terms, sizes, strict=True) if size <= MOST_TERM_BYTES]
    return " ".join((f"{mark}s{_mark(scope)}", *terms)) if found else ""


def match_query(scope: str | None, phrases: Sequence[Phrase]) -> str:
    """Return the query for all words of these phrases, with % for the mark of owner and block."""
    terms = [] if scope is None else [f"'%s{_mark(scope)}'"]
    for phrase in phrases:
        terms += [_quoted(f"w{word}") for word in phrase.words]
        terms[-1] += ":*" if phrase.is_open else ""
    return " & ".join(terms)


def _quoted(term: str) -> str:
    # Words consist of letters and digits; quotes and backslashes are doubled for the case that this changes.
    return "'%" + term.replace("\\", "\\\\").replace("'", "''") + "'"


class PostgresIndexRows(StoreQueries):
    """The index of words: the texts of all owners."""

    async def _is_indexed(self, owner: str | None) -> bool:
        [(has_due,)] = await self._fetch("has_due", owner)
        return not has_due

    @decoder
    async def _index(self, owner: str, limit: int) -> int:
        """Index up to `limit` texts of an owner, its titles first; return how many."""
        await self._lock(owner)
        due = await self._fetch("due_texts", owner, limit)
        titles = [id for id, is_title in due if is_title]
        texts: list[tuple[bytes, bytes, str, list[str]]] = [
            (id, id, scope, [title] if title else [])
            for id, scope, title in await self._fetch("due_titles", owner, titles)
        ]
        turns = [id for id, is_title in due if not is_title]
        hidden = places_by_turn(await self._fetch("hidden_items", owner, turns))
        rows = await self._fetch("due_turns", owner, turns, sql_search.BYTES_AT_ONCE)
        for id, body, conversation, scope in rows:
            texts.append((id, conversation, scope, texts_of(id, body, hidden.get(id, ()))))
        done = {id for id, *_ in texts}
        await self._save(owner, texts, set(titles))
        # Rows without a text are left over from turns that are gone.
        gone = [id for id, _ in due if id not in done] if len(rows) == len(turns) or not rows else []
        await self._fetch("texts_known", owner, [*done, *gone])
        return len(done) + len(gone)

    async def _save(
        self, owner: str, texts: Sequence[tuple[bytes, bytes, str, list[str]]], titles: Collection[bytes]
    ) -> None:
        known = await self._fetch("places_of", owner, [id for id, *_ in texts])
        places: dict[bytes, int] = dict(known)
        new = [id for id, *_ in texts if id not in places]
        new_titles = [id for id in new if id in titles]
        new_turns = [id for id in new if id not in titles]
        [(last_turn, last_title)] = await self._fetch("next_places", owner, len(new_turns), len(new_titles))
        places |= {id: place for place, id in enumerate(new_turns, last_turn - len(new_turns) + 1)}
        places |= {id: place for place, id in enumerate(new_titles, last_title - len(new_titles) + 1)}
        saved = []
        for id, conversation, scope, parts in texts:
            terms = terms_of(owner, scope, places[id], parts)
            if terms:
                saved.append((owner, int(id in titles), places[id], id, conversation, terms))
            else:
                await self._fetch("drop_words", owner, id)
        await self._many("save_words", saved)


class PostgresSearchRows(PostgresIndexRows, OwnedQueries):
    @decoder
    async def search(
        self, scope: str | None, phrases: Sequence[Phrase], before: int | None, limit: int
    ) -> list[SearchMatch]:
        if not phrases:
            return []
        found: list[SearchMatch] = []
        arguments = (limit, match_query(scope, phrases), _mark(self.owner), BLOCK)
        if before is None or before > TITLES:
            last = _BEYOND if before is None else before - TITLES
            rows = await self._own("search", 1, last, *arguments)
            found += [SearchMatch(TITLES + place, ConversationId.trusted(id)) for place, id, _ in rows]
            before = TITLES
        if len(found) < limit:
            rows = await self._own("search", 0, before, *arguments)
            found += [
                SearchMatch(place, ConversationId.trusted(id), TurnId.trusted(turn))
                for place, id, turn in rows
            ]
        return found[:limit]

    @decoder
    async def forks_showing(self, branch: BranchId, number: int, limit: int) -> list[ShownBranch]:
        rows = await self._own("forks_showing", branch.raw, number, limit, MOST_MADE)
        return [ShownBranch(ConversationId.trusted(id), BranchId.trusted(made)) for id, made in rows]

    async def is_index_complete(self) -> bool:
        return await self._is_indexed(self.owner)

    async def index_texts(self, limit: int) -> int:
        return await self._index(self.owner, limit)
