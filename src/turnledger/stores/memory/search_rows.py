"""Search in a memory store: it scans all texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from turnledger.engine.tables.search import ShownBranch
from turnledger.model.conversation import Conversation, ConversationState, TitleSource
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.text.search import TITLES, Phrase, SearchMatch, words_of
from turnledger.model.turn import Turn, visible_texts
from turnledger.stores.memory.database import MemoryRows


class MemorySearchRows(MemoryRows):
    owner: str

    def _give_place(self, id: TurnId | ConversationId) -> None:
        """Give it a place after all earlier ones, rolled back or not."""
        self._db.last_place += 1
        self._put(self._db.places, id, self._db.last_place)

    async def index_texts(self, limit: int) -> int:
        return 0

    async def is_index_complete(self) -> bool:
        return True

    async def search(
        self, scope: str | None, phrases: Sequence[Phrase], before: int | None, limit: int
    ) -> list[SearchMatch]:
        db = self._db
        searched = {
            each.id: each
            for each in db.conversations.values()
            if each.owner == self.owner and not each.internal and scope in (None, each.scope)
        }
        if not phrases:
            return []
        last = 2 * TITLES if before is None else before
        found = (
            each for each in self._texts(searched) if each[0].place < last and _all_occur(phrases, each[1])
        )
        return sorted((place for place, _ in found), key=lambda each: -each.place)[:limit]

    def _texts(self, searched: dict[ConversationId, Conversation]) -> Iterator[tuple[SearchMatch, list[str]]]:
        db = self._db
        for id, each in searched.items():
            if each.title and each.named_by is not TitleSource.WORDS:
                yield SearchMatch(TITLES + db.places[id], id), [each.title]
        for turn in db.turns.values():
            id = db.branches[turn.branch].conversation
            if id in searched:
                yield SearchMatch(db.places[turn.id], id, turn.id), self._visible_texts(turn)

    def _visible_texts(self, turn: Turn) -> list[str]:
        flags = self._db.flags.get((self.owner, turn.id), {})
        return visible_texts(turn, {place for place, each in flags.items() if not each.to_user})

    async def forks_showing(self, branch: BranchId, number: int, limit: int) -> list[ShownBranch]:
        made = self._made_from(branch, number)
        homes = (
            (self._db.conversations[each.conversation], each.id)
            for each in self._db.branches.values()
            if each.id in made
        )
        live = (
            ShownBranch(home.id, id)
            for home, id in homes
            if home.state is ConversationState.LIVE and home.owner == self.owner
        )
        return list(islice(live, limit))

    def _made_from(self, branch: BranchId, number: int) -> set[BranchId]:
        made: set[BranchId] = set()
        sources = [(branch, number)]
        while sources:
            source, first = sources.pop()
            new = {
                origin.branch
                for origin in self._db.origins.values()
                if origin.line and origin.line[0].branch == source and origin.line[0].through >= first
            }
            sources += [(each, 0) for each in new - made]
            made |= new
        return made


def _all_occur(phrases: Sequence[Phrase], texts: Sequence[str]) -> bool:
    words = {word for text in texts for word in words_of(text)}
    for phrase in phrases:
        last = phrase.words[-1]
        if not words.issuperset(phrase.words[:-1]):
            return False
        if last not in words and not (phrase.is_open and any(word.startswith(last) for word in words)):
            return False
    return True
