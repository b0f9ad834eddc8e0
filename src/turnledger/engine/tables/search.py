"""The search of an owner's texts. Commits index nothing: the store knows what is not indexed yet. A store
that searches the texts themselves has nothing to index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from turnledger.model.ids import BranchId, ConversationId
from turnledger.model.text.search import Phrase, SearchMatch


class ShownBranch(Struct, frozen=True):
    conversation: ConversationId
    branch: BranchId


class SearchRows(Protocol):
    async def search(
        self, scope: str | None, phrases: Sequence[Phrase], before: int | None, limit: int
    ) -> list[SearchMatch]:
        """Turns and titles, in one scope or all, that contain all words of these phrases, in descending order
        of place, below `before`; of conversations in any state, except internal ones. The order of words is
        not checked, and a text found may have changed since."""

    async def forks_showing(self, branch: BranchId, number: int, limit: int) -> list[ShownBranch]:
        """The live conversations, with their branches, that were made from this turn of a branch or a later
        one, directly or not, oldest first."""

    async def index_texts(self, limit: int) -> int:
        """Index up to `limit` turns and titles of this owner among the newest of the store that are not
        indexed as they are now; return how many."""

    async def is_index_complete(self) -> bool:
        """Whether everything of this owner is indexed, as far as the store can tell quickly."""
