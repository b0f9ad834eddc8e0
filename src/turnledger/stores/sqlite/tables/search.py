"""Search in a SQLite store: the words in its full-text index, and the turns that are not indexed yet.

Each term begins with a mark of its owner and of a block of the owner's turns, so that a search reads the
terms of one owner and block only. FTS5 collects all matches of a prefix before it returns the first, so a
prefix search costs as much as the block has matches. The conversation of a turn, not the mark, decides who
owns it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec

from turnledger.engine.tables.search import ShownBranch
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.text.search import TITLES, Phrase, SearchMatch, words_of
from turnledger.stores.damage import decoder
from turnledger.stores.row_codec import Row
from turnledger.stores.sql import search as sql_search
from turnledger.stores.sql.search import MARK_LENGTH, MOST_MADE, places_by_turn, texts_of
from turnledger.stores.sqlite.tables.records import NamedQueries, OwnedRows


@lru_cache(maxsize=4096)
def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:MARK_LENGTH]


def _block_mark(owner: str, block: int) -> str:
    return f"{_mark(owner)}{block:x}"


def terms_of(owner: str, scope: str, block: int, texts: Iterable[str]) -> str:
    """Return the terms of texts that are found together; empty if they have no words."""
    mark = _block_mark(owner, block)
    found = dict.fromkeys(each for text in texts for each in words_of(text))
    return f" {mark}w".join([f"{mark}s{_mark(scope)}", *found]) if found else ""


def match_query(owner: str, scope: str | None, block: int, phrases: Sequence[Phrase]) -> str:
    """Return the query for all words of these phrases, in one scope or in all."""
    mark = _block_mark(owner, block)
    terms = [] if scope is None else [f"{mark}s{_mark(scope)}"]
    for phrase in phrases:
        terms += [f'"{mark}w{word}"' for word in phrase.words]
        terms[-1] += " *" if phrase.is_open else ""
    return " AND ".join(terms)


BLOCK = 8_192
"""Turns, or titles, of a block."""
NEWEST = 50_000
"""Newest turns, and conversations, searched for those of one owner: some 50 ms."""


class SqliteIndexRows(NamedQueries):
    """The index of words: the texts of all owners."""

    def _is_all_indexed(self) -> bool:
        [(is_known,)] = self._rows("is_index_complete")
        return bool(is_known)

    @decoder
    def _index_all(self, limit: int) -> int:
        done = self._index_titles(limit)
        if done < limit:
            done += self._index_again(limit - done)
        if done < limit:
            done += self._index_new(limit - done)
        return done

    def _index_titles(self, limit: int) -> int:
        rows = self._rows("due_titles", limit)
        for ref, owner, scope, title in rows:
            self._index_title(ref, owner, scope, title)
        if rows:
            self._run("titles_known", rows[-1][0])
        return len(rows)

    def _index_title(self, ref: int, owner: str, scope: str, title: str | None) -> None:
        self._run("drop_title_words", ref)
        if self._cursor.connection.changes():
            self._run("note_remains")
        terms = terms_of(owner, scope, self._title_block(owner, ref), [title]) if title else ""
        if terms:
            self._run("add_title_words", ref, terms)

    def _title_block(self, owner: str, ref: int) -> int:
        """Return the block for a title. Titles come in any order: only one after all others begins a new
        block, so that blocks have the order of conversations."""
        [(first, titles)] = self._rows("title_block_of", owner, ref) or [(0, 0)]
        if titles >= BLOCK and all(ref > newest for (newest,) in self._rows("newest_title")):
            first = ref
        self._run("fill_title_block", owner, first)
        return int(first)

    def _index_again(self, limit: int) -> int:
        refs = _some_of(self._rows("due_turns", limit))
        if refs:
            self._index(refs, is_new=False)
            self._run("turns_known", refs[-1])
        return len(refs)

    def _index_new(self, limit: int) -> int:
        refs = _some_of(self._rows("new_turns", limit))
        if refs:
            self._index(refs, is_new=True)
            self._run("move_mark", refs[-1])
        return len(refs)

    def _note_due(self, turn: TurnId) -> None:
        """Have a turn indexed again, whose items were shown or hidden."""
        self._run("note_due", turn.raw)

    def _drop_words(self, refs: Sequence[int]) -> None:
        """Remove the words of removed turns. The mark depends on the last turn that is left."""
        removed = msgspec.json.encode(refs).decode()
        self._run("drop_turn_words", removed)
        self._run("drop_due", removed)
        self._run("lower_mark")

    def _index(self, refs: Sequence[int], *, is_new: bool) -> None:
        """Index turns, in order, by the words visible to their users. With few statements: each one releases
        the GIL, and may have to wait for it."""
        given = msgspec.json.encode(refs).decode()
        hidden = places_by_turn(self._rows("hidden_items", given))
        turns = self._rows("whole_turns", given)
        for owner in {owner for *_, owner, _ in turns} if is_new else ():
            self._run("drop_blocks", owner)
        indexed: list[Row] = []
        for ref, id, body, owner, scope in turns:
            block = self._block(owner, ref, is_new=is_new)
            terms = terms_of(owner, scope, block, texts_of(id, body, hidden.get(id, ())))
            if terms:
                indexed.append((ref, terms))
        self._run("drop_turn_words", given)  # a new one may have been indexed early
        self._insert("add_turn_words", indexed)

    def _block(self, owner: str, ref: int, *, is_new: bool) -> int:
        """Return the block for a turn. Blocks have the order of turns: only a new turn begins one."""
        found = self._rows("fill_block", owner, ref, BLOCK) if is_new else self._rows("block_of", owner, ref)
        if not found:
            self._run("add_block", owner, ref)
        return int(found[0][0]) if found else ref


class SqliteSearchRows(SqliteIndexRows, OwnedRows):
    @decoder
    async def search(
        self, scope: str | None, phrases: Sequence[Phrase], before: int | None, limit: int
    ) -> list[SearchMatch]:
        if not phrases:
            return []
        owner = self.owner
        found: list[SearchMatch] = []
        whole = _whole_words(phrases)
        if before is None or before > TITLES:
            last = TITLES if before is None else before - TITLES
            for (block,) in self._rows("title_blocks_before", owner, last):
                if len(found) == limit:
                    break
                if whole and not self._rows("has_titles", match_query(owner, scope, block, whole), last):
                    continue
                query = match_query(owner, scope, block, phrases)
                rows = self._rows("found_titles", query, last, owner, limit - len(found))
                found += [SearchMatch(TITLES + ref, ConversationId.trusted(id)) for ref, id in rows]
            before = TITLES
        for (block,) in self._rows("blocks_before", owner, before):
            if len(found) == limit:
                break
            # A prefix collects all its matches first: skip blocks without the whole words.
            if whole and not self._rows("has_turns", match_query(owner, scope, block, whole), before):
                continue
            query = match_query(owner, scope, block, phrases)
            rows = self._rows("found_turns", query, before, owner, limit - len(found))
            found += [
                SearchMatch(ref, ConversationId.trusted(id), TurnId.trusted(turn)) for ref, id, turn in rows
            ]
        return found

    @decoder
    async def forks_showing(self, branch: BranchId, number: int, limit: int) -> list[ShownBranch]:
        rows = self._rows("forks_showing", self._known_ref(branch), number, limit, MOST_MADE, self.owner)
        return [ShownBranch(ConversationId.trusted(id), BranchId.trusted(made)) for id, made in rows]

    @decoder
    async def is_index_complete(self) -> bool:
        if self._is_all_indexed():
            return True
        [(is_near,)] = self._rows("is_near", NEWEST)
        own = (self.owner, NEWEST, 1)
        return bool(is_near) and not (self._rows("own_titles", *own) or self._rows("own_turns", *own))

    async def index_texts(self, limit: int) -> int:
        """Index new texts of this owner before older ones of other owners."""
        owner = self.owner
        titles = self._rows("own_titles", owner, NEWEST, limit)
        for ref, scope, title in titles:
            self._index_title(ref, owner, scope, title)
            self._run("title_known", ref)
        refs = _some_of(self._rows("own_turns", owner, NEWEST, limit - len(titles)))
        if refs:
            self._index(refs, is_new=False)
        return len(titles) + len(refs)


def _whole_words(phrases: Sequence[Phrase]) -> list[Phrase]:
    """Return the phrases without a final prefix; empty if there is no prefix."""
    last = phrases[-1]
    if not last.is_open:
        return []
    return [*phrases[:-1], *([Phrase(last.words[:-1])] if last.words[1:] else [])]


def _some_of(rows: Sequence[Row]) -> list[int]:
    """Return the first of these turns, up to a size; at least one."""
    before = accumulate((size for _, size in rows), initial=0)
    return [ref for (ref, _), passed in zip(rows, before, strict=False) if passed < sql_search.BYTES_AT_ONCE]
