"""Deletion, retention and quotas: restore and purge, what counts as use, and owners at their quota."""

from __future__ import annotations

import logging
from dataclasses import replace as with_limits

import pytest
from msgspec.structs import replace

from turnledger.chat import Chat
from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.lifecycle.delete import end_due
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Inspection, Tables
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    StorageFull,
    StoreCorrupt,
    TurnReplayed,
)
from turnledger.hosting import Host
from turnledger.ledger import Ledger
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import BLOCK, Claim, ConversationState
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.retention import RetentionReport
from turnledger.model.turn import Attempt, AttemptState, OnStop, TurnKind
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import GatedStore
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.deletion import changes_of, make_used_chat, rewrite_row
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.rows.kit import do, read, write
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Stage,
    StageProcess,
    exchange,
    message_texts,
    run_block,
    soon,
    user,
)
from turnledger.testing.store_contract.usage import FULL, LONG, stored_bytes

DAY = 24 * 3600.0


MONTH = 30 * DAY


HOUR = 3600.0


class TestDeletion:
    async def test_deleted_conversation_reports_its_restore_deadline_until_purged(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await exchange(chat, "q", idempotency_key="i")
        until = stage.clock.now_ms() + MONTH * 1000
        await chat.delete()
        for refused in (
            chat.turns(),
            here.chat(chat),
            chat.run(ScriptedModel(["a"]), "q", idempotency_key="i"),
        ):
            with pytest.raises(ConversationDeleted, match="can be restored until") as caught:
                await soon(refused)
            assert caught.value.restorable_until == until
        await chat.delete(purge=True)
        with pytest.raises(ConversationDeleted) as caught:
            await chat.turns()
        assert caught.value.restorable_until is None

    async def test_key_taken_after_a_deletion_stays_with_the_new_conversation_on_restore(
        self, here: StageProcess
    ) -> None:
        chat = await here.chat(conversation_key="k")
        await chat.delete()
        other = await here.chat(conversation_key="k")
        assert other.id != chat.id
        restored = await here.ledger.restore(chat.id)
        for again in (restored, await here.ledger.restore(chat.id)):
            assert (again.conversation_key, again.former_conversation_key) == (None, "k")
        assert (await here.chat(conversation_key="k")).id == other.id
        await exchange(restored, "q")
        assert await here.ledger.check(at_rest=True) == []

    async def test_conversation_key_moved_by_a_reset_does_not_return_on_restore(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k")
        new = await here.ledger.reset("k")
        await old.delete()
        await new.delete()
        assert (await here.ledger.restore(old.id)).conversation_key is None
        assert (await here.ledger.restore(new.id)).conversation_key == "k"

    async def test_delete_restore_and_purge_are_idempotent(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await exchange(chat, "q")
        deleted = await chat.delete()
        stage.clock.advance(DAY)
        assert await chat.delete() == deleted
        restored = await (await here.ledger.restore(chat.id)).info()
        stage.clock.advance(DAY)
        assert await (await here.ledger.restore(chat.id)).info() == restored
        purged = await chat.delete(purge=True)
        assert await chat.delete() == await chat.delete(purge=True) == purged

    async def test_expired_conversation_cannot_be_restored_and_is_purged_on_delete(
        self, stage: Stage, here: StageProcess
    ) -> None:
        chat = await here.chat(expires_after=60.0, conversation_key="k")
        await exchange(chat, "q")
        stage.clock.advance(61)
        await here.tend()
        with pytest.raises(ConversationExpired):
            await here.ledger.restore(chat.id)
        assert (await chat.delete()).state is ConversationState.PURGED
        assert (await here.chat(conversation_key="k")).id != chat.id

    async def test_time_spent_deleted_does_not_count_towards_expiry(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(expires_after=60.0)
        await exchange(chat, "q")
        await chat.delete()
        stage.clock.advance(3_600)
        await here.tend()
        restored = await here.ledger.restore(chat.id)
        await here.tend()
        assert len(await restored.turns()) == 1

    async def test_tool_effects_of_a_turn_ended_by_a_deletion_are_settled_after_restore(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "pay", [Tool("pay", "paid")], on_failure="keep")
        await there.ledger.delete(chat.id)
        await here.tend()
        with pytest.raises(ConversationDeleted):
            await soon(holder.task)
        assert await there.ledger.check(at_rest=True) == []
        restored = await there.ledger.restore(chat.id)
        [aside] = await restored.attempts()
        assert aside.attempt.state is AttemptState.FAILED
        assert aside.attempt.failure.code == "conversation_deleted"
        await exchange(restored, "on")
        kinds = [turn.kind for turn in await restored.turns()]
        assert kinds == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert await there.ledger.check(at_rest=True) == []

    async def test_turn_begun_before_a_deletion_cannot_commit_after_the_restore(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.ignores_hints = True
        holder = await stage.hold_lane(chat, "q")
        await there.ledger.delete(chat.id)
        restored = await there.ledger.restore(chat.id)
        await exchange(restored, "other")
        with pytest.raises(ConversationDeleted):
            await holder.finish()
        assert len(await restored.turns()) == 1

    async def test_turn_running_during_a_purge_leaves_no_text_and_raises_conversation_deleted(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q0", ["Private."])
        await here.flush()
        [attempt] = await read(here.store, do("running_attempts", here.ledger._process.lease))
        here.store.ignores_hints = True
        await same.delete(purge=True)
        row = do("attempt", attempt.id, owner=chat.owner)
        assert (await read(there.store, row)).partial == ""
        await there.tend()
        assert await read(there.store, row) is None
        with pytest.raises(ConversationDeleted):
            await holder.finish()

    async def test_retry_after_restore_resumes_the_turn_that_the_deletion_ended(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q", [Tool("pay", "paid")], idempotency_key="i")
        await there.ledger.delete(chat.id)
        await here.tend()
        with pytest.raises(ConversationDeleted):
            await soon(holder.task)
        await there.ledger.restore(chat.id)
        model = ScriptedModel([Tool("pay", "paid"), "done"])
        turn = await soon(chat.run(model, "q", idempotency_key="i"))
        assert turn.kind is TurnKind.COMPLETED
        assert model.executed == {}

    async def test_conversation_whose_deletion_keeps_its_first_turn_is_reported_as_created_first(
        self, here: StageProcess, there: StageProcess
    ) -> None:
        here.store.ignores_hints = True
        chats: list[Chat] = []

        async def stop_and_delete(turn: RunningTurn) -> None:
            chat = await there.chat(conversation_key="k")
            running: Attempt = await read(here.store, do("attempt", turn.id, owner=chat.owner))
            await write(there.store, do("save_attempt", replace(running, stop=OnStop.KEEP)))
            await chat.delete()
            chats.append(chat)
            turn.emit("too late")

        with pytest.raises(ConversationDeleted):
            await soon(here.ledger.run(stop_and_delete, "q", conversation_key="k"))
        changes = [each.kind for each in await changes_of(here, chats[0]) if each.turn is None]
        assert changes == [ChangeKind.CHAT_CREATED, ChangeKind.CHAT_DELETED]


class TestRetention:
    async def test_failed_turn_counts_as_use_for_retention(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR))
        chat, silent = await make_used_chat(here, stage, "ann"), await here.chat(owner="ann", internal=True)
        stage.clock.advance(HOUR)
        for each in (chat, silent):
            await fail(each, ScriptedModel([RuntimeError()]), "q")
        stage.clock.advance(1)
        assert (await here.ledger.retain()).retired == ()
        stage.clock.advance(HOUR)
        gone = {each.conversation for each in (await here.ledger.retain()).retired}
        assert gone == {chat.id, silent.id}

    async def test_failed_turn_counts_as_use_for_retention_after_its_attempt_is_removed(
        self, stage: Stage
    ) -> None:
        limits = with_limits(LIMITS, retain_for=10 * HOUR, attempts_kept=HOUR, unlisted_kept=10 * HOUR)
        here = await stage.process(limits)
        chat = await make_used_chat(here, stage, "ann")
        stage.clock.advance(9 * HOUR)
        for _ in range(2):
            await fail(chat, ScriptedModel([RuntimeError()]), "q")
            with pytest.raises(RuntimeError):
                await here.ledger.run(ScriptedModel([RuntimeError()]), "q", conversation_key="new")
            stage.clock.advance(8 * HOUR)
            await here.tend()
        assert await chat.attempts() == []
        assert (await here.ledger.retain()).retired == ()
        assert len((await here.ledger.named("new")).chats) == 1

    async def test_retired_conversation_is_logged_with_its_owner(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "turnledger")
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR))
        chat = await make_used_chat(here, stage, "ann")
        stage.clock.advance(HOUR)
        await here.ledger.retain()
        [line] = [vars(each) for each in caplog.records if each.message == "chat_retired"]
        assert (line["conversation"], line["owner"], line["reason"]) == (chat.id, "ann", "age")

    async def test_restored_conversation_is_not_retired_again_at_once(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR))
        chat = await make_used_chat(here, stage, "ann")
        stage.clock.advance(HOUR)
        assert len((await here.ledger.retain()).retired) == 1
        restored = await here.ledger.for_owner("ann").restore(chat.id)
        assert (await here.ledger.retain()).retired == ()
        assert len(await restored.turns()) == 1

    async def test_retention_runs_on_the_timer_once_per_interval(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR, retain_every=10 * HOUR))
        await here.tend()
        chat = await make_used_chat(here, stage, "ann")
        stage.clock.advance(2 * HOUR)
        await here.tend()
        assert len(await chat.turns()) == 1
        stage.clock.advance(8 * HOUR)
        await here.tend()
        with pytest.raises(ConversationDeleted):
            await chat.turns()

    async def test_retention_without_bounds_removes_nothing(self, stage: Stage, here: StageProcess) -> None:
        chat = await make_used_chat(here, stage, "ann")
        stage.clock.advance(1_000_000 * HOUR)
        await here.store.beat()
        assert await here.ledger.retain() == RetentionReport()
        assert len(await chat.turns()) == 1

    async def test_unlisted_conversation_without_effects_is_removed_after_a_day(self, stage: Stage) -> None:
        here = await stage.process()
        for effect in ([], [Tool("pay", "paid")]):
            with pytest.raises(RuntimeError):
                await soon(
                    here.ledger.run(
                        ScriptedModel([*effect, RuntimeError("boom")]), "q", conversation_key=str(len(effect))
                    )
                )
        empty, waits = [await here.chat(conversation_key=key) for key in "01"]
        for each in (empty, waits):
            await rewrite_row(here, each, is_listed=False)
        stage.clock.advance(24 * HOUR - 1)
        await here.tend()
        assert (await here.chat(conversation_key="0")).id == empty.id
        stage.clock.advance(1)
        await here.tend()
        assert (await here.chat(conversation_key="0")).id != empty.id
        assert (await here.chat(conversation_key="1")).id == waits.id
        assert await here.ledger.check(at_rest=True) == []


async def fill(chat: Chat) -> None:
    """Store as much as FULL allows."""
    await exchange(chat, "q1", LONG)
    await exchange(chat, "q2", LONG)


class TestQuotas:
    async def test_owner_at_the_storage_quota_is_refused_turns_conversations_and_moves(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes(limits=FULL)
        chat = await here.chat(owner="ann", conversation_key="k")
        await exchange(chat, "q1", LONG)
        await exchange(chat, "q2", LONG)
        before = await chat.turns()
        same = await there.chat(chat)
        long = {str(number): "x" * 500 for number in range(16)}
        for refused_call in (
            chat.undo(),
            chat.fork(),
            chat.update(metadata=long),
            there.ledger.for_owner("ann").conversation(),
            there.ledger.for_owner("ann").conversation(idempotency_key="i"),
            there.ledger.for_owner("ann").conversation(conversation_key="other"),
            there.ledger.for_owner("ann").reset("k"),
        ):
            with pytest.raises(StorageFull, match="Purge conversations"):
                await refused_call
        for refused in (
            chat.turn("q3"),
            same.turn("q3", on_busy="interrupt"),
            chat.resent([user("q3")], sent="new"),
            chat.edit(before[0].id, "q3"),
            chat.regenerate(),
            there.ledger.for_owner("ann").turn("q3", conversation_key="k"),
            there.ledger.for_owner("ann").turn("q3"),
        ):
            with pytest.raises(StorageFull, match="Purge conversations"):
                await run_block(refused)
        assert await chat.turns() == before
        assert await chat.attempts() == []
        assert len(await here.list_chats(owner="ann")) == 1
        await exchange(await here.chat(owner="eve"), "q")

    async def test_owner_at_the_storage_quota_still_receives_replays(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=FULL)
        chat = await here.chat(owner="ann")
        once = await exchange(chat, "q1", LONG, idempotency_key="i")
        block = chat.turn("q2", retry=Retry(b"digest"))
        lost = await run_block(block, LONG)
        Host(here.ledger).lost(block)
        await here.tend()
        same = await there.chat(chat)
        assert await exchange(same, "q1", idempotency_key="i") == once
        with pytest.raises(TurnReplayed) as replay:
            await run_block(same.turn("q2", retry=Retry(b"digest", 1)))
        assert replay.value.turn == lost

    async def test_turn_running_at_the_storage_quota_commits_and_a_queued_one_is_refused(
        self, stage: Stage
    ) -> None:
        here = await stage.process(FULL)
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        holder = await stage.hold_lane(chat, "q1")
        waiting = await stage.queue(chat, ScriptedModel(), "q2")
        await exchange(other, "q1", LONG)
        await holder.finish()
        with pytest.raises(StorageFull):
            await soon(waiting)
        assert await message_texts(chat) == ["q1", "Working done."]
        assert await stage.tickets(chat) == []

    async def test_failed_turns_count_towards_the_storage_quota(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat = await here.chat(owner="ann")
        for _ in range(3):
            with pytest.raises((RuntimeError, StorageFull)):
                await chat.run(ScriptedModel([LONG, RuntimeError("boom")]), "q")
        with pytest.raises(StorageFull):
            await exchange(chat, "q")

    async def test_owner_at_the_chat_quota_is_refused_another_chat_until_a_purge(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, owner_chats=2))
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        for refused in (
            here.ledger.for_owner("ann").conversation(),
            chat.fork(),
            run_block(here.ledger.for_owner("ann").turn("q")),
        ):
            with pytest.raises(StorageFull, match="2 chats"):
                await refused
        await exchange(chat, "q")
        await other.delete()
        with pytest.raises(StorageFull):
            await here.chat(owner="ann")
        await other.delete(purge=True)
        await run_block(here.ledger.for_owner("ann").turn("q"))
        assert (await here.ledger.for_owner("ann").usage()).chats == 2
        assert await here.ledger.check(at_rest=True) == []

    async def test_owner_at_the_storage_quota_may_read_rename_flag_and_switch(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat = await here.chat(owner="ann")
        await fill(chat)
        assert len(await chat.turns()) == 2
        await chat.update(title="T", metadata={"a": "b"})
        await chat.flag((await chat.turns())[0].id, to_model=False)
        await chat.switch((await chat.info()).branch)
        assert await chat.stop() is None

    @pytest.mark.parametrize("is_busy", [False, True])
    async def test_switch_that_copies_effects_counts_towards_the_storage_quota(
        self, stage: Stage, *, is_busy: bool
    ) -> None:
        """A refusal hides nothing: the shown branch contains the effect."""
        here, there = await stage.process(FULL), await stage.process()
        chat = await here.chat(owner="ann")
        first = await exchange(chat, "q1")
        await run_block(chat.edit(first.id, "q1 again"))
        other = (await chat.info()).branch
        await soon(chat.switch(first.branch))
        await stage.hold_lane(chat, "Pay.", [Tool("pay", LONG)])
        await soon(chat.stop(policy="keep"))
        before = await chat.turns()
        same = await there.chat(chat)
        holder = await stage.hold_lane(same, "q2") if is_busy else None
        with pytest.raises(StorageFull):
            await soon(chat.switch(other, on_busy="interrupt"))
        if holder is not None:
            await holder.finish()
        assert (await chat.turns())[: len(before)] == before
        size = await stored_bytes(here)
        await soon(same.switch(other))
        assert await stored_bytes(here) >= size + BLOCK
        assert await here.ledger.check(at_rest=True) == []
        await soon(chat.switch(first.branch))
        await soon(chat.switch(other))

    async def test_purge_frees_storage_for_the_owner(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        await exchange(chat, "q1", LONG)
        with pytest.raises(StorageFull):
            await exchange(other, "q")
        await chat.delete(purge=True)
        await here.tend()
        await exchange(other, "q")


# House-keeping.

CLAIMS = 50


class SlowClock(FakeClock):
    """A clock by which each look at it takes a second."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


async def add_claims(tables: Tables, ledger: Ledger) -> None:
    ids = ledger._process.ids
    for number in range(CLAIMS):
        await tables.save_claim(
            Claim(
                owner=tables.owner,
                idempotency_key=f"key {number}",
                fingerprint=b"",
                conversation=ids.new(ConversationId),
                attempt=ids.new(TurnId),
                expires_at=1,
            )
        )


async def claims_left(inspection: Inspection, _: None) -> int:
    return len(await inspection.all_claims(None, CLAIMS))


async def test_purge_beyond_its_time_limit_continues_in_the_next_round() -> None:
    limits = Limits(purge_rows=3, purge_time=5.0)
    async with await Ledger.over(MemoryStore(), limits=limits, clock=SlowClock()) as ledger:
        store = ledger._process.store
        await store.transact(add_claims, ledger, "ann")
        await ledger._recovery.run_round()
        left = await store.inspect(claims_left, None)
        assert 0 < left < CLAIMS - 3
        assert ledger._recovery.is_behind
        while ledger._recovery.is_behind:
            await ledger._recovery.run_round()
        assert await store.inspect(claims_left, None) == 0


async def test_round_ends_the_due_chats_of_all_owners_but_one_that_is_damaged() -> None:
    store, clock = GatedStore(MemoryStore()), FakeClock()
    async with await Ledger.over(store, limits=Limits(purge_rows=2), clock=clock) as ledger:
        chats = [await ledger.for_owner(f"owner {n}").conversation(expires_after=1) for n in range(6)]
        clock.advance(2)
        store.refuse(end_due, StoreCorrupt("A row cannot be read."))
        await ledger._recovery.run_round()
        found = [await read(store, do("conversation", chat.id, owner=chat.owner)) for chat in chats]
        assert [each.state for each in found].count(ConversationState.EXPIRED) == 6
