"""Whether the tables of a SQLite store agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from turnledger.errors import StoreCorrupt
from turnledger.model.ids import BranchId, TurnId
from turnledger.stores.damage import decoder
from turnledger.stores.sql.inspection import ODD, Oddities, SqlInspectionRows
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.records import NamedQueries

ODD_HERE: Oddities = {
    **ODD,
    "inputs_without_attempt": (TurnId, "An input refers to missing attempt {}."),
    "attempts_in_the_wrong_half": (
        TurnId,
        "{} is in the wrong table for its state, or among both running and ended attempts.",
    ),
}

ODD_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "words_without_turn": "The search index has words of missing turns.",
        "words_without_title": "The search index has words of missing titles.",
        "mark_behind_turns": "The search index counts missing turns as indexed; later turns cannot be found.",
    }
)
"""Queries for inconsistencies in the search index, and the message for each."""

PAGE = 500


class SqliteInspectionRows(SqlInspectionRows, NamedQueries):
    @decoder
    async def inconsistencies(self, limit: int) -> list[str]:
        found = [f"SQLite integrity check: {text}." for (text,) in self._rows("integrity", limit)]
        if found == ["SQLite integrity check: ok."]:
            found = []
        found += await self._odd_rows(ODD_HERE, limit)
        found += [
            f"The line of {branch} has a wrong reference to {other}; it reads another branch."
            for branch, other in self._misdirected_lines()
        ]
        found += [sentence for query, sentence in ODD_WORDS.items() if self._rows(query)]
        return found[:limit]

    @decoder
    async def turns_without_checksum(self) -> int:
        return await self._fetch_number("turns_without_checksum")

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
