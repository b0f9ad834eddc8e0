"""What only a check of the whole store reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnledger.engine.ports import Store
from turnledger.engine.tables.inspection import Owned
from turnledger.model.conversation import Branch, Conversation, ConversationState, Origin, Stretch
from turnledger.model.ids import BranchId, TurnId
from turnledger.testing.store_contract.rows.kit import (
    IDS,
    add_ticket,
    branch_off,
    claim,
    conversation,
    do,
    ended_attempt,
    full_attempt,
    grow,
    insert_all,
    insert_conversation,
    job,
    link,
    read,
    save_branch,
    token,
    write,
)
from turnledger.testing.store_contract.stage import Contract


def row_of(owned: Owned[Any]) -> Any:
    return owned.row


async def read_pages(store: Store, method: str, name: Callable[[Any], Any] = row_of) -> list[Any]:
    """Read all pages of a method, two rows at a time."""
    found: list[Any] = []
    while page := await read(store, do(method, name(found[-1]) if found else None, 2)):
        assert len(page) <= 2
        assert not any(each in found for each in page)
        found += page
    return found


async def insert_chats(store: Store) -> list[Conversation]:
    return await insert_all(
        store, [conversation(owner=owner) for owner in ("ann", "ben", "ann", "eve", "ben")]
    )


class InspectedRows(Contract):
    async def test_all_conversations_are_listed_in_pages_with_their_owners(self, stores: list[Store]) -> None:
        chats = await insert_chats(stores[0])
        chats.append(await insert_conversation(stores[0], conversation(state=ConversationState.PURGED)))
        found = await read_pages(stores[1], "all_conversations")
        assert sorted(found, key=row_of) == [Owned(each.owner, each.id) for each in chats]

    async def test_all_branches_are_listed_in_pages_in_order_of_creation(self, stores: list[Store]) -> None:
        chats = await insert_chats(stores[0])
        made = [Owned(each.owner, each.branch) for each in chats]
        for each in reversed(chats):
            made.append(Owned(each.owner, (await branch_off(stores[0], each, None))[0].id))
        assert await read_pages(stores[1], "all_branches") == made

    async def test_all_attempts_are_listed_in_pages_with_their_owners(self, stores: list[Store]) -> None:
        made = [
            make(each) for each in await insert_chats(stores[0]) for make in (full_attempt, ended_attempt)
        ]
        await write(stores[0], *(do("add_attempt", each) for each in made))
        found = await read_pages(stores[1], "all_attempts")
        assert sorted(found, key=row_of) == [Owned(each.owner, each.id) for each in made]

    async def test_all_tickets_are_listed_in_pages_with_their_owners(self, stores: list[Store]) -> None:
        chats = await insert_chats(stores[0])
        made = [Owned(each.owner, await add_ticket(stores[0], each)) for each in chats]
        found = await read_pages(stores[1], "all_tickets", lambda owned: owned.row.attempt)
        assert sorted(found, key=lambda owned: owned.row.attempt) == made

    async def test_all_jobs_are_listed_in_pages_with_their_owners(self, stores: list[Store]) -> None:
        made = [job(each) for each in await insert_chats(stores[0])]
        await write(stores[0], *(do("add_job", each) for each in made))
        found = await read_pages(stores[1], "all_jobs", lambda owned: owned.row.id)
        assert found == [Owned(each.owner, each) for each in made]

    async def test_all_claims_are_listed_in_pages(self, stores: list[Store]) -> None:
        names = [("ann", "a"), ("ann", "b"), ("ben", "a"), ("eve", "c"), ("eve", "d")]
        made = [claim(owner=owner, idempotency_key=key) for owner, key in names]
        await write(stores[0], *(do("save_claim", each) for each in made))
        found = await read_pages(stores[1], "all_claims", lambda claim: claim)
        assert sorted(found, key=lambda each: (each.owner, each.idempotency_key)) == made

    async def test_all_tokens_are_listed_in_pages_in_order_of_id(self, stores: list[Store]) -> None:
        made = [token(owner=owner, revoked_at=at) for owner, at in (("ann", 1), ("ben", None), ("ann", None))]
        await write(stores[0], *(do("add_token", each) for each in reversed(made)))
        found = await read_pages(stores[1], "all_tokens")
        assert found == [Owned(each.owner, each.id) for each in made]

    async def test_needed_through_is_the_last_number_that_branches_made_from_it_need(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here)
        assert await read(there, do("needed_through", found.branch)) == 0
        for through in (3, 5, 2):
            made = Branch(id=IDS.new(BranchId), conversation=found.id, start=through)
            line = (Stretch(found.branch, 0, through),)
            origin = Origin(branch=made.id, conversation=found.id, base=IDS.new(TurnId), line=line)
            await write(here, do("add_branch", made), do("add_origin", origin))
        assert await read(there, do("needed_through", found.branch)) == 5
        assert await read(there, do("needed_through", IDS.new(BranchId))) == 0

    async def test_inconsistencies_name_a_journal_without_its_attempt(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here)
        attempt = full_attempt(found)
        await write(here, do("add_attempt", attempt), do("add_records", attempt.id, 0, [b"record"]))
        assert await read(there, do("inconsistencies", 9)) == []
        await write(here, do("drop_attempt", attempt.id))
        [oddity] = await read(there, do("inconsistencies", 9))
        assert attempt.id in oddity
        assert await read(there, do("inconsistencies", 0)) == []

    async def test_miscounts_name_branches_attempts_owners_and_links(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        await grow(here, found.branch, 1)
        share, attempt = link(bytes=5), ended_attempt(found, bytes=5)
        await write(here, do("add_share", share), do("add_attempt", attempt))
        await write(here, do("count_bytes", 7, owner="eve"))
        sentences = "\n".join(await read(there, do("miscounts", 99)))
        for name in (found.branch, attempt.id, "'eve'", share.id):
            assert name in sentences
        assert len(await read(there, do("miscounts", 2))) == 2

    async def test_miscounts_are_none_when_all_is_counted(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        [made] = await grow(here, found.branch, 1)
        await save_branch(here, found, bytes=len(made.body))
        assert await read(there, do("miscounts", 9)) == []

    async def test_turns_without_checksum_are_none_in_a_new_store(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        await grow(here, found.branch, 3)
        assert await read(there, do("turns_without_checksum")) == 0
