"""Everything at once: all rows are named, page by page, and a store tells what is odd about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnledger.engine.ports import Store
from turnledger.model.attempt import AttemptState
from turnledger.model.conversation import Branch, Claim, Conversation, Origin, Stretch, Ticket
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.testing.store_contract.rows import (
    IDS,
    LATE,
    begun,
    conversation,
    do,
    full_attempt,
    read,
    write,
)
from turnledger.testing.store_contract.stage import Contract


class Everything(Contract):
    async def test_all_rows_are_named_page_by_page_with_their_owners(self, stores: list[Store]) -> None:
        here, there = stores
        chats = [await begun(here, conversation(owner=owner)) for owner in ("ann", "ben", "ann")]
        attempts = [full_attempt(each) for each in chats]
        attempts += [full_attempt(each, state=AttemptState.FAILED) for each in chats]
        tickets = [_ticket_for(each) for each in chats]
        claims = [
            Claim(
                owner=each.owner,
                idempotency_key=f"{number}",
                fingerprint=b"f",
                conversation=each.id,
                attempt=IDS.new(TurnId),
            )
            for number, each in enumerate(chats)
        ]
        await write(
            here,
            *[do("add_attempt", each) for each in attempts],
            *[do("save_claim", each) for each in claims],
        )
        numbered = await write(here, *[do("add_ticket", each) for each in tickets])
        lost = IDS.new(BranchId)
        await write(here, do("add_branch", Branch(id=lost, conversation=IDS.new(ConversationId))))

        assert sorted(await _all(there, "all_conversations", lambda row: row[1])) == sorted(
            (each.owner, each.id) for each in chats
        )
        assert await _all(there, "all_branches", lambda row: row[1]) == [
            *((each.owner, each.branch) for each in chats),
            (None, lost),
        ]
        assert sorted(await _all(there, "all_attempts", lambda row: row[1])) == sorted(
            (each.owner, each.id) for each in attempts
        )
        found = await _all(there, "all_tickets", lambda row: row[1].attempt)
        expected = zip([each.owner for each in chats], numbered, strict=True)
        assert {each.attempt: (owner, each) for owner, each in found} == {
            each.attempt: (owner, each) for owner, each in expected
        }
        found = await _all(there, "all_claims", lambda claim: claim)
        assert sorted(found, key=lambda claim: claim.idempotency_key) == claims

    async def test_a_branch_knows_up_to_where_others_need_it(self, stores: list[Store]) -> None:
        here, there = stores
        found = await begun(here)
        assert await read(there, do("needed_through", found.branch)) == 0
        for through in (3, 5, 2):
            made = Branch(id=IDS.new(BranchId), conversation=found.id, start=through)
            stretch = Stretch(found.branch, 0, through)
            origin = Origin(branch=made.id, conversation=found.id, base=IDS.new(TurnId), line=(stretch,))
            await write(here, do("add_branch", made), do("add_origin", origin))
        assert await read(there, do("needed_through", found.branch)) == 5

    async def test_a_store_tells_what_is_odd_about_it(self, stores: list[Store]) -> None:
        here, there = stores
        found = await begun(here)
        attempt = full_attempt(found)
        await write(here, do("add_attempt", attempt), do("add_records", attempt.id, 0, [b"record"]))
        assert await read(there, do("oddities", 9)) == []
        await write(here, do("drop_attempt", attempt.id))
        [told] = await read(there, do("oddities", 9))
        assert attempt.id in told
        assert await read(there, do("oddities", 0)) == []
        assert await read(there, do("turns_without_checksum")) == 0


async def _all(store: Store, method: str, name: Callable[[Any], Any]) -> list[Any]:
    """All that a method names, two at a time."""
    found: list[Any] = []
    while page := await read(store, do(method, name(found[-1]) if found else None, 2)):
        found += page
    return found


def _ticket_for(found: Conversation) -> Ticket:
    return Ticket(
        attempt=IDS.new(TurnId),
        conversation=found.id,
        branch=found.branch,
        lease=IDS.new(LeaseId),
        deadline=LATE,
    )
