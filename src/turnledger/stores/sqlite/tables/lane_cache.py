"""The lanes that a process used last, so that a turn need not read them again.

They are as in the store while no other connection has written, which SQLite counts, and this one has written
nothing of them but what is noted here. Any doubt empties the cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from turnledger.engine.tables.lanes import Lane
from turnledger.model.conversation import Branch
from turnledger.model.ids import BranchId, ConversationId, LeaseId

MOST = 64
"""Lanes kept: those of turns at work, at a kilobyte or two each."""
_WRITES = re.compile(r"(?:UPDATE|INSERT INTO|DELETE FROM) (?:conversation|branch|owner|lease)\b")
NOTED = frozenset(("save_branch", "touch_conversation", "save_conversation"))
NOT_IN_LANES = frozenset(
    ("add_branch", "add_conversation", "beat", "count_stored", "title_known", "titles_known")
)
"""Queries that write what no cached lane has: new rows, and other columns."""


def queries_on_lanes(queries: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the queries after which cached lanes are outdated."""
    found = {name for name, query in queries.items() if _WRITES.search(query)}
    return frozenset(found - NOTED - NOT_IN_LANES)


class CachedLane(NamedTuple):
    lane: Lane
    ref: int
    """The number of the branch in its turns."""
    owner: str
    lease: LeaseId


class LaneCache:
    def __init__(self) -> None:
        self._lanes: dict[ConversationId, CachedLane] = {}
        self._by_branch: dict[BranchId, ConversationId] = {}
        self.version: int | None = None
        """The number of SQLite that changes when another connection writes, as these lanes were read."""

    def clear(self) -> None:
        self._lanes.clear()
        self._by_branch.clear()

    def holds(self, id: ConversationId) -> bool:
        return id in self._lanes

    def lane(self, owner: str, id: ConversationId, lease: LeaseId) -> CachedLane | None:
        found = self._lanes.get(id)
        return found if found is not None and (found.owner, found.lease) == (owner, lease) else None

    def branch(self, owner: str, id: BranchId) -> CachedLane | None:
        found = self._lanes.get(self._by_branch[id]) if id in self._by_branch else None
        return found if found is not None and found.owner == owner else None

    def keep(self, lane: Lane, ref: int, owner: str, lease: LeaseId) -> None:
        if not lane.has_lease or lane.branch.pending:  # rare, and pending calls may be large
            return
        self.drop(lane.conversation.id)
        if len(self._lanes) >= MOST:
            self.drop(next(iter(self._lanes)))
        self._lanes[lane.conversation.id] = CachedLane(lane, ref, owner, lease)
        self._by_branch[lane.branch.id] = lane.conversation.id

    def note_branch(self, branch: Branch) -> None:
        """Note a saved branch. The store counts tickets itself."""
        id = self._by_branch.get(branch.id)
        if id is None:
            return
        if branch.pending:
            self.drop(id)
            return
        cached = self._lanes[id]
        saved = replace(branch, last_ticket=cached.lane.branch.last_ticket)
        self._lanes[id] = cached._replace(lane=replace(cached.lane, branch=saved))

    def note_touch(self, owner: str, id: ConversationId, at: int) -> None:
        cached = self._lanes.get(id)
        if cached is not None and cached.owner == owner:
            conversation = cached.lane.conversation
            touched = replace(conversation, touched_at=max(conversation.touched_at, at))
            self._lanes[id] = cached._replace(lane=replace(cached.lane, conversation=touched))

    def drop(self, id: ConversationId) -> None:
        cached = self._lanes.pop(id, None)
        if cached is not None:
            del self._by_branch[cached.lane.branch.id]
