"""All rows of a SQLite store, and whether its tables agree. For checks only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from turnledger.engine.tables.inspection import Owned
from turnledger.errors import StoreCorrupt
from turnledger.model.conversation import BLOCK, ROW, Claim, Ticket
from turnledger.model.ids import BranchId, ConversationId, Id, ShareId, TokenId, TurnId
from turnledger.model.job import TurnJob
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.row_codec import AnyId
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.records import NamedQueries

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
        "inputs_without_attempt": (TurnId, "An input refers to missing attempt {}."),
        "attempts_in_the_wrong_half": (
            TurnId,
            "{} is in the wrong table for its state, or among both running and ended attempts.",
        ),
    }
)
"""Queries for inconsistencies, with the kind of the one id they select, and the message."""

ODD_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "words_without_turn": "The search index has words of missing turns.",
        "words_without_title": "The search index has words of missing titles.",
        "mark_behind_turns": "The search index counts missing turns as indexed; later turns cannot be found.",
    }
)
"""Queries for inconsistencies in the search index, and the message for each."""

PAGE = 500
NONE = "the first turn"


class SqliteInspectionRows(NamedQueries):
    async def all_conversations(
        self, after: ConversationId | None, limit: int
    ) -> list[Owned[ConversationId]]:
        return self._owned("all_conversations", ConversationId, after, limit)

    async def all_branches(self, after: BranchId | None, limit: int) -> list[Owned[BranchId]]:
        return self._owned("all_branches", BranchId, after, limit)

    async def all_attempts(self, after: TurnId | None, limit: int) -> list[Owned[TurnId]]:
        return self._owned("all_attempts", TurnId, after, limit)

    async def all_jobs(self, after: TurnId | None, limit: int) -> list[Owned[TurnJob]]:
        rows = self._rows("all_jobs", row_codec.raw_or_none(after), limit)
        return [Owned(row[0], row_codec.job_of(row[1:])) for row in rows]

    async def all_tickets(self, after: TurnId | None, limit: int) -> list[Owned[Ticket]]:
        rows = self._rows("all_tickets", row_codec.raw_or_none(after), limit)
        return [Owned(row[0], row_codec.ticket_of(row[1:])) for row in rows]

    async def all_claims(self, after: Claim | None, limit: int) -> list[Claim]:
        name = (after.owner, after.idempotency_key) if after else (None, None)
        rows = self._rows("all_claims", *name, limit)
        return [row_codec.claim_of(row[0], row[1], row[2:]) for row in rows]

    async def all_tokens(self, after: TokenId | None, limit: int) -> list[Owned[TokenId]]:
        return self._owned("all_tokens", TokenId, after, limit)

    def _owned(self, query: str, kind: type[AnyId], after: AnyId | None, limit: int) -> list[Owned[AnyId]]:
        rows = self._rows(query, row_codec.raw_or_none(after), limit)
        return [Owned(owner, kind.trusted(id)) for owner, id in rows]

    @decoder
    async def needed_through(self, branch: BranchId) -> int:
        [(number,)] = self._rows("last_needed", branch.raw)
        return int(number)

    @decoder
    async def inconsistencies(self, limit: int) -> list[str]:
        found = [f"SQLite integrity check: {text}." for (text,) in self._rows("integrity", limit)]
        if found == ["SQLite integrity check: ok."]:
            found = []
        for query, (kind, sentence) in ODD.items():
            for (raw,) in self._rows(query, limit):
                found.append(sentence.format(NONE if raw is None else kind.trusted(raw)))
        found += [
            f"The line of {branch} has a wrong reference to {other}; it reads another branch."
            for branch, other in self._misdirected_lines()
        ]
        found += [sentence for query, sentence in ODD_WORDS.items() if self._rows(query)]
        return found[:limit]

    @decoder
    async def miscounts(self, limit: int) -> list[str]:
        found = [
            f"{BranchId.trusted(id)} has a wrong byte count; the usage of its owner is wrong."
            for (id,) in self._rows("miscounted_branches", limit)
        ]
        found += [
            f"{TurnId.trusted(id)} has a wrong byte count; the usage of its owner is wrong."
            for (id,) in self._rows("miscounted_attempts", ROW, limit)
        ]
        found += [
            f"The usage of {owner!r} is recorded as {kept} bytes in {kept_chats} chats, not {due} in "
            f"{due_chats}."
            for owner, kept, due, kept_chats, due_chats in self._rows("miscounted_owners", BLOCK, ROW, limit)
        ]
        found += [
            f"{ShareId.trusted(id)} has a wrong count of the bytes or chats of its visitors."
            for (id,) in self._rows("miscounted_shares", limit)
        ]
        return found[:limit]

    @decoder
    async def turns_without_checksum(self) -> int:
        [(count,)] = self._rows("turns_without_checksum")
        return int(count)

    @decoder
    def _misdirected_lines(self) -> Iterator[tuple[BranchId, BranchId]]:
        """Yield branches whose line names another branch with a wrong ref."""
        after = 0
        while rows := self._rows("lines", after, PAGE):
            refs: dict[BranchId, int | None] = {}
            after = rows[-1][0]
            for _, id, line in rows:
                with suppress(StoreCorrupt):  # the check of the line reports it
                    for branch, ref in records.line_of(line)[1].items():
                        if branch not in refs:
                            found = self._rows("ref_of_any_branch", branch.raw)
                            refs[branch] = found[0][0] if found else None
                        if refs[branch] not in (None, ref):
                            yield BranchId.trusted(id), branch
