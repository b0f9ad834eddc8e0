"""Rows that concern all owners: leases and what their processes hold, rows to remove, the clock."""

from __future__ import annotations

from turnledger.engine.tables.jobs import ReadyJob
from turnledger.engine.tables.lanes import BURIED_KEPT, HeldTicket
from turnledger.engine.tables.maintenance import ClockMark, CountedTurn, DueConversation, UnusedBranch
from turnledger.model.conversation import NOBODY, Lease
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.turn import Attempt
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.sql.queries import SqlQueries


class SqlWholeRows(SqlQueries):
    @decoder
    async def leases(self) -> list[Lease]:
        return [Lease(LeaseId.trusted(id), beat) for id, beat in await self._fetch("leases")]

    async def drop_lease(self, id: LeaseId) -> None:
        await self._fetch("drop_lease", id.raw)

    async def bury_lease(self, id: LeaseId) -> None:
        await self._fetch("bury_lease", id.raw)
        await self._fetch("forget_buried", BURIED_KEPT)

    async def running_attempts(self, lease: LeaseId) -> list[Attempt]:
        return [row_codec.attempt_of(row) for row in await self._fetch("running_attempts", lease.raw)]

    async def held_tickets(self, lease: LeaseId) -> list[HeldTicket]:
        rows = await self._fetch("held_tickets", lease.raw)
        return [HeldTicket(row[0], row_codec.ticket_of(row[1:])) for row in rows]

    async def drop_orphaned_tickets(self, lease: LeaseId) -> None:
        await self._fetch("drop_orphaned_tickets", lease.raw)

    async def ready_jobs(self, limit: int) -> list[ReadyJob]:
        rows = await self._fetch("ready_jobs", NOBODY.raw, limit)
        return [ReadyJob(owner, TurnId.trusted(id)) for owner, id in rows]

    async def owners(self, after: str | None, limit: int) -> list[str]:
        return [owner for (owner,) in await self._fetch("owners", after, limit)]

    @decoder
    async def turns_of_all(self, after: TurnId | None, limit: int, max_bytes: int) -> list[CountedTurn]:
        rows = await self._fetch("turns_of_all", row_codec.raw_or_none(after), limit, max_bytes)
        return [
            CountedTurn(owner, scope, ConversationId.trusted(chat), TurnId.trusted(id), bytes(body), log)
            for owner, scope, chat, id, body, log in rows
        ]

    async def due_conversations(self, now: int, unlisted_by: int, limit: int) -> list[DueConversation]:
        due = [
            *await self._fetch("lapsed_conversations", now, limit),
            *await self._fetch("conversations_to_purge", now, limit),
            *await self._fetch("unlisted_conversations", unlisted_by, limit),
        ]
        return [DueConversation(owner, ConversationId.trusted(id)) for owner, id in due]

    async def unused_side_branches(self, used_by: int, limit: int) -> list[UnusedBranch]:
        rows = await self._fetch("unused_side_branches", used_by, limit)
        return [UnusedBranch(owner, BranchId.trusted(id)) for owner, id in rows]

    async def purge_claims(self, expired_before: int, limit: int) -> int:
        return len(await self._fetch("purge_claims", expired_before, limit))

    @decoder
    async def clock_mark(self) -> ClockMark | None:
        row = await self._fetch_row("clock_mark")
        return None if row is None else ClockMark(*row)

    async def save_clock_mark(self, mark: ClockMark) -> None:
        await self._fetch("save_clock_mark", mark.boot, mark.boot_at, mark.since, mark.trusted_at)

    @decoder
    async def newest_time(self) -> int | None:
        [(newest,)] = await self._fetch("newest_time")
        return newest if newest is None else int(newest)

    async def secret(self) -> bytes:
        [(secret,)] = await self._fetch("secret")
        return bytes(secret)
