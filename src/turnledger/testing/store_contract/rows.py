"""Rows: a read returns what was written; a transaction is atomic and isolated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import BURIED_KEPT, ClockMark, Store, Sync, Tables
from turnledger.errors import StoreError, Superseded
from turnledger.model.change import ChangeKind, LiveChange, Position
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    ConversationState,
    Lease,
    Origin,
    Stretch,
    Ticket,
)
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, IdSource, LeaseId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.retention import ResetPolicy
from turnledger.model.turn import (
    Attempt,
    AttemptState,
    Failure,
    Instructions,
    OnFailure,
    OnStop,
    Turn,
    TurnKind,
)
from turnledger.testing.store_contract.stage import Contract, OpenStore, Stage, call, exchange, soon

IDS = IdSource(lambda: 1_700_000_000_000, Random(1).getrandbits)
TEXT = "né\x00 \U0001f600 'q\" \n"
LATE = 2**52
"""Milliseconds: far in the future, below 2**53."""
TableStep = Callable[[Tables], Awaitable[Any]]


def do(method: str, *arguments: Any) -> TableStep:
    """Make a call of the tables into a step of a transaction."""
    return lambda tables: getattr(tables, method)(*arguments)


async def write(store: Store, *steps: TableStep) -> list[Any]:
    """Run these steps in one transaction and return their results."""
    return await soon(store.transact(_all_of, steps))


async def read(store: Store, step: TableStep) -> Any:
    return (await soon(store.read(_all_of, (step,))))[0]


async def _all_of(tables: Tables, steps: tuple[TableStep, ...]) -> list[Any]:
    return [await step(tables) for step in steps]


def conversation(**changes: Any) -> Conversation:
    made = Conversation(
        id=IDS.new(ConversationId), owner="ann", branch=IDS.new(BranchId), created_at=1, touched_at=2
    )
    return replace(made, **changes)


def full_conversation() -> Conversation:
    return conversation(
        conversation_key=TEXT,
        title=TEXT,
        metadata={TEXT: TEXT},
        internal=True,
        revision=3,
        created_at=LATE,
        touched_at=LATE,
        expires_after=LATE,
        reset_policy=ResetPolicy(idle_after=LATE, daily_at=23, timezone=TEXT),
        former_conversation_key=TEXT,
        scope=TEXT,
    )


def full_attempt(found: Conversation, **changes: Any) -> Attempt:
    made = Attempt(
        id=IDS.new(TurnId),
        owner=found.owner,
        conversation=found.id,
        branch=found.branch,
        lease=IDS.new(LeaseId),
        fence=7,
        state=AttemptState.RUNNING,
        base=IDS.new(TurnId),
        input=(Item.of(TEXT), call("look", "c1")),
        on_stop=OnStop.DISCARD,
        on_failure=OnFailure.FORGET,
        is_interaction=False,
        idempotency_key=TEXT,
        created_at=LATE,
    )
    return replace(made, **changes)


def turn(branch: BranchId, number: int, parent: TurnId | None = None) -> Turn:
    return Turn.of(
        id=IDS.new(TurnId),
        branch=branch,
        number=number,
        parent=parent,
        kind=TurnKind.COMPLETED,
        created_at=1,
        committed_at=2,
        input=(Item.of(TEXT),),
        output=(),
    )


async def insert_conversation(store: Store, found: Conversation | None = None) -> Conversation:
    made = found or conversation()
    await write(
        store, do("add_conversation", made), do("add_branch", Branch(id=made.branch, conversation=made.id))
    )
    return made


class Rows(Contract):
    async def test_operation_that_raises_changes_nothing(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        branch = await read(stores[0], do("branch", found.branch))
        attempt = full_attempt(found)

        async def break_off(tables: Tables) -> None:
            raise Superseded

        with pytest.raises(Superseded):
            await write(
                stores[0],
                do("save_conversation", replace(found, title="changed")),
                do("save_branch", replace(branch, fence=9)),
                do("add_attempt", attempt),
                do("add_records", attempt.id, 0, [b"record"]),
                do("beat", attempt.lease),
                do("add_turn", turn(found.branch, 1)),
                break_off,
            )
        for store in stores:
            assert await read(store, do("conversation", "ann", found.id)) == found
            assert await read(store, do("branch", found.branch)) == branch
            assert await read(store, do("attempt", "ann", attempt.id)) is None
            assert await read(store, do("journal", attempt.id)) == []
            assert await read(store, do("lease", attempt.lease)) is None
            assert await read(store, do("turns", found.branch, 0, 9, 9)) == []

    @pytest.mark.parametrize("sync", Sync)
    async def test_concurrent_updates_of_two_processes_are_all_kept(
        self, stores: list[Store], sync: Sync
    ) -> None:
        found = await insert_conversation(stores[0])

        async def raise_fence(tables: Tables, id: BranchId) -> int:
            branch = await tables.branch(id)
            assert branch is not None
            await tables.save_branch(replace(branch, fence=branch.fence + 1))
            return branch.fence + 1

        raises = [stores[number % 2].transact(raise_fence, found.branch, sync) for number in range(20)]
        fences = await soon(asyncio.gather(*raises))
        assert sorted(fences) == list(range(1, 21))
        branch = await read(stores[0], do("branch", found.branch))
        assert branch.fence == 20

    async def test_read_sees_writes_acknowledged_before(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here)
        for number in range(5):
            title = str(number)
            await write(here, do("save_conversation", replace(found, title=title)))
            read_back = await read(there, do("conversation", "ann", found.id))
            assert read_back.title == title

    async def test_rows_are_read_as_written(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here, full_conversation())
        branch = Branch(
            id=found.branch,
            conversation=found.id,
            fence=5,
            head=IDS.new(TurnId),
            length=4,
            running=IDS.new(TurnId),
            unsettled=IDS.new(TurnId),
            pending=(call("look", "c"), call("pay", TEXT)),
            instructed=3,
        )
        attempt = full_attempt(found, instructions=Instructions((message("system", TEXT),)))
        ended = replace(
            attempt,
            state=AttemptState.DISCARDED,
            stop=OnStop.KEEP,
            failure=Failure("code", TEXT),
            partial=TEXT,
            journaled=3,
            fence=8,
            lease=IDS.new(LeaseId),
            ended_at=LATE,
        )
        claim = Claim(
            owner="ann",
            idempotency_key=TEXT,
            fingerprint=b"\x00\xff",
            conversation=found.id,
            attempt=attempt.id,
        )
        await write(here, do("save_branch", branch), do("add_attempt", attempt), do("save_claim", claim))
        assert await read(there, do("conversation", "ann", found.id)) == found
        assert await read(there, do("conversation_by_key", "ann", TEXT, TEXT)) == found
        assert await read(there, do("branch", found.branch)) == branch
        assert await read(there, do("attempt", "ann", attempt.id)) == attempt
        assert await read(there, do("claim", "ann", TEXT)) == claim
        expiring = replace(claim, attempt=IDS.new(TurnId), expires_at=LATE)
        await write(here, do("save_attempt", ended), do("save_claim", expiring))
        assert await read(there, do("attempt", "ann", attempt.id)) == ended
        assert await read(there, do("claim", "ann", TEXT)) == expiring
        counted = replace(expiring, retries=0, is_lost=True, sender=IDS.new(TurnId))
        await write(here, do("save_claim", counted))
        assert await read(there, do("claim", "ann", TEXT)) == counted
        assert await read(there, do("all_claims", None, 10)) == [counted]
        await write(here, do("drop_claim", "eve", TEXT), do("drop_claim", "ann", "another"))
        assert await read(there, do("claim", "ann", TEXT)) == counted
        await write(here, do("drop_claim", "ann", TEXT))
        assert await read(there, do("claim", "ann", TEXT)) is None

    @pytest.mark.parametrize("is_lasting", [True, False])
    @pytest.mark.parametrize("texts", [(), ("short",), ("long " * 300, TEXT)])
    async def test_instructions_are_read_as_written(
        self, stores: list[Store], texts: tuple[str, ...], is_lasting: bool
    ) -> None:
        here, there = stores
        found = await insert_conversation(here)
        given = Instructions(tuple(message("developer", text) for text in texts), is_lasting)
        attempt = full_attempt(found, instructions=given)
        await write(here, do("add_attempt", attempt))
        assert await read(there, do("attempt", "ann", attempt.id)) == attempt
        ended = replace(attempt, state=AttemptState.FAILED, partial="so far", ended_at=LATE)
        await write(there, do("save_attempt", ended))
        assert await read(here, do("attempt", "ann", attempt.id)) == ended

    async def test_rows_of_another_owner_are_not_found(self, stores: list[Store]) -> None:
        store = stores[0]
        found = await insert_conversation(store, conversation(conversation_key="k"))
        attempt, committed = full_attempt(found), turn(found.branch, 1)
        await write(store, do("add_attempt", attempt), do("add_turn", committed))
        assert await read(store, do("turn", "ann", committed.id)) == committed
        lookups: list[TableStep] = [
            do("conversation", "eve", found.id),
            do("conversation_by_key", "eve", "", "k"),
            do("turn", "eve", committed.id),
            do("attempt", "eve", attempt.id),
            do("claim", "eve", TEXT),
        ]
        assert [await read(store, lookup) for lookup in lookups] == [None] * 5

    async def test_conversation_key_names_one_conversation(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0], conversation(conversation_key="k"))
        with pytest.raises(StoreError):
            await insert_conversation(stores[1], conversation(conversation_key="k"))
        await insert_conversation(stores[1], conversation(conversation_key="k", owner="ben"))
        deleted = replace(found, state=ConversationState.DELETED)
        await write(stores[1], do("save_conversation", deleted))
        again = await insert_conversation(stores[0], conversation(conversation_key="k"))
        assert await read(stores[1], do("conversation_by_key", "ann", "", "k")) == again

    @pytest.mark.parametrize("state", [ConversationState.LIVE, ConversationState.EXPIRED])
    async def test_conversation_saved_without_its_key_frees_it(
        self, stores: list[Store], state: ConversationState
    ) -> None:
        found = await insert_conversation(stores[0], conversation(conversation_key="k"))
        released = replace(found, conversation_key=None, former_conversation_key="k", state=state)
        successor = conversation(conversation_key="k")
        await write(
            stores[0],
            do("save_conversation", replace(found, state=state)),
            do("save_conversation", released),
            do("add_conversation", successor),
            do("add_branch", Branch(id=successor.branch, conversation=successor.id)),
        )
        assert await read(stores[1], do("conversation", "ann", found.id)) == released
        assert await read(stores[1], do("conversation_by_key", "ann", "", "k")) == successor
        await write(stores[1], do("save_conversation", replace(released, state=ConversationState.DELETED)))
        assert await read(stores[0], do("conversation_by_key", "ann", "", "k")) == successor

    async def test_number_on_a_branch_belongs_to_one_turn(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        await write(stores[0], do("add_turn", turn(found.branch, 1)))
        with pytest.raises(StoreError):
            await write(stores[1], do("add_turn", turn(found.branch, 1)))

    async def test_turns_up_to_a_limit_are_the_last_ones_in_order(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        made: list[Turn] = []
        for number in range(1, 7):
            made.append(turn(found.branch, number, made[-1].id if made else None))
        await write(stores[0], *[do("add_turn", each) for each in made])
        for after, through, limit, numbers in [
            (0, 6, 9, [1, 2, 3, 4, 5, 6]),
            (0, 6, 2, [5, 6]),
            (2, 4, 9, [3, 4]),
            (4, 100, 1, [6]),
            (6, 6, 9, []),
            (0, 0, 9, []),
        ]:
            page = await read(stores[1], do("turns", found.branch, after, through, limit))
            assert page == [made[number - 1] for number in numbers]

    async def test_lane_has_conversation_branch_and_lease(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here)
        lease = IDS.new(LeaseId)
        branch = await read(there, do("branch", found.branch))
        seen = await read(there, do("lane", found.owner, found.id, lease))
        assert seen == (found, branch, False, 0, 0)
        await write(here, do("beat", lease))
        assert (await read(there, do("lane", found.owner, found.id, lease)))[2] is True
        assert await read(there, do("lane", "somebody else", found.id, lease)) is None
        assert await read(there, do("lane", found.owner, IDS.new(ConversationId), lease)) is None

    async def test_journal_keeps_records_in_order_without_duplicates(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here)
        first, second = full_attempt(found), full_attempt(found)
        await write(here, do("add_attempt", first), do("add_attempt", second))
        records = [f"record {number}".encode() for number in range(12)]
        await write(here, do("add_records", first.id, 0, records[:10]))
        await write(there, do("add_records", first.id, 8, [b"other", b"other", *records[10:]]))
        assert await read(there, do("journal", first.id)) == records
        assert await read(here, do("journal", second.id)) == []
        await write(here, do("drop_journal", first.id))
        assert await read(there, do("journal", first.id)) == []

    async def test_event_log_keeps_chunks_in_order_without_duplicates(self, stores: list[Store]) -> None:
        here, there = stores
        first, second = IDS.new(TurnId), IDS.new(TurnId)
        chunks = [f"chunk {number}".encode() for number in range(12)]
        for number, chunk in enumerate(chunks):
            await write(stores[number % 2], do("add_log_chunk", first, number, chunk))
        await write(there, do("add_log_chunk", first, 3, b"other"))
        assert await read(there, do("log_chunks", first, 0, 99)) == chunks
        assert await read(here, do("log_chunks", first, 9, 2)) == chunks[9:11]
        assert await read(here, do("log_chunks", second, 0, 99)) == []
        await write(here, do("drop_log", first))
        assert await read(there, do("log_chunks", first, 0, 99)) == []

    async def test_turn_is_stored_with_its_log(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        first = turn(found.branch, 1)
        second = turn(found.branch, 2, first.id)
        await write(stores[0], do("add_turn", first, b"\x00log"), do("add_turn", second))
        for each, log in ((first.id, b"\x00log"), (second.id, b""), (IDS.new(TurnId), b"")):
            assert await read(stores[1], do("turn_log", each)) == log

    async def test_tickets_are_numbered_by_the_store_with_front_ones_first(self, stores: list[Store]) -> None:
        found, other = await insert_conversation(stores[0]), await insert_conversation(stores[0])
        lease = IDS.new(LeaseId)

        def ticket(branch: BranchId, *, front: bool = False) -> Ticket:
            return Ticket(
                attempt=IDS.new(TurnId),
                conversation=found.id,
                branch=branch,
                front=front,
                lease=lease,
                deadline=LATE,
                idempotency_key=TEXT,
                fingerprint=b"\x00\xff",
                claimed=IDS.new(TurnId),
                is_interaction=not front,
            )

        made = []
        for number, front in enumerate([False, False, True, True, False]):
            new = ticket(found.branch, front=front)
            [added] = await write(stores[number % 2], do("add_ticket", new))
            assert added == replace(new, number=added.number)
            made.append(added)
        assert [each.number for each in made] == sorted({each.number for each in made})
        [elsewhere] = await write(stores[0], do("add_ticket", ticket(other.branch)))
        in_order = [made[2], made[3], made[0], made[1], made[4]]
        assert await read(stores[1], do("tickets", found.branch)) == in_order
        assert await read(stores[1], do("ticket", made[1].attempt)) == made[1]
        of_lease = await read(stores[1], do("tickets_of", lease))
        assert {each.attempt for each in of_lease} == {each.attempt for each in (*made, elsewhere)}
        await write(stores[1], do("drop_ticket", made[0].attempt))
        left = await read(stores[0], do("tickets", found.branch))
        assert left == [each for each in in_order if each != made[0]]

    async def test_running_attempts_are_found_by_lease(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        running = full_attempt(found)
        ended = full_attempt(found, lease=running.lease, state=AttemptState.FAILED)
        other = full_attempt(found)
        for attempt in (running, ended, other):
            await write(stores[0], do("add_attempt", attempt))
        assert await read(stores[1], do("running_attempts", running.lease)) == [running]

    async def test_beats_increase_until_the_lease_is_dropped(self, stores: list[Store]) -> None:
        lease = IDS.new(LeaseId)
        beats = []
        for number in range(4):
            await write(stores[number % 2], do("beat", lease))
            beats.append((await read(stores[0], do("lease", lease))).beat)
        assert beats == sorted(set(beats))
        assert Lease(lease, beats[-1]) in await read(stores[1], do("leases"))
        await write(stores[1], do("drop_lease", lease))
        assert await read(stores[0], do("lease", lease)) is None

    async def test_buried_lease_that_returns_continues_its_beats(self, stores: list[Store]) -> None:
        lease, other = IDS.new(LeaseId), IDS.new(LeaseId)
        for each in (lease, lease, other):
            await write(stores[0], do("beat", each))
        await write(stores[0], do("bury_lease", lease))
        await write(stores[0], do("bury_lease", lease))
        assert await read(stores[1], do("lease", lease)) is None
        assert await read(stores[1], do("leases")) == [Lease(other, 1)]
        await write(stores[1], do("beat", lease))
        assert await read(stores[0], do("lease", lease)) == Lease(lease, 3)
        assert len(await read(stores[0], do("leases"))) == 2

    async def test_buried_leases_are_remembered_up_to_a_bound(self, stores: list[Store]) -> None:
        *leases, youngest = (IDS.new(LeaseId) for _ in range(BURIED_KEPT + 1))

        async def bury_all(tables: Tables, _: None) -> None:
            for lease in (youngest, *leases):  # a process that lived long may be the last to die
                await tables.beat(lease)
                await tables.bury_lease(lease)
            await tables.beat(leases[0])
            await tables.beat(youngest)

        await stores[0].transact(bury_all, None)
        assert await read(stores[1], do("leases")) == [Lease(leases[0], 2), Lease(youngest, 1)]


class Overview(Contract):
    async def test_rows_are_listed_in_pages_with_their_owners(self, stores: list[Store]) -> None:
        here, there = stores
        chats = [
            await insert_conversation(here, conversation(owner=owner)) for owner in ("ann", "ben", "ann")
        ]
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

    async def test_branch_has_the_last_number_other_branches_need(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here)
        assert await read(there, do("needed_through", found.branch)) == 0
        for through in (3, 5, 2):
            made = Branch(id=IDS.new(BranchId), conversation=found.id, start=through)
            stretch = Stretch(found.branch, 0, through)
            origin = Origin(branch=made.id, conversation=found.id, base=IDS.new(TurnId), line=(stretch,))
            await write(here, do("add_branch", made), do("add_origin", origin))
        assert await read(there, do("needed_through", found.branch)) == 5

    async def test_store_reports_inconsistencies(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here)
        attempt = full_attempt(found)
        await write(here, do("add_attempt", attempt), do("add_records", attempt.id, 0, [b"record"]))
        assert await read(there, do("inconsistencies", 9)) == []
        await write(here, do("drop_attempt", attempt.id))
        [oddity] = await read(there, do("inconsistencies", 9))
        assert attempt.id in oddity
        assert await read(there, do("inconsistencies", 0)) == []
        assert await read(there, do("turns_without_checksum")) == 0


async def _all(store: Store, method: str, name: Callable[[Any], Any]) -> list[Any]:
    """Read all pages of a method, two rows at a time."""
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


class FlagRows(Contract):
    async def test_flags_are_purged_with_their_turns(self, stage: Stage) -> None:
        process = await stage.process()
        chat, other = await process.chat(), await process.chat()
        turns = [await exchange(each, "q", "a") for each in (chat, other)]
        for each, turn in zip((chat, other), turns, strict=True):
            await each.flag(turn.id, to_model=False)
        await chat.delete(purge=True)
        await process.tend()
        ids = [each.id for each in turns]
        assert set(await read(process.store, do("flags", chat.owner, ids))) == {turns[1].id}

    async def test_flags_are_read_as_written(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here)
        first, second = turn(found.branch, 1), turn(found.branch, 2)
        await write(here, do("add_turn", first), do("add_turn", second))
        ids = (first.id, second.id)
        assert await read(there, do("flags", "ann", ids)) == {}
        assert await read(there, do("flag_version", "ann")) == 0
        flags = {0: Flags(False, True), 5: Flags(True, False)}
        await write(here, do("save_flags", "ann", first.id, flags))
        assert await read(there, do("flags", "ann", ids)) == {first.id: flags}
        assert await read(there, do("flags", "eve", ids)) == {}
        await write(there, do("save_flags", "ann", first.id, {1: Flags(False, False)}))
        assert await read(here, do("flags", "ann", ids)) == {first.id: {1: Flags(False, False)}}
        await write(there, do("save_flags", "ann", first.id, {}))
        assert await read(here, do("flags", "ann", ids)) == {}

    async def test_flags_are_found_by_stretches_of_turns(self, stores: list[Store]) -> None:
        here, there = stores
        found, other = await insert_conversation(here), await insert_conversation(here)
        turns = [turn(found.branch, number) for number in range(1, 6)]
        elsewhere = turn(other.branch, 2)
        await write(here, *(do("add_turn", each) for each in (*turns, elsewhere)))
        flags = {0: Flags(False, True), 5: Flags(True, False)}
        for each in (*turns[:4], elsewhere):
            await write(here, do("save_flags", "ann", each.id, flags))
        await write(there, do("save_flags", "ann", turns[0].id, {}))

        async def flagged(owner: str, *stretches: Stretch) -> list[TurnId]:
            answer = await read(there, do("flags_in", owner, stretches))
            assert all(each == flags for each in answer.values())
            return sorted(answer)

        line = Stretch(found.branch, 0, 5)
        assert await flagged("ann", line) == [each.id for each in turns[1:4]]
        assert await flagged("ann", Stretch(found.branch, 1, 3)) == [turns[1].id, turns[2].id]
        assert await flagged("ann", Stretch(found.branch, 4, 5)) == await flagged("ann") == []
        two = (Stretch(other.branch, 0, 2), Stretch(found.branch, 3, 5))
        assert await flagged("ann", *two) == sorted([elsewhere.id, turns[3].id])
        assert await flagged("eve", line) == []

    async def test_flag_change_raises_the_version_of_its_owner(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here)
        made = turn(found.branch, 1)
        await write(here, do("add_turn", made))
        versions = []
        for number in range(3):
            await write(stores[number % 2], do("save_flags", "ann", made.id, {}))
            versions.append(await read(there, do("flag_version", "ann")))
            lane = await read(here, do("lane", "ann", found.id, found.id))
            assert lane[3] == versions[-1]
        assert versions == sorted({0, *versions})[1:]
        assert await read(there, do("flag_version", "eve")) == 0


def change(owner: str = "ann", at: int = 1, **details: Any) -> LiveChange:
    """Build a change; its conversation need not exist."""
    return LiveChange(
        kind=ChangeKind.TURN_RUNNING, owner=owner, conversation=IDS.new(ConversationId), at=at, **details
    )


class ChangeRows(Contract):
    async def test_changes_are_numbered_without_gaps_and_read_as_written(self, stores: list[Store]) -> None:
        full = change(scope="shop", turn=IDS.new(TurnId), branch=IDS.new(BranchId), detail="completed", at=7)
        written = [full, change("bob"), change()]
        assert await read(stores[1], do("change_position", None)) == Position()
        await write(stores[0], *(do("add_change", each) for each in written))
        found, through = await read(stores[1], do("changes", 0, {"ann", "bob"}, 9))
        assert [replace(each, position=Position()) for each in found] == written
        assert [each.position.number for each in found] == [1, 2, 3]
        assert through == found[-1].position == await read(stores[0], do("change_position", None))
        for each in found:
            assert await read(stores[1], do("change_position", each.position.number)) == each.position
        anns, through = await read(stores[1], do("changes", 0, {"ann"}, 2))
        assert (anns, through) == (found[:1], found[1].position)
        assert await read(stores[1], do("changes", 3, {"ann"}, 2)) == ([], None)
        assert await read(stores[1], do("changes_of", "ann", 0, 9)) == [found[0], found[2]]
        assert await read(stores[1], do("changes_of", "ann", 0, 1)) == found[:1]
        assert await read(stores[1], do("changes_of", "ann", 1, 9)) == [found[2]]

    async def test_changes_of_every_kind_can_be_stored(self, stores: list[Store]) -> None:
        kinds = [kind for kind in ChangeKind if kind not in (ChangeKind.START, ChangeKind.GAP)]
        await write(stores[0], *(do("add_change", replace(change(), kind=kind)) for kind in kinds))
        found = await read(stores[1], do("changes_of", "ann", 0, 99))
        assert [each.kind for each in found] == kinds

    async def test_rolled_back_change_leaves_no_gap(self, stores: list[Store]) -> None:
        async def fail(tables: Any, _: None) -> None:
            await tables.add_change(change())
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await stores[0].transact(fail, None)
        assert await read(stores[1], do("change_position", None)) == Position()
        await write(stores[0], do("add_change", change()))
        [found] = await read(stores[1], do("changes_of", "ann", 0, 9))
        assert found.position.number == 1

    async def test_changes_are_purged_by_age_and_count_except_the_newest(self, stores: list[Store]) -> None:
        await write(stores[0], *(do("add_change", change(at=at)) for at in (1, 2, 3, 4, 5, 6)))
        assert await read(stores[1], do("change_position", 0)) == Position()
        assert await write(stores[0], do("purge_changes", 3, 99, 1)) == [1]
        assert await read(stores[1], do("change_position", 0)) is None
        assert await write(stores[0], do("purge_changes", 3, 99, 99)) == [1]
        assert await write(stores[0], do("purge_changes", 0, 3, 99)) == [1]
        found = await read(stores[1], do("changes_of", "ann", 0, 9))
        assert [each.position.number for each in found] == [4, 5, 6]
        assert await read(stores[1], do("change_position", 3)) is None
        assert await write(stores[0], do("purge_changes", 99, 0, 99)) == [2]
        await write(stores[0], do("add_change", change()))
        found = await read(stores[1], do("changes_of", "ann", 0, 9))
        assert [each.position.number for each in found] == [6, 7]

    async def test_purge_of_changes_with_unordered_times_leaves_no_gap(self, stores: list[Store]) -> None:
        # Clocks differ and operations may wait, so times need not increase with the numbers.
        await write(stores[0], *(do("add_change", change(at=at)) for at in (1, 9, 1, 1, 9)))
        assert await write(stores[0], do("purge_changes", 5, 99, 99)) == [1]
        found = await read(stores[1], do("changes_of", "ann", 0, 9))
        assert [each.position.number for each in found] == [2, 3, 4, 5]
        assert await write(stores[0], do("purge_changes", 5, 2, 99)) == [3]
        found = await read(stores[1], do("changes_of", "ann", 0, 9))
        assert [each.position.number for each in found] == [5]

    async def test_changes_have_unique_marks(self, stores: list[Store]) -> None:
        await write(stores[0], do("add_change", change()), do("add_change", change()))
        first, second = await read(stores[1], do("changes_of", "ann", 0, 9))
        assert first.position.mark != second.position.mark

    async def test_ticket_has_its_owner(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0], conversation(owner="bob"))
        ticket = Ticket(
            attempt=IDS.new(TurnId),
            conversation=found.id,
            branch=found.branch,
            lease=IDS.new(LeaseId),
            deadline=1,
        )
        await write(stores[0], do("add_ticket", ticket))
        assert await read(stores[1], do("owner_of_ticket", ticket.attempt)) == "bob"
        assert await read(stores[1], do("owner_of_ticket", IDS.new(TurnId))) is None


class ClockRows(Contract):
    async def test_clock_mark_is_the_last_one_saved(self, stores: list[Store]) -> None:
        assert await read(stores[0], do("clock_mark")) is None
        for mark in (ClockMark("one", 1, -2, 0), ClockMark("two", 3, 4, 5)):
            await write(stores[0], do("save_clock_mark", mark))
            assert await read(stores[1], do("clock_mark")) == mark

    async def test_newest_time_is_that_of_the_last_turn_or_change(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await read(store, do("newest_time")) is None
        found = await insert_conversation(store)
        await write(store, do("add_turn", turn(found.branch, 1)))
        assert await read(store, do("newest_time")) == turn(found.branch, 1).committed_at
        await store.close()
