"""What concerns the rows of all owners: ids in use, rows to remove, the clock."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from turnledger.engine.ports import Store
from turnledger.engine.tables.maintenance import ClockMark, CountedTurn, UnusedBranch
from turnledger.model.conversation import Branch, ConversationState, Stretch, Usage, branch_bytes
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.testing.store_contract.rows.kit import (
    IDS,
    add_ticket,
    branch_off,
    change,
    claim,
    conversation,
    do,
    do_whole,
    ended_attempt,
    full_attempt,
    grow,
    insert_all,
    insert_conversation,
    read,
    read_all,
    save_branch,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import Contract

DELETED, PURGED = ConversationState.DELETED, ConversationState.PURGED


class StoreUpkeep(Contract):
    async def test_of_an_owner_has_the_rows_of_that_owner_in_the_same_transaction(
        self, stores: list[Store]
    ) -> None:
        made = [conversation(), conversation(owner="bob")]
        inserts = [do("add_conversation", each) for each in made]
        lookups = [do("conversation", each.id, owner=owner) for owner in ("ann", "bob") for each in made]
        answers = await write(stores[0], *inserts, *lookups)
        assert answers[2:] == [made[0], None, None, made[1]]

    async def test_owner_of_the_rows_is_the_one_asked_for(self, stores: list[Store]) -> None:
        async def owner(tables: Any, _: None) -> str:
            name: str = tables.owner
            return name

        for name in ("ann", "bob", ""):
            assert await stores[0].read(owner, None, name) == name
            assert await stores[0].transact(owner, None, name) == name

    async def test_is_id_taken_by_a_conversation_of_any_owner(self, here: Store, there: Store) -> None:
        made = await insert_all(here, [conversation(state=PURGED), conversation(owner="bob")])
        ids = [*(each.id for each in made), IDS.new(ConversationId)]
        assert await read_all(there, "is_id_taken", *((id,) for id in ids)) == [True, True, False]

    async def test_taken_turns_are_turns_attempts_and_tickets_of_any_owner(
        self, here: Store, there: Store
    ) -> None:
        taken: list[TurnId] = []
        for found in await insert_all(here, [conversation(), conversation(owner="bob")]):
            attempts = [full_attempt(found), ended_attempt(found)]
            await write(here, *(do("add_attempt", each) for each in attempts))
            [made] = await grow(here, found.branch, 1, owner=found.owner)
            taken += [made.id, *(each.id for each in attempts), (await add_ticket(here, found)).attempt]
        free = [IDS.new(TurnId) for _ in range(2)]
        assert await read_all(there, "taken_turns", ([*taken, *free],), (free,)) == [set(taken), set()]

    async def test_taken_branches_are_those_of_any_owner(self, here: Store, there: Store) -> None:
        made = await insert_all(here, [conversation(), conversation(owner="bob")])
        taken, free = [each.branch for each in made], [IDS.new(BranchId)]
        assert await read_all(there, "taken_branches", ([*taken, *free],), (free,)) == [set(taken), set()]

    async def test_owners_that_store_anything_are_listed_in_order(self, here: Store, there: Store) -> None:
        for owner, count in (("bob", 1), ("ann", 1), ("eve", 1), ("eve", -1)):
            await write(here, do("count_bytes", count, owner=owner))
        lists = await read_all(there, "owners", (None, 9), (None, 1), ("ann", 9), ("bob", 9))
        assert lists == [["ann", "bob"], ["ann"], ["bob"], []]

    async def test_turns_of_all_are_read_by_id_up_to_a_number_and_a_size(
        self, here: Store, there: Store
    ) -> None:
        homes = await insert_all(here, [conversation(), conversation(owner="bob", scope="shop")])
        made = [
            (home.owner, home.scope, home.id, each)
            for home in homes
            for each in await grow(here, home.branch, 2, owner=home.owner)
        ]
        log = b"six by"
        last = turn(homes[0].branch, 3)
        await write(here, do("add_turn", last, log))
        made.append((homes[0].owner, homes[0].scope, homes[0].id, last))
        expected = [
            CountedTurn(owner, scope, chat, each.id, each.body, len(log) if each is last else 0)
            for owner, scope, chat, each in sorted(made, key=lambda found: found[3].id)
        ]
        size, second = len(expected[0].body), expected[1].id
        pages = [(None, 9, 10**9), (None, 2, 10**9), (second, 9, 10**9), (expected[-1].id, 9, 10**9)]
        assert await read_all(there, "turns_of_all", *pages) == [expected, expected[:2], expected[2:], []]
        bounded = [(None, 9, 1), (None, 9, size), (None, 9, size + 1), (second, 9, 1)]
        assert await read_all(there, "turns_of_all", *bounded) == [
            expected[:1],
            expected[:1],
            expected[:2],
            expected[2:3],
        ]

    async def test_due_conversations_are_the_first_of_each_kind_of_all_owners(
        self, here: Store, there: Store
    ) -> None:
        details: list[dict[str, Any]] = [
            {"owner": "late", "expires_after": 4, "touched_at": 4},
            {"owner": "lapsed", "expires_after": 4, "touched_at": 3},
            {"owner": "purged", "state": DELETED, "purge_at": 8},
            {"owner": "unlisted", "is_listed": False, "touched_at": 3},
            {"owner": "young", "is_listed": False, "touched_at": 4},
            {"owner": "kept", "expires_after": 9, "touched_at": 4},
            {"owner": "ann"},
        ]
        await insert_all(here, [conversation(**each) for each in details])
        due = {"late", "lapsed", "purged", "unlisted"}
        for now, unlisted_by, limit, expected in (
            (8, 3, 9, due),
            (8, 3, 1, due - {"late"}),
            (7, 2, 9, {"lapsed"}),
            (6, 2, 9, set()),
        ):
            found = await read(there, do("due_conversations", now, unlisted_by, limit))
            assert {each.owner for each in found} == expected, (now, unlisted_by, limit)

    async def test_purge_ended_of_all_owners_is_bounded_and_complete(self, here: Store, there: Store) -> None:
        owners = ("ann", "bob", "eve")
        made = await insert_all(here, [conversation(owner=owner) for owner in owners])
        for each in made:
            await grow(here, each.branch, 3, owner=each.owner)
        for each in made[:2]:
            await write(here, do("save_conversation", replace(each, state=PURGED)))
        removed = []
        while count := (await write(here, do_whole("purge_ended", 2)))[0]:
            removed.append(count)
        assert max(removed) <= 2
        assert sum(removed) == 6
        left = [await read(there, do("turns", each.branch, 0, 9, 9, owner=each.owner)) for each in made]
        assert [len(each) for each in left] == [0, 0, 3]
        used = [await read(there, do("usage", owner=owner)) for owner in owners]
        assert used == [Usage(bytes=0), Usage(bytes=0), Usage(bytes=branch_bytes(0), chats=1)]

    async def test_purge_attempts_removes_ended_ones_by_age_unless_unsettled(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here)
        long = (Item.of("long " * 300),)
        old = [ended_attempt(found, ended_at=10, bytes=5, input=long) for _ in range(3)]
        young, running = ended_attempt(found, ended_at=20), full_attempt(found)
        for each in (*old, young, running):
            await write(here, do("add_attempt", each), do("add_records", each.id, 0, [b"record"]))
            await write(here, do("add_log_chunk", each.id, 0, b"chunk"), do("count_bytes", each.bytes))
        await save_branch(here, found, unsettled=old[0].id, running=running.id)
        for limit, removed in ((1, 1), (9, 1), (9, 0)):
            assert await write(here, do("purge_attempts", 20, limit)) == [removed]
        left = {old[0].id, young.id, running.id}
        assert {each.id for each in await read(there, do("attempts", found.id, 9))} == left
        for each in (*old, young, running):
            rows = [b"record"], [b"chunk"]
            kept = [
                await read(there, do("journal", each.id)),
                await read(there, do("log_chunks", each.id, 0, 9)),
            ]
            assert kept == (list(rows) if each.id in left else [[], []])
        assert await read(there, do("usage")) == Usage(bytes=branch_bytes(0) + 5, chats=1)
        assert await read(there, do("inconsistencies", 9)) == []

    async def test_unused_side_branches_are_of_live_conversations_and_have_no_offshoots(
        self, here: Store, there: Store
    ) -> None:
        ann, bob = await insert_all(here, [conversation(), conversation(owner="bob")])
        gone = await insert_conversation(here, conversation(state=ConversationState.DELETED, purge_at=9))
        made: list[Branch] = []
        for used_at, found in ((7, ann), (5, bob), (8, ann), (None, ann), (4, ann), (4, gone), (3, ann)):
            branch, [own] = await branch_off(here, found, None, count=1)
            made.append(replace(branch, used_at=used_at))
            if used_at == 3:
                await branch_off(here, found, own, Stretch(branch.id, 0, 1))
            running = IDS.new(TurnId) if used_at == 4 and found is ann else None
            await write(here, do("save_branch", replace(made[-1], running=running), owner=found.owner))
        unused = [UnusedBranch("bob", made[1].id), UnusedBranch("ann", made[0].id)]
        lists = await read_all(there, "unused_side_branches", (7, 9), (7, 1), (4, 9))
        assert lists == [unused, unused[:1], []]

    async def test_purge_claims_removes_expired_ones_in_bounded_steps(
        self, here: Store, there: Store
    ) -> None:
        times = {"running": None, "old": 10, "older": 9, "young": 15}
        for key, expires_at in times.items():
            owner = "bob" if key == "older" else "ann"
            await write(
                here, do("save_claim", claim(owner=owner, idempotency_key=key, expires_at=expires_at))
            )
        for limit, removed in ((1, 1), (9, 1), (9, 0)):
            assert await write(there, do("purge_claims", 15, limit)) == [removed]
        left = await read(here, do("all_claims", None, 9))
        assert {each.idempotency_key for each in left} == {"running", "young"}

    async def test_clock_mark_is_none_until_one_is_saved(self, here: Store, there: Store) -> None:
        assert await read(there, do("clock_mark")) is None
        mark = ClockMark("", 2**52, -(2**52), 0)
        await write(here, do("save_clock_mark", mark))
        assert await read(there, do("clock_mark")) == mark

    async def test_save_clock_mark_replaces_the_last_one(self, here: Store, there: Store) -> None:
        for mark in (ClockMark("one", 1, -2, 0), ClockMark("two", 3, 4, 5)):
            await write(here, do("save_clock_mark", mark))
            assert await read(there, do("clock_mark")) == mark

    async def test_newest_time_is_that_of_the_last_turn_or_change(self, here: Store, there: Store) -> None:
        assert await read(there, do("newest_time")) is None
        found = await insert_conversation(here, conversation(owner="bob"))
        made = turn(found.branch, 1)
        await write(here, do("add_turn", made, owner="bob"))
        assert await read(there, do("newest_time")) == made.committed_at
        await write(here, do("add_change", change(at=made.committed_at + 5)))
        assert await read(there, do("newest_time")) == made.committed_at + 5
