"""The rows of all owners inside one transaction."""

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
from turnledger.stores.postgresql.tables.access import PostgresAccessRows
from turnledger.stores.postgresql.tables.overview import PostgresInspectionRows
from turnledger.stores.postgresql.tables.search import PostgresIndexRows
from turnledger.stores.postgresql.tables.tables import (
    PostgresSharedRows,
    PostgresTables,
    attempt_in,
    place_of,
    ticket_in,
)


class PostgresWholeStore(PostgresAccessRows, PostgresSharedRows, PostgresIndexRows, PostgresInspectionRows):
    def of(self, owner: str) -> PostgresTables:
        return PostgresTables(self._transaction, owner)

    async def lease(self, id: LeaseId) -> Lease | None:
        query = "held_lease" if self._transaction.writes else "lease"
        row = await self._row(query, id.raw)
        return None if row is None else Lease(id, row[0])

    @decoder
    async def leases(self) -> list[Lease]:
        return [Lease(LeaseId.trusted(id), beat) for id, beat in await self._rows("leases")]

    async def drop_lease(self, id: LeaseId) -> None:
        await self._rows("drop_lease", id.raw)

    async def bury_lease(self, id: LeaseId) -> None:
        await self._rows("bury_lease", id.raw)
        await self._rows("forget_buried", BURIED_KEPT)

    async def running_attempts(self, lease: LeaseId) -> list[Attempt]:
        return [attempt_in(row) for row in await self._rows("running_attempts", lease.raw)]

    async def held_tickets(self, lease: LeaseId) -> list[HeldTicket]:
        return [HeldTicket(row[-1], ticket_in(row)) for row in await self._rows("held_tickets", lease.raw)]

    async def drop_orphaned_tickets(self, lease: LeaseId) -> None:
        await self._rows("drop_orphaned_tickets", lease.raw)

    async def ready_jobs(self, limit: int) -> list[ReadyJob]:
        rows = await self._rows("ready_jobs", NOBODY.raw, limit)
        return [ReadyJob(owner, TurnId.trusted(id)) for owner, id in rows]

    async def owners(self, after: str | None, limit: int) -> list[str]:
        return [owner for (owner,) in await self._rows("owners", after, limit)]

    @decoder
    async def turns_of_all(self, after: TurnId | None, limit: int, max_bytes: int) -> list[CountedTurn]:
        rows = await self._rows("turns_of_all", row_codec.raw_or_none(after), limit, max_bytes)
        return [
            CountedTurn(owner, scope, ConversationId.trusted(chat), TurnId.trusted(id), body, log)
            for owner, scope, chat, id, body, log in rows
        ]

    async def due_conversations(self, now: int, unlisted_by: int, limit: int) -> list[DueConversation]:
        due = [
            *await self._rows("lapsed_conversations", now, limit),
            *await self._rows("conversations_to_purge", now, limit),
            *await self._rows("unlisted_conversations", unlisted_by, limit),
        ]
        return [DueConversation(owner, ConversationId.trusted(id)) for owner, id in due]

    async def purge_ended(self, limit: int) -> int:
        owners = [owner for (owner,) in await self._rows("unswept_owners", limit)]
        return await self._purge_ended(limit, owners)

    async def unused_side_branches(self, used_by: int, limit: int) -> list[UnusedBranch]:
        rows = await self._rows("unused_side_branches", used_by, limit)
        return [UnusedBranch(owner, BranchId.trusted(id)) for owner, id in rows]

    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        for owner in sorted({owner for owner, *_ in await self._rows("old_attempts", ended_before, limit)}):
            await self._transaction.lock(owner)
        # Once more: until the owners were locked, one of them may have been taken up by a retry.
        removed = 0
        for owner, *attempt in await self._rows("old_attempts", ended_before, limit):
            await self._transaction.lock(owner)
            removed += await self._remove_attempts(owner, [tuple(attempt)])
        return removed

    async def purge_claims(self, expired_before: int, limit: int) -> int:
        return len(await self._rows("purge_claims", expired_before, limit))

    async def index_texts(self, limit: int) -> int:
        done = 0
        for (owner,) in await self._rows("due_owners", limit):
            done += await self._index(owner, limit - done)
            if done >= limit:
                break
        return done

    async def is_index_complete(self) -> bool:
        return await self._is_indexed(None)

    @decoder
    async def clock_mark(self) -> ClockMark | None:
        rows = await self._rows("clock_mark")
        return ClockMark(*rows[0]) if rows else None

    async def save_clock_mark(self, mark: ClockMark) -> None:
        await self._rows("save_clock_mark", mark.boot, mark.boot_at, mark.since, mark.trusted_at)

    @decoder
    async def newest_time(self) -> int | None:
        [(newest,)] = await self._rows("newest_time")
        return newest if newest is None else int(newest)

    @decoder
    async def tail(self, after: Position, owners: Collection[str], limit: int) -> ChangeTail:
        rows = await self._rows("tail", *place_of(after), limit)
        epoch = await self._epoch()
        # Skip changes of owners without followers here, which are most.
        found = [epoch.change_of(row) for row in rows if row[2] in owners]
        through = epoch.position_at(rows[-1][0], rows[-1][1]) if rows else after
        return ChangeTail(found, through, len(rows) == limit)

    @decoder
    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        # Those beyond `keep` go; so do the old ones, but never the newest.
        rows = await self._rows("oldest_changes", limit, 1)
        beyond = await self._rows("oldest_changes", limit, max(keep, 1))
        removed = 0
        for number, (_, _, at) in enumerate(rows):
            if at >= before and number >= len(beyond):
                break
            removed += 1
        if removed:
            xid, place, _ = rows[removed - 1]
            await self._rows("purge_changes", xid, place)
            await self._rows("note_purge", xid, place)
        return removed

    async def secret(self) -> bytes:
        [(secret,)] = await self._rows("secret")
        return bytes(secret)

    async def begin_epoch(self, mark: bytes) -> None:
        """Let no position be valid that was given out before, unless another process has done so."""
        if await self._row("epoch") is None:
            await self._rows("drop_changes")
            await self._rows("begin_epoch", mark)
