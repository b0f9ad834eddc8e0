"""All rows of a PostgreSQL store, and whether its tables agree. For checks only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from turnledger.engine.tables.inspection import Owned
from turnledger.model.conversation import BLOCK, ROW, Claim, Ticket
from turnledger.model.ids import BranchId, ConversationId, Id, ShareId, TokenId, TurnId
from turnledger.model.job import TurnJob
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.postgresql.tables.queries import StoreQueries
from turnledger.stores.row_codec import AnyId

ODD: Mapping[str, tuple[type[Id], str]] = MappingProxyType(
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
        "attempts_in_the_wrong_half": (TurnId, "{} is marked as running or ended against its state."),
    }
)
"""Queries for inconsistencies, with the kind of the one id they select, and the message."""
NONE = "the first turn"


class PostgresInspectionRows(StoreQueries):
    async def all_conversations(
        self, after: ConversationId | None, limit: int
    ) -> list[Owned[ConversationId]]:
        return await self._owned("all_conversations", ConversationId, after, limit)

    async def all_branches(self, after: BranchId | None, limit: int) -> list[Owned[BranchId]]:
        return await self._owned("all_branches", BranchId, after, limit)

    async def all_attempts(self, after: TurnId | None, limit: int) -> list[Owned[TurnId]]:
        return await self._owned("all_attempts", TurnId, after, limit)

    async def all_jobs(self, after: TurnId | None, limit: int) -> list[Owned[TurnJob]]:
        rows = await self._rows("all_jobs", row_codec.raw_or_none(after), limit)
        return [Owned(row[0], row_codec.job_of(row[1:])) for row in rows]

    async def all_tickets(self, after: TurnId | None, limit: int) -> list[Owned[Ticket]]:
        rows = await self._rows("all_tickets", row_codec.raw_or_none(after), limit)
        return [Owned(row[0], row_codec.ticket_of(row[1:12])) for row in rows]

    async def all_claims(self, after: Claim | None, limit: int) -> list[Claim]:
        name = (after.owner, after.idempotency_key) if after else (None, None)
        rows = await self._rows("all_claims", *name, limit)
        return [row_codec.claim_of(row[0], row[1], row[2:]) for row in rows]

    async def all_tokens(self, after: TokenId | None, limit: int) -> list[Owned[TokenId]]:
        return await self._owned("all_tokens", TokenId, after, limit)

    async def _owned(
        self, query: str, kind: type[AnyId], after: AnyId | None, limit: int
    ) -> list[Owned[AnyId]]:
        rows = await self._rows(query, row_codec.raw_or_none(after), limit)
        return [Owned(owner, kind.trusted(id)) for owner, id in rows]

    @decoder
    async def needed_through(self, branch: BranchId) -> int:
        [(number,)] = await self._rows("last_needed", branch.raw)
        return int(number)

    @decoder
    async def inconsistencies(self, limit: int) -> list[str]:
        found = []
        for query, (kind, sentence) in ODD.items():
            for (id,) in await self._rows(query, limit):
                found.append(sentence.format(NONE if id is None else kind.trusted(bytes.fromhex(id))))
        if await self._rows("words_without_text"):
            found.append("The search index has words of missing turns or titles.")
        return found[:limit]

    @decoder
    async def miscounts(self, limit: int) -> list[str]:
        wrong = "{} has a wrong byte count; the usage of its owner is wrong."
        found = [
            *await self._miscounted("miscounted_branches", BranchId, wrong, limit),
            *await self._miscounted("miscounted_attempts", TurnId, wrong, ROW, limit),
        ]
        found += [
            f"The usage of {owner!r} is recorded as {kept} bytes in {kept_chats} chats, not {due} in "
            f"{due_chats}."
            for owner, kept, due, kept_chats, due_chats in await self._rows(
                "miscounted_owners", BLOCK, ROW, limit
            )
        ]
        wrong = "{} has a wrong count of the bytes or chats of its visitors."
        found += await self._miscounted("miscounted_shares", ShareId, wrong, limit)
        return found[:limit]

    async def _miscounted(self, query: str, kind: type[Id], sentence: str, *arguments: int) -> list[str]:
        rows = await self._rows(query, *arguments)
        return [sentence.format(kind.trusted(bytes.fromhex(id))) for (id,) in rows]

    async def turns_without_checksum(self) -> int:
        return 0
