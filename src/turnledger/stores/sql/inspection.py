"""All rows of a store, and whether its tables agree. For checks only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from turnledger.engine.tables.inspection import Owned
from turnledger.model.conversation import BLOCK, ROW, Claim, Ticket
from turnledger.model.ids import BranchId, ConversationId, Id, ShareId, TokenId, TurnId
from turnledger.model.job import TurnJob
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.row_codec import AnyId
from turnledger.stores.sql.queries import SqlQueries

Oddities: TypeAlias = Mapping[str, tuple[type[Id], str]]

ODD: Oddities = MappingProxyType(
    {
        "turns_without_branch": (TurnId, "{} is on a missing branch."),
        "turns_before_their_branch": (TurnId, "{} has a number before the start of its branch."),
        "origins_without_branch": (TurnId, "An origin at {} refers to a missing branch."),
        "misplaced_origins": (
            BranchId,
            "The origin of {} protects another turn than its base; a purge may remove the base.",
        ),
        "journals_without_attempt": (TurnId, "A journal refers to missing attempt {}."),
        "logs_without_attempt": (TurnId, "An event log refers to missing attempt {}."),
        "flags_without_turn": (TurnId, "Flags of {} match no stored turn."),
        "misfiled_tags": (
            ConversationId,
            "The tag index of {} differs from its tags; lists by tag are wrong.",
        ),
    }
)
"""Queries for inconsistencies, with the kind of the one id they select, and the message."""

WRONG_BYTES = "{} has a wrong byte count; the usage of its owner is wrong."
NONE = "the first turn"


class SqlInspectionRows(SqlQueries):
    async def all_conversations(
        self, after: ConversationId | None, limit: int
    ) -> list[Owned[ConversationId]]:
        return await self._owned("all_conversations", ConversationId, after, limit)

    async def all_branches(self, after: BranchId | None, limit: int) -> list[Owned[BranchId]]:
        return await self._owned("all_branches", BranchId, after, limit)

    async def all_attempts(self, after: TurnId | None, limit: int) -> list[Owned[TurnId]]:
        return await self._owned("all_attempts", TurnId, after, limit)

    async def all_jobs(self, after: TurnId | None, limit: int) -> list[Owned[TurnJob]]:
        rows = await self._fetch("all_jobs", row_codec.raw_or_none(after), limit)
        return [Owned(row[0], row_codec.job_of(row[1:])) for row in rows]

    async def all_tickets(self, after: TurnId | None, limit: int) -> list[Owned[Ticket]]:
        rows = await self._fetch("all_tickets", row_codec.raw_or_none(after), limit)
        return [Owned(row[0], row_codec.ticket_of(row[1:])) for row in rows]

    async def all_claims(self, after: Claim | None, limit: int) -> list[Claim]:
        name = (after.owner, after.idempotency_key) if after else (None, None)
        rows = await self._fetch("all_claims", *name, limit)
        return [row_codec.claim_of(row[0], row[1], row[2:]) for row in rows]

    async def all_tokens(self, after: TokenId | None, limit: int) -> list[Owned[TokenId]]:
        return await self._owned("all_tokens", TokenId, after, limit)

    async def _owned(
        self, query: str, kind: type[AnyId], after: AnyId | None, limit: int
    ) -> list[Owned[AnyId]]:
        rows = await self._fetch(query, row_codec.raw_or_none(after), limit)
        return [Owned(owner, kind.trusted(id)) for owner, id in rows]

    @decoder
    async def needed_through(self, branch: BranchId) -> int:
        return await self._fetch_number("last_needed", branch.raw)

    @decoder
    async def _odd_rows(self, odd: Oddities, limit: int) -> list[str]:
        return [
            sentence.format(NONE if id is None else kind.trusted(id))
            for query, (kind, sentence) in odd.items()
            for (id,) in await self._fetch(query, limit)
        ]

    @decoder
    async def miscounts(self, limit: int) -> list[str]:
        found = [
            WRONG_BYTES.format(BranchId.trusted(id))
            for (id,) in await self._fetch("miscounted_branches", limit)
        ]
        found += [
            WRONG_BYTES.format(TurnId.trusted(id))
            for (id,) in await self._fetch("miscounted_attempts", ROW, limit)
        ]
        found += [
            f"The usage of {owner!r} is recorded as {kept} bytes in {kept_chats} chats, not {due} in "
            f"{due_chats}."
            for owner, kept, due, kept_chats, due_chats in await self._fetch(
                "miscounted_owners", BLOCK, ROW, limit
            )
        ]
        found += [
            f"{ShareId.trusted(id)} has a wrong count of the bytes or chats of its visitors."
            for (id,) in await self._fetch("miscounted_shares", limit)
        ]
        return found[:limit]
