"""The rows of a SQLite store that concern all owners."""

from __future__ import annotations

from collections.abc import Collection

from turnledger.engine.tables.changes import ChangeTail
from turnledger.engine.tables.jobs import ReadyJob
from turnledger.engine.tables.lanes import BURIED_KEPT, HeldTicket
from turnledger.engine.tables.maintenance import ClockMark, CountedTurn, DueConversation, UnusedBranch
from turnledger.model.change import Position
from turnledger.model.conversation import NOBODY, Lease
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.turn import Attempt
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.access import SqliteAccessRows
from turnledger.stores.sqlite.tables.overview import SqliteInspectionRows
from turnledger.stores.sqlite.tables.tables import SqliteSharedRows, SqliteTables


class SqliteWholeStore(SqliteAccessRows, SqliteSharedRows, SqliteInspectionRows):
    def of(self, owner: str) -> SqliteTables:
        return SqliteTables(self._cursor, owner, self._lanes)

    @decoder
    async def leases(self) -> list[Lease]:
        return [Lease(LeaseId.trusted(id), beat) for id, beat in self._rows("leases")]

    async def drop_lease(self, id: LeaseId) -> None:
        self._run("drop_lease", id.raw)

    async def bury_lease(self, id: LeaseId) -> None:
        self._run("bury_lease", id.raw)
        self._run("forget_buried", BURIED_KEPT)

    async def running_attempts(self, lease: LeaseId) -> list[Attempt]:
        return [row_codec.attempt_of(row) for row in self._rows("running_attempts", lease.raw)]

    async def held_tickets(self, lease: LeaseId) -> list[HeldTicket]:
        rows = self._rows("held_tickets", lease.raw)
        return [HeldTicket(row[0], row_codec.ticket_of(row[1:])) for row in rows]

    async def drop_orphaned_tickets(self, lease: LeaseId) -> None:
        self._run("drop_orphaned_tickets", lease.raw)

    async def ready_jobs(self, limit: int) -> list[ReadyJob]:
        rows = self._rows("ready_jobs", NOBODY.raw, limit)
        return [ReadyJob(owner, TurnId.trusted(id)) for owner, id in rows]

    async def owners(self, after: str | None, limit: int) -> list[str]:
        return [owner for (owner,) in self._rows("owners", after, limit)]

    @decoder
    async def turns_of_all(self, after: TurnId | None, limit: int, max_bytes: int) -> list[CountedTurn]:
        rows = self._rows("turns_of_all", row_codec.raw_or_none(after), limit, max_bytes)
        return [
            CountedTurn(owner, scope, ConversationId.trusted(chat), TurnId.trusted(id), bytes(body), log)
            for owner, scope, chat, id, body, log in rows
        ]

    async def due_conversations(self, now: int, unlisted_by: int, limit: int) -> list[DueConversation]:
        due = self._rows("lapsed_conversations", now, limit)
        due += self._rows("conversations_to_purge", now, limit)
        due += self._rows("unlisted_conversations", unlisted_by, limit)
        return [DueConversation(owner, ConversationId.trusted(id)) for owner, id in due]

    @decoder
    async def purge_ended(self, limit: int) -> int:
        return self._purge_ended(limit, None)

    async def unused_side_branches(self, used_by: int, limit: int) -> list[UnusedBranch]:
        rows = self._rows("unused_side_branches", used_by, limit)
        return [UnusedBranch(owner, BranchId.trusted(id)) for owner, id in rows]

    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        return self._remove_attempts(self._rows("old_attempts", ended_before, limit))

    async def purge_claims(self, expired_before: int, limit: int) -> int:
        return len(self._rows("purge_claims", expired_before, limit))

    async def index_texts(self, limit: int) -> int:
        return self._index_all(limit)

    @decoder
    async def is_index_complete(self) -> bool:
        return self._is_all_indexed()

    @decoder
    async def clock_mark(self) -> ClockMark | None:
        rows = self._rows("clock_mark")
        return ClockMark(*rows[0]) if rows else None

    async def save_clock_mark(self, mark: ClockMark) -> None:
        self._run("save_clock_mark", mark.boot, mark.boot_at, mark.since, mark.trusted_at)

    @decoder
    async def newest_time(self) -> int | None:
        [(newest,)] = self._rows("newest_time")
        return newest if newest is None else int(newest)

    @decoder
    async def tail(self, after: Position, owners: Collection[str], limit: int) -> ChangeTail:
        rows = self._rows("tail", records.number_at(after), limit)
        # Skip changes of owners without followers here, which are most.
        found = [row_codec.change_of(row, records.position_in(row)) for row in rows if row[1] in owners]
        through = records.position_in(rows[-1]) if rows else after
        return ChangeTail(found, through, len(rows) == limit)

    @decoder
    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        newest = self._rows("newest_change")
        if not newest:
            return 0
        number = newest[0][0]
        self._rows("purge_changes", limit, number, before, number - keep)
        return self._cursor.connection.changes()

    async def secret(self) -> bytes:
        [(bits,)] = self._rows("secret")
        return bytes(bits)
