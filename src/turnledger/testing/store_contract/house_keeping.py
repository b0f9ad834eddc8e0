"""House-keeping and the handle itself: bounded purges, leases, hints, closing."""

from __future__ import annotations

import asyncio
from dataclasses import replace as limited

import pytest
from msgspec.structs import replace

from turnledger.engine.lane.lease import renew
from turnledger.engine.ports import Store
from turnledger.errors import ConversationDeleted, LedgerClosed
from turnledger.model.attempt import AttemptState
from turnledger.model.conversation import Branch, Claim, ConversationState, Stretch
from turnledger.model.ids import LeaseId, TurnId
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.branch_rows import branch_off, grow
from turnledger.testing.store_contract.rows import (
    IDS,
    begun,
    conversation,
    do,
    full_attempt,
    read,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import LIMITS, Contract, OpenStore, Stage, exchange, soon


class HouseKeeping(Contract):
    async def test_ended_attempts_are_purged_by_age_but_never_an_unsettled_one(
        self, stores: list[Store]
    ) -> None:
        store = stores[0]
        found = await begun(store)
        old = [full_attempt(found, state=AttemptState.FAILED, ended_at=10) for _ in range(3)]
        young = full_attempt(found, state=AttemptState.FAILED, ended_at=20)
        running = full_attempt(found)
        for attempt in (*old, young, running):
            await write(
                store,
                do("add_attempt", attempt),
                do("add_records", attempt.id, 0, [b"record"]),
            )
        branch = Branch(id=found.branch, conversation=found.id, unsettled=old[0].id, running=running.id)
        await write(store, do("save_branch", branch))
        assert await write(store, do("purge_attempts", 20, 1)) == [1]
        assert await write(store, do("purge_attempts", 20, 9)) == [1]
        assert await write(store, do("purge_attempts", 20, 9)) == [0]
        left = await read(stores[1], do("attempts", found.id, 9))
        assert {each.id for each in left} == {old[0].id, young.id, running.id}
        for attempt, records in ((old[0], [b"record"]), (old[1], []), (old[2], []), (young, [b"record"])):
            found_records = await read(store, do("journal", attempt.id))
            assert found_records == records

    async def test_claims_are_purged_when_their_time_is_over(self, stores: list[Store]) -> None:
        for name, expires_at in (("running", None), ("old", 10), ("older", 9), ("young", 20)):
            claim = Claim(
                owner="ann",
                idempotency_key=name,
                fingerprint=b"",
                conversation=conversation().id,
                attempt=IDS.new(TurnId),
                expires_at=expires_at,
            )
            await write(stores[0], do("save_claim", claim))
        assert await write(stores[1], do("purge_claims", 15, 1)) == [1]
        assert await write(stores[1], do("purge_claims", 15, 9)) == [1]
        for name, kept in (("running", True), ("old", False), ("older", False), ("young", True)):
            claim_found = await read(stores[0], do("claim", "ann", name))
            assert (claim_found is not None) is kept

    async def test_one_round_purges_all_that_is_due_however_much_that_is(self, stage: Stage) -> None:
        """Else traffic that makes more rows than a round removes would only grow."""
        here = await stage.process(limited(LIMITS, purge_rows=2, attempts_kept=60.0, restore_time=60.0))
        day = 24 * 3600.0
        chats = [await here.chat() for _ in range(7)]
        for number, chat in enumerate(chats):
            with pytest.raises(RuntimeError):
                await chat.run(ScriptedModel([RuntimeError()]), "q", idempotency_key=f"i{number}")
            await exchange(chat, "q", idempotency_key=f"j{number}")
            await chat.delete()
        stage.clock.advance(day + 1)
        await here.tend()
        assert await read(here.store, do("all_claims", None, 99)) == []
        assert await read(here.store, do("all_attempts", None, 99)) == []
        assert [await read(here.store, do("bytes_of", chat.id)) for chat in chats] == [0] * 7
        for chat in chats:
            with pytest.raises(ConversationDeleted):
                await here.ledger.restore(chat.id)

    async def test_only_ended_conversations_lose_their_turns(self, stores: list[Store]) -> None:
        store = stores[0]
        live, deleted, expired = [await begun(store) for _ in range(3)]
        for each in (live, deleted, expired):
            for number in (1, 2, 3):
                await write(store, do("add_turn", turn(each.branch, number)))
        await write(
            store,
            do("save_conversation", replace(deleted, state=ConversationState.PURGED)),
            do("save_conversation", replace(expired, state=ConversationState.EXPIRED)),
        )
        removed = 0
        while count := (await write(store, do("purge_ended", 2)))[0]:
            assert count <= 2
            removed += count
            for each in (deleted, expired):
                left = await read(store, do("turns", each.branch, 0, 9, 9))
                # The last go first: a turn has its parent for as long as it is there.
                assert [one.number for one in left] == [1, 2, 3][: len(left)]
        assert removed == 6
        for each, left in ((live, 3), (deleted, 0), (expired, 0)):
            turns = await read(stores[1], do("turns", each.branch, 0, 9, 9))
            assert len(turns) == left
            row = await read(stores[1], do("conversation", "ann", each.id))
            assert row is not None

    async def test_branches_that_are_empty_are_cleared_a_few_at_a_time(self, stores: list[Store]) -> None:
        """Each was made from the one before, as by one undo after another, and has nothing of its own."""
        store = stores[0]
        found = await begun(store)
        [first] = await grow(store, found.branch, 1)
        line = (Stretch(found.branch, 0, 1),)
        made = [(await branch_off(store, found, first, *line))[0].id for _ in range(10)]
        await write(store, do("save_conversation", replace(found, state=ConversationState.PURGED)))
        removed = [(await write(stores[step % 2], do("purge_ended", 3)))[0] for step in range(5)]
        assert removed == [3, 3, 3, 2, 0]
        for branch in made:
            assert await read(stores[1], do("origin", branch)) is None
        assert await read(stores[1], do("turn", "ann", first.id)) is None

    async def test_lapsed_conversations_are_those_that_nobody_uses(self, stores: list[Store]) -> None:
        store = stores[0]
        lapsed = await begun(store, conversation(touched_at=0, expires_after=10))
        await begun(store, conversation(touched_at=5, expires_after=10))
        await begun(store, conversation(touched_at=0))
        busy = await begun(store, conversation(touched_at=0, expires_after=10))
        running = Branch(id=busy.branch, conversation=busy.id, running=IDS.new(TurnId))
        await write(store, do("save_branch", running))
        assert await read(stores[1], do("lapsed_conversations", 10, 9)) == [lapsed]
        assert await read(stores[1], do("lapsed_conversations", 9, 9)) == []

    async def test_a_kept_lease_is_there_until_its_store_is_closed(self, open_store: OpenStore) -> None:
        here, there = await open_store(), await open_store()
        lease = IDS.new(LeaseId)
        await here.keep_lease(lease, 1_000.0)
        assert await read(there, do("lease", lease)) is not None
        assert not there.holder_is_gone(lease)
        await here.close()
        assert await read(there, do("lease", lease)) is None
        await there.close()

    async def test_a_kept_lease_is_renewed(self, stores: list[Store]) -> None:
        here, there = stores
        lease = IDS.new(LeaseId)
        await here.keep_lease(lease, 0.01)
        first = (await read(there, do("lease", lease))).beat

        await soon(_until_beat(there, lease, first + 2))

    async def test_a_write_is_hinted_to_other_processes(self, stores: list[Store]) -> None:
        if not self.capabilities.gives_hints:
            pytest.skip("the store gives no hints")
        here, there = stores
        heard = asyncio.Event()
        there.watch(heard.set)
        writing = asyncio.create_task(_keep_writing(here))
        try:
            await soon(heard.wait())
        finally:
            writing.cancel()
            await asyncio.wait((writing,))

    async def test_a_cancelled_caller_leaves_the_store_in_order(self, stores: list[Store]) -> None:
        lease = IDS.new(LeaseId)
        tasks = [asyncio.create_task(stores[0].transact(renew, lease)) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await soon(asyncio.wait(tasks))
        await write(stores[0], do("beat", lease))
        beat = (await read(stores[1], do("lease", lease))).beat
        await write(stores[1], do("beat", lease))
        assert (await read(stores[0], do("lease", lease))).beat == beat + 1

    async def test_a_closed_store_says_so_and_can_be_closed_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.close()
        await store.close()
        with pytest.raises(LedgerClosed):
            await write(store, do("beat", IDS.new(LeaseId)))
        with pytest.raises(LedgerClosed):
            await read(store, do("leases"))


async def _until_beat(store: Store, lease: LeaseId, beat: int) -> None:
    while (await read(store, do("lease", lease))).beat < beat:
        await asyncio.to_thread(int)  # let loop and threads go on


async def _keep_writing(store: Store) -> None:
    """Hints may be lost, so one write does not have to be heard of."""
    lease = IDS.new(LeaseId)
    while True:
        await store.transact(renew, lease)
        await asyncio.to_thread(int)
