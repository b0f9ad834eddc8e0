"""Rows of one owner: in lists and checks of ids, the attempts of a conversation, queues and jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from turnledger.errors import StoreError
from turnledger.model.catalogue import ChatEntry
from turnledger.model.conversation import Conversation, Origin, Stretch, Ticket, branch_bytes
from turnledger.model.ids import BranchId, ConversationId, Id, TurnId
from turnledger.model.job import TurnJob
from turnledger.model.turn import Attempt
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.row_codec import Row
from turnledger.stores.sql.queries import SqlOwnedQueries

FEW = 500
"""The most chats with a tag that are read and sorted for each page. A tag of more chats is frequent enough to
scan all chats in order."""
END_OF_TIME = 2**63 - 1
LISTED, ARCHIVED = 0, 1
"""Chats that are archived are in the other half of the index of lists: two queries do not sort all chats."""
ID, TOUCHED_AT = 0, 10
"""Columns of a conversation's row."""


class SqlOwnerRows(SqlOwnedQueries):
    async def _is_rare(self, tag: str) -> bool:
        return await self._count_own("count_tagged", tag, FEW + 1) <= FEW

    async def _count_own(self, query: str, *arguments: Any) -> int:
        [(count,)] = await self._own(query, *arguments)
        return int(count)

    async def oldest_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        # Three queries, each in its own part of an index: a single one would sort all chats of the owner.
        rows = [
            *await self._own("oldest_listed", LISTED, touched_by, limit),
            *await self._own("oldest_listed", ARCHIVED, touched_by, limit),
            *await self._own("oldest_internal", touched_by, limit),
        ]
        return sorted(conversations_of(rows), key=lambda each: (each.touched_at, each.id))[:limit]

    async def oldest_deleted(self, limit: int) -> list[Conversation]:
        return conversations_of(await self._own("oldest_deleted", limit))

    @decoder
    async def bytes_of(self, conversation: ConversationId) -> int:
        return sum(branch_bytes(size) for (size,) in await self._own("bytes_of", conversation.raw))

    async def is_id_taken(self, id: ConversationId) -> bool:
        return bool(await self._fetch("conversation_is_taken", id.raw))

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        return {TurnId.trusted(raw) for (raw,) in await self._fetch("taken_turns", self._several(ids))}

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        return {BranchId.trusted(raw) for (raw,) in await self._fetch("taken_branches", self._several(ids))}

    def _several(self, ids: Sequence[Id]) -> Any:
        """Return ids as one argument, for a query that looks for all of them."""
        return [id.raw for id in ids]

    async def switches(self, id: ConversationId) -> tuple[TurnId, ...]:
        row = await self._own_row("trail", id.raw)
        return () if row is None else row_codec.ids_of(TurnId, row[0] or b"")

    async def save_switches(self, id: ConversationId, switches: Sequence[TurnId]) -> None:
        await self._own("save_switches", id.raw, b"".join(each.raw for each in switches))

    async def forgotten(self, id: ConversationId) -> tuple[bytes, ...]:
        row = await self._own_row("trail", id.raw)
        return () if row is None else tuple(each.raw for each in row_codec.ids_of(TurnId, row[1] or b""))

    async def save_forgotten(self, id: ConversationId, effects: Sequence[bytes]) -> None:
        await self._own("save_forgotten", id.raw, b"".join(effects))

    async def origins(self, conversation: ConversationId, base: TurnId | None, limit: int) -> list[Origin]:
        rows = await self._own("origins", conversation.raw, row_codec.raw_or_none(base), limit)
        return [
            Origin(
                branch=BranchId.trusted(branch),
                conversation=conversation,
                base=base,
                line=self._line_of(line),
            )
            for branch, line in rows
        ]

    @abstractmethod
    def _line_of(self, raw: bytes | None) -> tuple[Stretch, ...]:
        """Decode the stretches of an origin."""

    async def attempts(self, conversation: ConversationId, limit: int) -> list[Attempt]:
        return [row_codec.attempt_of(row) for row in await self._own("attempts", conversation.raw, limit)]

    async def running_in(self, conversation: ConversationId) -> list[Attempt]:
        return [row_codec.attempt_of(row) for row in await self._own("running_in", conversation.raw)]

    async def tickets(self, branch: BranchId) -> list[Ticket]:
        return [row_codec.ticket_of(row) for row in await self._own("tickets", branch.raw)]

    async def ticket(self, attempt: TurnId) -> Ticket | None:
        row = await self._own_row("ticket", attempt.raw)
        return None if row is None else row_codec.ticket_of(row)

    async def job(self, id: TurnId) -> TurnJob | None:
        row = await self._own_row("job", id.raw)
        return None if row is None else row_codec.job_of(row)

    async def jobs(self, after: TurnId | None, limit: int) -> list[TurnJob]:
        rows = await self._own("jobs", row_codec.raw_or_none(after), limit)
        return [row_codec.job_of(row) for row in rows]

    async def count_jobs(self) -> int:
        return await self._count_own("count_jobs")

    async def add_job(self, job: TurnJob) -> None:
        if job.owner != self.owner:
            raise StoreError(f"{job.id} is of another owner.")
        await self._check_conversation(job.conversation)
        await self._fetch("add_job", *row_codec.columns_of_job(job))

    async def count_resume(self, id: TurnId) -> None:
        await self._change("count_resume", id.raw)

    async def drop_job(self, id: TurnId) -> None:
        await self._change("drop_job", id.raw)


@decoder
def entry_of(row: Row) -> ChatEntry:
    *_, length, preview, running = row
    return ChatEntry(row_codec.conversation_of(row), length, preview, bool(running))


def conversations_of(rows: Sequence[Row]) -> list[Conversation]:
    return [row_codec.conversation_of(row) for row in rows]
