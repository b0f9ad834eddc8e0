"""The rows of lanes: attempts with journals and event logs, tickets, and leases."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store, WholeStore
from turnledger.engine.tables.jobs import ReadyJob
from turnledger.engine.tables.lanes import BURIED_KEPT, HeldTicket, Lane
from turnledger.errors import StoreError
from turnledger.model.conversation import NOBODY, Branch, Lease
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.turn import AttemptState, Failure, Fork, Instructions, OnFailure, OnStop
from turnledger.testing.store_contract.rows.kit import (
    IDS,
    LATE,
    TEXT,
    add_ticket,
    branch_off,
    conversation,
    do,
    do_whole,
    ended_attempt,
    full_attempt,
    grow,
    insert_all,
    insert_conversation,
    job,
    read,
    read_all,
    save_branch,
    ticket,
    write,
)
from turnledger.testing.store_contract.stage import Contract

LONG = "long " * 300


class StoredAttempts(Contract):
    async def test_lane_has_conversation_branch_lease_and_versions(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        lease = IDS.new(LeaseId)
        branch = Branch(id=found.branch, conversation=found.id)
        lane = do("lane", found.id, lease)
        assert await read(there, lane) == Lane(found, branch, False, 0, 0)
        [made] = await grow(here, found.branch, 1)
        await write(here, do("raise_admission", "bob"), do("raise_admission", "bob"))
        await write(here, do("beat", lease), do("save_flags", made.id, {}), do("raise_admission", "ann"))
        versions = [await read(here, do(method)) for method in ("flag_version", "admission")]
        assert await read(there, lane) == Lane(found, branch, True, *versions)
        assert await read(there, do("lane", IDS.new(ConversationId), lease)) is None

    async def test_lane_has_the_current_branch_as_last_saved(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        lease = IDS.new(LeaseId)
        made, _ = await branch_off(here, found, None)
        await write(here, do("beat", lease), do("lane", found.id, lease))
        saved = replace(made, fence=3, preview=TEXT)
        await write(
            here,
            do("move_conversation", found.id, found.branch, made.id),
            do("touch_conversation", found.id, 9),
            do("save_branch", saved),
        )
        added = await add_ticket(here, found, branch=made.id)
        moved = replace(found, branch=made.id, touched_at=9)
        expected = Lane(moved, replace(saved, last_ticket=added.number), True, 0, 0)
        assert await read(there, do("lane", found.id, lease)) == expected
        assert await write(here, do("lane", found.id, lease)) == [expected]
        await write(there, do("drop_lease", lease))
        assert await write(here, do("lane", found.id, lease)) == [replace(expected, has_lease=False)]

    async def test_admission_rises_with_the_tokens_of_its_owner_only(self, stores: list[Store]) -> None:
        here, there = stores
        versions = [await read(there, do("admission"))]
        for number in range(3):
            await write(stores[number % 2], do("raise_admission", "ann"))
            versions.append(await read(there, do("admission")))
        assert versions == sorted(set(versions))
        assert versions[0] == await read(here, do("admission", owner="eve")) == 0

    @pytest.mark.parametrize("is_lasting", [True, False])
    @pytest.mark.parametrize("texts", [(), ("short",), (LONG, TEXT)])
    async def test_attempt_is_read_as_added(
        self, here: Store, there: Store, texts: tuple[str, ...], is_lasting: bool
    ) -> None:
        found = await insert_conversation(here)
        given = Instructions(tuple(message("developer", text) for text in texts), is_lasting)
        ended = {"stop": OnStop.KEEP, "failure": Failure("code", TEXT), "partial": TEXT, "journaled": 3}
        for made in (
            full_attempt(found, instructions=given),
            full_attempt(found, raw_details=b'{"model": "m"}'),
            full_attempt(found, base=None, idempotency_key=None, input=()),
            ended_attempt(found, instructions=given, **ended, bytes=9),
        ):
            await write(here, do("add_attempt", made))
            assert await read(there, do("attempt", made.id)) == made
        assert await read(there, do("attempt", IDS.new(TurnId))) is None

    async def test_attempt_has_its_fork(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        for place in (
            Fork(
                branch=IDS.new(BranchId), base=IDS.new(TurnId), number=7, forget=True, repeats=IDS.new(TurnId)
            ),
            Fork(branch=IDS.new(BranchId), base=None, number=0),
        ):
            made = full_attempt(found, fork=place)
            await write(here, do("add_attempt", made))
            assert await read(there, do("attempt", made.id)) == made

    async def test_attempts_of_a_conversation_are_newest_first(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made = [
            full_attempt(found),
            ended_attempt(found),
            ended_attempt(found, input=(Item.of(LONG),)),
            full_attempt(found),
        ]
        await write(here, *(do("add_attempt", each) for each in (*made, full_attempt(other))))
        newest = sorted(made, key=lambda each: each.id, reverse=True)
        lists = await read_all(there, "attempts", (found.id, 9), (found.id, 2), (IDS.new(ConversationId), 9))
        assert lists == [newest, newest[:2], []]

    async def test_running_in_a_conversation_are_those_of_all_its_branches(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made, _ = await branch_off(here, found, None)
        long = (Item.of("long " * 300),)
        running = [full_attempt(found), full_attempt(found, branch=made.id, input=long)]
        for each in (running[1], ended_attempt(found), full_attempt(other), running[0]):
            await write(here, do("add_attempt", each))
        assert await read(there, do("running_in", found.id)) == running

    @pytest.mark.parametrize("state", [AttemptState.RUNNING, AttemptState.FAILED])
    async def test_add_attempt_refuses_a_taken_id(
        self, here: Store, there: Store, state: AttemptState
    ) -> None:
        found = await insert_conversation(here)
        made = full_attempt(found, state=state, ended_at=None if state is AttemptState.RUNNING else 5)
        await write(here, do("add_attempt", made))
        for twin in (full_attempt(found, id=made.id), ended_attempt(found, id=made.id)):
            with pytest.raises(StoreError):
                await write(there, do("add_attempt", twin))
        assert await read(there, do("attempts", found.id, 9)) == [made]

    async def test_save_attempt_updates_its_progress_and_end_only(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made, beside = full_attempt(found, input=(Item.of(LONG),)), full_attempt(found)
        await write(here, do("add_attempt", made), do("add_attempt", beside))
        steps: list[dict[str, Any]] = [
            {"journaled": 2},
            {"lease": IDS.new(LeaseId), "fence": 8, "stop": OnStop.KEEP, "reads": 3},
            {
                "state": AttemptState.DISCARDED,
                "failure": Failure("code", TEXT),
                "partial": TEXT,
                "ended_at": LATE,
                "bytes": 9,
            },
        ]
        for changes in steps:
            made = replace(made, **changes)
            fixed = {"branch": other.branch, "conversation": other.id, "base": None, "created_at": 9}
            policies = {"on_stop": OnStop.KEEP, "on_failure": OnFailure.KEEP, "idempotency_key": None}
            saved = replace(made, **fixed, **policies, input=(), is_interaction=True)
            await write(here, do("attempt", made.id), do("save_attempt", saved))
            assert await read(there, do("attempt", made.id)) == made
        assert await read(there, do("attempt", beside.id)) == beside

    @pytest.mark.parametrize("text", ["short", LONG])
    async def test_drop_attempt_removes_only_this_one(self, here: Store, there: Store, text: str) -> None:
        found = await insert_conversation(here)
        made = [make(found, input=(Item.of(text),)) for make in (full_attempt, ended_attempt, full_attempt)]
        await write(here, *(do("add_attempt", each) for each in made))
        await write(there, *(do("drop_attempt", each.id) for each in made[:2]))
        await write(there, do("drop_attempt", IDS.new(TurnId)))
        assert await read(here, do("attempts", found.id, 9)) == made[2:]
        assert await read(there, do("inconsistencies", 9)) == []

    async def test_journal_is_the_records_of_an_attempt_in_order(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        first, second = full_attempt(found), full_attempt(found)
        await write(here, do("add_attempt", first), do("add_attempt", second))
        records = [f"record {number}".encode() for number in range(12)]
        await write(here, do("add_records", first.id, 0, records[:10]))
        await write(there, do("add_records", first.id, 10, records[10:]))
        assert await read_all(there, "journal", (first.id,), (second.id,)) == [records, []]

    async def test_add_records_keeps_records_that_exist(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        made = full_attempt(found)
        await write(here, do("add_attempt", made), do("add_records", made.id, 0, [b"0", b"1"]))
        await write(there, do("add_records", made.id, 1, [b"other", b"2"]))
        await write(here, do("add_records", made.id, 1, []))
        assert await read(there, do("journal", made.id)) == [b"0", b"1", b"2"]

    async def test_drop_journal_removes_the_records_of_one_attempt(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        made = [full_attempt(found), full_attempt(found)]
        for each in made:
            await write(here, do("add_attempt", each), do("add_records", each.id, 0, [b"r"]))
        await write(there, do("drop_journal", made[0].id))
        assert await read_all(here, "journal", *((each.id,) for each in made)) == [[], [b"r"]]

    async def test_log_chunks_are_those_from_a_number_in_order(self, stores: list[Store]) -> None:
        there = stores[1]
        first, second = IDS.new(TurnId), IDS.new(TurnId)
        chunks = [f"chunk {number}".encode() for number in range(12)]
        for number, chunk in enumerate(chunks):
            await write(stores[number % 2], do("add_log_chunk", first, number, chunk))
        lists = await read_all(there, "log_chunks", (first, 0, 99), (first, 9, 2), (second, 0, 99))
        assert lists == [chunks, chunks[9:11], []]

    async def test_add_log_chunk_keeps_one_that_exists(self, here: Store, there: Store) -> None:
        id = IDS.new(TurnId)
        for number, chunk in ((0, b"0"), (1, b"1"), (0, b"other"), (1, b"other")):
            await write(here, do("add_log_chunk", id, number, chunk))
        assert await read(there, do("log_chunks", id, 0, 9)) == [b"0", b"1"]

    async def test_add_log_chunk_leaves_no_gap(self, here: Store, there: Store) -> None:
        id = IDS.new(TurnId)
        for number in (1, 0, 2):
            await write(here, do("add_log_chunk", id, number, b"c"))
        assert await read(there, do("log_chunks", id, 0, 9)) == [b"c"]

    async def test_drop_log_removes_the_chunks_of_one_attempt(self, here: Store, there: Store) -> None:
        first, second = IDS.new(TurnId), IDS.new(TurnId)
        await write(here, *(do("add_log_chunk", id, 0, b"c") for id in (first, second)))
        await write(there, do("drop_log", first))
        assert await read_all(here, "log_chunks", (first, 0, 9), (second, 0, 9)) == [[], [b"c"]]

    async def test_running_attempts_of_a_lease_exclude_ended_ones(self, here: Store, there: Store) -> None:
        found, foreign = await insert_all(here, [conversation(), conversation(owner="bob")])
        running = full_attempt(found)
        made = [full_attempt(foreign, lease=running.lease), running]
        others = [ended_attempt(found, lease=running.lease), full_attempt(found)]
        await write(here, *(do("add_attempt", each) for each in (*made, *others)))
        held = await read(there, do("running_attempts", running.lease))
        assert sorted(held, key=lambda each: each.id) == sorted(made, key=lambda each: each.id)
        assert await read(there, do("running_attempts", IDS.new(LeaseId))) == []


class StoredTickets(Contract):
    async def test_tickets_of_a_branch_are_front_ones_first_then_by_number(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made = [await add_ticket(here, found, front=front) for front in (False, False, True, True, False)]
        await add_ticket(here, other)
        in_order = [made[2], made[3], made[0], made[1], made[4]]
        lists = await read_all(there, "tickets", (found.branch,), (IDS.new(BranchId),))
        assert lists == [in_order, []]

    async def test_ticket_is_read_as_added(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        full = {"front": True, "idempotency_key": TEXT, "fingerprint": b"\x00\xff", "is_interaction": False}
        for details in ({}, {**full, "claimed": IDS.new(TurnId)}):
            made = await add_ticket(here, found, **details)
            assert await read(there, do("ticket", made.attempt)) == made
        assert await read(there, do("ticket", IDS.new(TurnId))) is None

    async def test_ticket_for_a_key_is_the_oldest_of_any_branch(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made = [await add_ticket(here, each, idempotency_key="k") for each in (found, other)]
        await add_ticket(here, found, idempotency_key="K")
        await add_ticket(here, found)
        for each in sorted(made, key=lambda each: each.attempt):
            assert await read(there, do("ticket_for", "k")) == each
            await write(here, do("drop_ticket", each.attempt))
        assert await read(there, do("ticket_for", "k")) is None

    async def test_add_ticket_numbers_the_tickets_of_a_branch(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        numbers = []
        for store in (here, there, here):
            new = ticket(found)
            [added] = await write(store, do("add_ticket", new))
            assert added == replace(new, number=added.number)
            numbers.append(added.number)
            await write(store, do("drop_ticket", new.attempt))
        assert numbers == sorted(set(numbers))

    async def test_add_ticket_refuses_a_taken_id(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made = await add_ticket(here, found)
        with pytest.raises(StoreError):
            await add_ticket(there, other, attempt=made.attempt)
        assert await read(there, do("ticket", made.attempt)) == made

    async def test_drop_ticket_removes_only_this_one(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        made = [await add_ticket(here, found) for _ in range(3)]
        await write(there, do("drop_ticket", made[1].attempt), do("drop_ticket", IDS.new(TurnId)))
        assert await read(here, do("tickets", found.branch)) == [made[0], made[2]]

    async def test_move_tickets_appends_the_queue_in_order_behind_another(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made, _ = await branch_off(here, found, None)
        ahead = [(await add_ticket(here, found, branch=made.id)).attempt for _ in range(2)]
        behind = [(await add_ticket(here, found, front=place == 2)).attempt for place in range(3)]
        apart = await add_ticket(here, other)
        await write(here, do("move_tickets", found.branch, made.id))
        queue = await read(there, do("tickets", made.id))
        assert [each.attempt for each in queue] == [behind[2], *ahead, *behind[:2]]
        assert {each.branch for each in queue} == {made.id}
        assert await read_all(there, "tickets", (found.branch,), (other.branch,)) == [[], [apart]]
        later = await add_ticket(here, found, branch=made.id)
        queue = await read(there, do("tickets", made.id))
        assert queue[-1] == later
        assert len({each.number for each in queue}) == len(queue)

    async def test_held_tickets_of_a_lease_have_their_owners(self, here: Store, there: Store) -> None:
        lease = IDS.new(LeaseId)
        chats = await insert_all(here, [conversation(), conversation(owner="bob"), conversation()])
        made = [HeldTicket(each.owner, await add_ticket(here, each, lease=lease)) for each in chats]
        await add_ticket(here, chats[0])
        held = await read(there, do("held_tickets", lease))
        assert sorted(held, key=lambda each: each.ticket.attempt) == sorted(
            made, key=lambda each: each.ticket.attempt
        )
        assert await read(there, do("held_tickets", IDS.new(LeaseId))) == []

    async def test_drop_orphaned_tickets_keeps_those_of_a_conversation(
        self, here: Store, there: Store
    ) -> None:
        waiting = await add_ticket(here, await insert_conversation(here))
        await write(here, do("drop_orphaned_tickets", waiting.lease))
        assert await read(there, do("ticket", waiting.attempt)) == waiting


class StoredJobs(Contract):
    async def test_job_is_read_as_added(self, here: Store, there: Store) -> None:
        made = job(await insert_conversation(here))
        await write(here, do("add_job", made))
        assert await read(there, do("job", made.id)) == made
        assert await read(there, do("job", IDS.new(TurnId))) is None

    async def test_add_job_refuses_a_taken_id(self, here: Store, there: Store) -> None:
        made = job(await insert_conversation(here))
        await write(here, do("add_job", made))
        with pytest.raises(StoreError):
            await write(there, do("add_job", replace(made, created_at=1)))
        assert await read(here, do("job", made.id)) == made

    async def test_jobs_of_an_owner_are_listed_in_order_of_their_ids(self, here: Store, there: Store) -> None:
        chats = await insert_all(here, [conversation(), conversation(), conversation(owner="bob")])
        made = [job(chats[place]) for place in (0, 1, 2, 0)]
        await write(here, *(do("add_job", each) for each in reversed(made)))
        own = [made[0], made[1], made[3]]
        lists = await read_all(there, "jobs", (None, 9), (None, 2), (made[0].id, 9), (made[3].id, 9))
        assert lists == [own, own[:2], own[1:], []]

    async def test_count_jobs_counts_those_of_an_owner(self, here: Store, there: Store) -> None:
        chats = await insert_all(here, [conversation(), conversation(), conversation(owner="bob")])
        await write(here, *(do("add_job", job(each)) for each in chats))
        assert await read(there, do("count_jobs")) == 2

    async def test_count_resume_changes_only_this_one(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        made = [job(found) for _ in range(2)]
        await write(here, *(do("add_job", each) for each in made))
        await write(there, do("count_resume", made[0].id), do("count_resume", IDS.new(TurnId)))
        assert await read(here, do("jobs", None, 9)) == [replace(made[0], resumes=3), made[1]]

    async def test_drop_job_removes_only_this_one(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        made = [job(found) for _ in range(3)]
        await write(here, *(do("add_job", each) for each in made))
        await write(there, do("drop_job", made[1].id), do("drop_job", IDS.new(TurnId)))
        assert await read(here, do("jobs", None, 9)) == [made[0], made[2]]

    async def test_ready_jobs_are_first_in_a_free_lane_or_run_under_no_process(
        self, here: Store, there: Store
    ) -> None:
        chats = await insert_all(here, [conversation(owner=owner) for owner in ("ann", "bob", "ann", "eve")])
        free, other, busy, unheld = chats
        first, second, front, behind, left = [job(each) for each in (free, free, other, other, busy)]
        orphan, held = job(unheld), job(unheld)
        await write(
            here, *(do("add_job", each) for each in (first, second, front, behind, left, orphan, held))
        )
        await add_ticket(here, free, attempt=first.id, lease=NOBODY)
        await add_ticket(here, free, attempt=second.id, lease=NOBODY)
        await add_ticket(here, other, attempt=behind.id, lease=NOBODY)
        await add_ticket(here, other, attempt=front.id, lease=NOBODY, front=True)
        await add_ticket(here, busy, attempt=left.id, lease=NOBODY)
        await save_branch(here, busy, running=IDS.new(TurnId))
        for each, lease in ((orphan, NOBODY), (held, IDS.new(LeaseId))):
            await write(here, do("add_attempt", full_attempt(unheld, id=each.id, lease=lease)))
        ready = [ReadyJob(each.owner, each.id) for each in (first, front, orphan)]
        assert await read(there, do("ready_jobs", 9)) == ready
        assert await read(there, do("ready_jobs", 2)) == ready[:2]

    async def test_ready_jobs_wait_behind_a_ticket_of_a_process(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        waiting, made = await add_ticket(here, found), job(found)
        await write(here, do("add_job", made))
        await add_ticket(here, found, attempt=made.id, lease=NOBODY)
        assert await read(there, do("ready_jobs", 9)) == []
        await write(here, do("drop_ticket", waiting.attempt))
        assert await read(there, do("ready_jobs", 9)) == [ReadyJob(made.owner, made.id)]


class StoredLeases(Contract):
    async def test_lease_has_its_last_beat(self, here: Store, there: Store) -> None:
        lease = IDS.new(LeaseId)
        assert await read(there, do("lease", lease)) is None
        await write(here, do("beat", lease))
        found = await read(there, do("lease", lease))
        assert found == Lease(lease, found.beat)
        for step in (do("lease", lease, owner="bob"), do_whole("lease", lease)):
            assert await read(there, step) == found

    async def test_beat_raises_the_beat_of_one_lease(self, stores: list[Store]) -> None:
        here, there = stores
        lease, other = IDS.new(LeaseId), IDS.new(LeaseId)
        await write(here, do("beat", other))
        before = await read(there, do("lease", other))
        beats: list[int] = []
        for step in (do("beat", lease), do_whole("beat", lease), do("beat", lease, owner="bob")):
            await write(stores[len(beats) % 2], step)
            beats.append((await read(here, do("lease", lease))).beat)
        assert beats == sorted(set(beats))
        assert await read(there, do("lease", other)) == before

    async def test_leases_are_all_that_are_alive(self, here: Store, there: Store) -> None:
        made = [IDS.new(LeaseId) for _ in range(4)]
        await write(here, *(do("beat", each) for each in made))
        await write(here, do("drop_lease", made[0]), do("bury_lease", made[1]))
        alive = [Lease(each, 1) for each in made[2:]]
        assert sorted(await read(there, do("leases")), key=lambda each: each.id) == alive

    async def test_drop_lease_removes_it_with_its_beats(self, here: Store, there: Store) -> None:
        lease = IDS.new(LeaseId)
        await write(here, do("beat", lease), do("beat", lease), do("drop_lease", lease))
        assert await read(there, do("lease", lease)) is None
        await write(there, do("drop_lease", lease), do("beat", lease))
        assert await read(here, do("lease", lease)) == Lease(lease, 1)

    async def test_bury_lease_removes_it_but_its_beats_go_on_if_it_returns(
        self, here: Store, there: Store
    ) -> None:
        lease, other = IDS.new(LeaseId), IDS.new(LeaseId)
        for each in (lease, lease, other):
            await write(here, do("beat", each))
        await write(here, do("bury_lease", lease))
        await write(here, do("bury_lease", lease))
        assert await read(there, do("lease", lease)) is None
        assert await read(there, do("leases")) == [Lease(other, 1)]
        await write(there, do("beat", lease))
        assert await read(here, do("lease", lease)) == Lease(lease, 3)
        assert len(await read(here, do("leases"))) == 2

    async def test_bury_lease_remembers_only_the_last_ones(self, stores: list[Store]) -> None:
        *leases, youngest = (IDS.new(LeaseId) for _ in range(BURIED_KEPT + 1))

        async def bury_all(whole: WholeStore, _: None) -> None:
            for lease in (youngest, *leases):  # a process that lived long may be the last to die
                await whole.beat(lease)
                await whole.bury_lease(lease)
            await whole.beat(leases[0])
            await whole.beat(youngest)

        await stores[0].transact_whole(bury_all, None)
        assert await read(stores[1], do("leases")) == [Lease(leases[0], 2), Lease(youngest, 1)]
