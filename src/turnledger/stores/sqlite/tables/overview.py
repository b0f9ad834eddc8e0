"""All rows of a SQLite store, and whether its tables agree. For checks only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from turnledger.errors import StoreCorrupt
from turnledger.model.conversation import BLOCK, ROW, Claim, Ticket
from turnledger.model.ids import BranchId, ConversationId, Id, ShareId, TokenId, TurnId
from turnledger.stores.sqlite.failures import decoder
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.records import NamedQueries

ODD: Mapping[str, tuple[type[Id], str]] = MappingProxyType(
    {
        "turns_without_branch": (TurnId, "{} stands on a branch that is not there: nobody can read it."),
        "turns_before_their_branch": (TurnId, "{} stands before the start of its branch: it is on no line."),
        "origins_without_branch": (
            TurnId,
            "There is an origin at {} of a branch that is not there: it keeps turns for nobody.",
        ),
        "misplaced_origins": (
            BranchId,
            "The origin of {} keeps another turn than its base: a purge may remove what it needs.",
        ),
        "journals_without_attempt": (
            TurnId,
            "There is a journal of {}, which is not there: what it says is lost.",
        ),
        "logs_without_attempt": (TurnId, "There is a log of {}, which is not there: it is left over."),
        "flags_without_turn": (TurnId, "There are flags of {}, which is not there: nobody goes by them."),
        "misfiled_tags": (
            ConversationId,
            "{} is filed under other tags than it has: lists by tag show it wrongly, or not at all.",
        ),
        "inputs_without_attempt": (TurnId, "There is an input of {}, which is not there: it is left over."),
        "attempts_in_the_wrong_half": (
            TurnId,
            "{} lies among the running attempts and is none, or the other way round, or in both places: "
            "it is not found by what looks for it.",
        ),
    }
)
"""Queries for inconsistencies, with the kind of the one id they select, and the message."""

ODD_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "words_without_turn": "There are words of turns that are not there: something is left over.",
        "words_without_title": "There are words of titles that are not there: something is left over.",
        "mark_behind_turns": "Turns that are not there count as looked through: later ones cannot be found.",
    }
)
"""Queries for inconsistencies in the search index, and the message for each."""

PAGE = 500
NONE = "the very beginning"


class SqliteOverview(NamedQueries):
    async def all_conversations(
        self, after: ConversationId | None, limit: int
    ) -> list[tuple[str, ConversationId]]:
        rows = self._rows("all_conversations", records.raw_or_none(after), limit)
        return [(owner, ConversationId.trusted(id)) for owner, id in rows]

    async def all_branches(self, after: BranchId | None, limit: int) -> list[tuple[str | None, BranchId]]:
        rows = self._rows("all_branches", records.raw_or_none(after), limit)
        return [(owner, BranchId.trusted(id)) for owner, id in rows]

    async def all_attempts(self, after: TurnId | None, limit: int) -> list[tuple[str, TurnId]]:
        rows = self._rows("all_attempts", records.raw_or_none(after), limit)
        return [(owner, TurnId.trusted(id)) for owner, id in rows]

    async def all_tickets(self, after: TurnId | None, limit: int) -> list[tuple[str | None, Ticket]]:
        rows = self._rows("all_tickets", records.raw_or_none(after), limit)
        return [(row[0], records.ticket_of(row[1:])) for row in rows]

    async def all_claims(self, after: Claim | None, limit: int) -> list[Claim]:
        name = (after.owner, after.idempotency_key) if after else (None, None)
        rows = self._rows("all_claims", *name, limit)
        return [records.claim_of(row[0], row[1], row[2:]) for row in rows]

    async def all_tokens(self, after: TokenId | None, limit: int) -> list[tuple[str, TokenId]]:
        rows = self._rows("all_tokens", records.raw_or_none(after), limit)
        return [(owner, TokenId.trusted(id)) for owner, id in rows]

    @decoder
    async def needed_through(self, branch: BranchId) -> int:
        [(number,)] = self._rows("last_needed", branch.raw)
        return int(number)

    @decoder
    async def inconsistencies(self, limit: int) -> list[str]:
        found = [f"SQLite says of its file: {text}." for (text,) in self._rows("integrity", limit)]
        if found == ["SQLite says of its file: ok."]:
            found = []
        for query, (kind, sentence) in ODD.items():
            for (raw,) in self._rows(query, limit):
                found.append(sentence.format(NONE if raw is None else kind.trusted(raw)))
        found += [
            f"The line of {branch} looks for {other} in the wrong place: it reads the turns of another."
            for branch, other in self._misdirected_lines()
        ]
        found += [sentence for query, sentence in ODD_WORDS.items() if self._rows(query)]
        return found[:limit]

    @decoder
    async def miscounts(self, limit: int) -> list[str]:
        found = [
            f"{BranchId.trusted(id)} counts other bytes than its turns take: the usage of its owner is wrong."
            for (id,) in self._rows("miscounted_branches", limit)
        ]
        found += [
            f"{TurnId.trusted(id)} counts other bytes than are kept of it: the usage of its owner is wrong."
            for (id,) in self._rows("miscounted_attempts", ROW, limit)
        ]
        found += [
            f"The usage of {owner!r} is kept as {kept} bytes in {kept_chats} chats, but comes to {due} in "
            f"{due_chats}."
            for owner, kept, due, kept_chats, due_chats in self._rows("miscounted_owners", BLOCK, ROW, limit)
        ]
        found += [
            f"{ShareId.trusted(id)} counts other bytes or chats than its visitors store."
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
                            found = self._rows("ref_of_branch", branch.raw)
                            refs[branch] = found[0][0] if found else None
                        if refs[branch] not in (None, ref):
                            yield BranchId.trusted(id), branch
