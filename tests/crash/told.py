"""What followers were told over HTTP, held against the changes stored, and these against all else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from turnledger import Ledger
from turnledger.ledger import OWNER
from turnledger.model.ids import ConversationId
from turnledger.testing.change_audit import Stored, all_stored, broken_by_telling


class Told(NamedTuple):
    """One event as it was heard."""

    id: str
    kind: str
    data: dict[str, Any]


async def check_told(ledger: Ledger, heard: Sequence[Sequence[Told]]) -> Counter[str]:
    """Raise AssertionError for what was told wrongly, twice or not; return how often which kind was told."""
    stored = await ledger._process.store.read(all_stored, OWNER)
    problems = list(broken_by_telling(stored))
    assert problems == [], problems
    changes = {str(change.position): change for change in stored.changes}
    expected = list(changes)
    for each in heard:
        ids = [told.id for told in each]
        assert ids == expected[expected.index(ids[0]) :], "not in order, or not all"
        for told in each:
            change = changes[told.id]
            assert (told.kind, told.data["chat"]) == (change.kind, change.conversation)
            assert told.data.get("turn") == change.turn
    whole = max(heard, key=len)
    assert len(whole) == len(expected), "nobody heard all of it"
    _check_chats(whole, stored)
    return Counter(told.kind for told in whole)


def _check_chats(heard: Sequence[Told], stored: Stored) -> None:
    """Who goes by the last that he was told of each chat knows how it is."""
    shown: dict[str, dict[str, Any]] = {}
    for told in heard:
        if "revision" in told.data:
            shown.setdefault(told.data["chat"], {}).update(told.data)
    for id, data in shown.items():
        found = stored.conversations[ConversationId(id)]
        if found.state == "live":
            assert (data["title"], data["revision"], data["branch"]) == (
                found.title,
                found.revision,
                found.branch,
            )
