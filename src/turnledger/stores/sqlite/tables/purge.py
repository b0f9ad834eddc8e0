"""Removes the rows of ended conversations and attempts, and counts what is stored."""

from __future__ import annotations

from collections.abc import Sequence

from turnledger.model.conversation import branch_bytes, link_of
from turnledger.stores.sqlite.failures import decoder
from turnledger.stores.sqlite.tables.records import Row
from turnledger.stores.sqlite.tables.search import SqliteIndexRows


class SqlitePurgedRows(SqliteIndexRows):
    def _purge_ended(self, limit: int, only: str | None) -> int:
        """Remove rows of ended conversations, of only one owner or of all."""
        removed = 0
        for ref, id, owner in self._rows("unswept_conversations", limit, only):
            self._run("drop_previews", id)
            removed += self._purge_branches(owner, id, limit - removed)
            attempts = self._rows("ended_attempts", id, limit - removed)
            removed += self._remove_attempts(attempts)
            if removed >= limit:
                break
            self._run("mark_swept", ref)
        return removed

    @decoder
    def _purge_branches(self, owner: str, conversation: bytes, limit: int) -> int:
        """Remove the turns of an ended conversation that no branch elsewhere needs. When a branch is empty,
        the one it was made from may have more turns to remove."""
        removed = 0
        for ref, stored in self._rows("uncleared_branches", conversation):
            ((needed,),) = self._rows("needed_through", ref)
            turns = self._rows("purge_turns", ref, needed or 0, limit - removed)
            for turn, *_ in turns:
                self._run("drop_flags", turn)
            if turns:
                self._drop_words(each for *_, each in turns)
                left = stored - sum(size for _, size, _ in turns)
                self._run("shrink_branch", left, ref)
                self._count(owner, branch_bytes(left) - branch_bytes(stored))
                stored = left
            removed += len(turns)
            if removed >= limit:
                break
            if needed is None:
                self._run("clear_branch", ref)
                self._count(owner, -branch_bytes(stored))
                for (source,) in self._rows("drop_origin", ref):
                    self._run("sweep_again", source)
                    removed += 1
        return removed

    def _remove_attempts(self, rows: Sequence[Row]) -> int:
        for id, owner, counted in rows:
            self._count(owner, -counted)
            self._drop_attempt(owner, id)
            self._run("drop_journal", id)
            self._run("drop_log", id)
        return len(rows)

    def _drop_attempt(self, owner: str, id: bytes) -> None:
        rows = self._rows("drop_running_attempt", id, owner) or self._rows("drop_ended_attempt", id, owner)
        for (has_long_input,) in rows:
            if has_long_input:
                self._run("drop_attempt_input", id)

    def _count(self, owner: str, more: int, chats: int = 0) -> None:
        self._run("count_stored", owner, more, chats)
        link = link_of(owner)
        if link is not None:
            self._run("count_stored_by_visitors", link.raw, more, chats)
