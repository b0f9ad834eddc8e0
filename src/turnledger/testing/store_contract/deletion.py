"""Deletion and retention: restorable for a while, then purged in bounded steps; forks stay whole."""

from __future__ import annotations

import logging
from dataclasses import replace as with_limits

import pytest
from msgspec.structs import replace

from turnledger.chat import Chat
from turnledger.engine.ports import Store
from turnledger.engine.turn.begin import begin
from turnledger.errors import ConversationDeleted, ConversationNotFound
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import (
    BLOCK,
    EVERYWHERE,
    Branch,
    Claim,
    Conversation,
    ConversationState,
    Stretch,
    Within,
)
from turnledger.model.ids import TurnId
from turnledger.model.retention import RetentionReason
from turnledger.model.turn import AttemptState
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.branches import branch_off, grow
from turnledger.testing.store_contract.rows import (
    IDS,
    conversation,
    do,
    full_attempt,
    insert_conversation,
    read,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, StageProcess, exchange, soon

DAY = 24 * 3600.0
MONTH = 30 * DAY


class Deletion(Contract):
    async def test_restored_conversation_is_unchanged(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(conversation_key="k", title="T", metadata={"a": "b"})
        await exchange(chat, "q1")
        before, turns = await chat.info(), await chat.turns()
        deleted = await chat.delete()
        assert deleted.purge_at == stage.clock.now_ms() + MONTH * 1000
        stage.clock.advance(MONTH - 1)
        await there.tend()
        restored = await there.ledger.restore(chat.id)
        assert await restored.info() == before
        assert (restored.conversation_key, restored.former_conversation_key) == ("k", None)
        assert await restored.turns() == turns
        assert (await here.chat(conversation_key="k")).id == chat.id
        await exchange(chat, "q2")
        assert await there.ledger.check(at_rest=True) == []

    async def test_list_of_deleted_shows_restorable_chats_only(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(expires_after=60.0)
        await exchange(chat, "q")
        await chat.delete()
        for passed, is_there in ((0.0, True), (61.0, True), (MONTH - 62, True), (1.0, False)):
            stage.clock.advance(passed)
            page = await there.ledger.list(deleted=True)
            assert [each.conversation.id for each in page.chats] == [chat.id] * is_there

    @pytest.mark.parametrize("way", ["in time", "at once", "afterwards"])
    async def test_restore_after_a_final_end_is_refused(self, stage: Stage, way: str) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="secret", metadata={"a": "secret"}, conversation_key="secret")
        turn = await exchange(chat, "q", "secret")
        await chat.update(tags=("secret",))
        await chat.delete(purge=way == "at once")
        if way == "in time":
            stage.clock.advance(MONTH)
        if way == "afterwards":
            await there.ledger.delete(chat.id, purge=True)
        with pytest.raises(ConversationDeleted):
            await there.ledger.restore(chat.id)
        await there.tend()
        with pytest.raises(ConversationDeleted):
            await here.ledger.restore(chat.id)
        left = await _row(here, chat)
        assert left.state is ConversationState.PURGED
        assert (left.title, left.metadata, left.tags, left.purge_at) == (None, {}, (), None)
        assert (left.conversation_key, left.former_conversation_key) == (None, None)
        assert await read(here.store, do("turn", chat.owner, turn.id)) is None
        assert (await read(here.store, do("branch", left.branch))).preview == ""
        assert (await here.ledger.for_owner(chat.owner).usage()).bytes == 0
        assert await here.ledger.check(at_rest=True) == []

    async def test_delete_and_restore_by_another_owner_or_scope_are_refused(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", scope="shop")
        for _ in range(2):
            for owner, within in (("bob", EVERYWHERE), ("ann", Within("desk"))):
                with pytest.raises(ConversationNotFound):
                    await here.ledger.for_owner(owner, within=within).delete(chat.id, purge=True)
                with pytest.raises(ConversationNotFound):
                    await here.ledger.for_owner(owner, within=within).restore(chat.id)
            await here.ledger.for_owner("ann", within=Within("shop")).delete(chat.id)
        restored = await here.ledger.for_owner("ann", within=Within("shop")).restore(chat.id)
        assert (await restored.info()).state is ConversationState.LIVE

    async def test_fork_of_a_deleted_chat_keeps_its_turns(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        for number in range(3):
            await exchange(chat, f"q{number}")
        fork = await chat.fork((await chat.turns())[1].id)
        shared = await fork.turns()
        for purge in (False, True):
            await chat.delete(purge=purge)
            for _ in range(3):
                await here.tend()
            assert await fork.turns() == shared
            assert await here.ledger.check(at_rest=True) == []
        await exchange(fork, "on")
        await fork.delete()
        fork = await here.ledger.restore(fork.id)
        assert [turn.number for turn in await fork.turns()] == [1, 2, 3]
        assert await here.ledger.check(at_rest=True) == []

    async def test_turn_concurrent_with_a_deletion_is_refused_and_leaves_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        with here.store.hold(begin) as gate:
            task = stage.start(chat.run(ScriptedModel(["a"]), "q"))
            await stage.reach(gate, task)
            await there.ledger.delete(chat.id)
        with pytest.raises(ConversationDeleted):
            await soon(task)
        restored = await there.ledger.restore(chat.id)
        assert await restored.turns() == []
        await exchange(restored, "q")

    async def test_deletion_and_restore_publish_changes_to_the_owner(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=60.0))
        chat, silent = await here.chat(title="T"), await here.chat(internal=True)
        await exchange(chat, "q")
        await silent.delete()
        await chat.delete()
        await chat.delete()
        await here.ledger.restore(chat.id)
        await here.ledger.restore(chat.id)
        stage.clock.advance(61)
        await here.ledger.retain()
        changes = [each for each in await changes_of(here, chat) if each.turn is None]
        assert [(each.kind, each.detail) for each in changes] == [
            (ChangeKind.CHAT_CREATED, None),
            (ChangeKind.CHAT_DELETED, "deleted"),
            (ChangeKind.CHAT_RESTORED, None),
            (ChangeKind.CHAT_DELETED, "age"),
        ]
        stage.clock.advance(MONTH)
        await here.tend()
        assert (await changes_of(here, chat))[-1].detail == "purged"


async def changes_of(process: StageProcess, chat: Chat) -> list[LiveChange]:
    found: list[LiveChange] = await read(process.store, do("changes_of", chat.owner, 0, 100))
    return found


async def _row(process: StageProcess, chat: Chat) -> Conversation:
    found: Conversation = await read(process.store, do("conversation", chat.owner, chat.id))
    return found


HOUR = 3600.0
LONG = "x" * (BLOCK // 2)


class Retention(Contract):
    async def test_retention_deletes_and_logs_chats_unused_for_long(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR, purge_rows=1))
        old = [await make_used_chat(here, stage, owner) for owner in ("ann", "ann", "bob")]
        stage.clock.advance(HOUR - 2)
        young = await make_used_chat(here, stage, "ann")
        stage.clock.advance(1)
        with caplog.at_level(logging.INFO, "turnledger"):
            report = await here.ledger.retain()
        assert [each.conversation for each in report.retired] == [each.id for each in old]
        assert {each.reason for each in report.retired} == {RetentionReason.AGE}
        assert all(each.purge_at is not None for each in report.retired)
        logged = [vars(each) for each in caplog.records if each.message == "chat_retired"]
        assert [(each["conversation"], each["reason"]) for each in logged] == [
            (each.id, "age") for each in old
        ]
        assert len(await young.turns()) == 1
        for each in old:
            with pytest.raises(ConversationDeleted, match="can be restored"):
                await each.turns()
        assert (await here.ledger.retain()).retired == ()
        assert await here.ledger.check(at_rest=True) == []

    async def test_retention_above_the_quota_purges_the_oldest(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=with_limits(LIMITS, retain_bytes=3 * BLOCK, purge_rows=2))
        chats = [await make_used_chat(here, stage, "ann") for _ in range(6)]
        other = await make_used_chat(here, stage, "bob")
        report = await there.ledger.retain()
        assert [each.conversation for each in report.retired] == [each.id for each in chats[:3]]
        assert {(each.reason, each.purge_at) for each in report.retired} == {(RetentionReason.SIZE, None)}
        assert report.full == ()
        assert (await here.ledger.for_owner("ann").usage()).bytes == 3 * BLOCK
        for each in (*chats[3:], other):
            assert len(await each.turns()) == 1
        with pytest.raises(ConversationDeleted, match="Start a new one"):
            await chats[0].turns()
        assert await here.ledger.check(at_rest=True) == []

    async def test_retention_purges_deleted_chats_before_others(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_bytes=2 * BLOCK))
        chats = [await make_used_chat(here, stage, "ann") for _ in range(3)]
        await chats[2].delete()
        [report] = (await here.ledger.retain()).retired
        assert report.conversation == chats[2].id

    async def test_retention_does_not_count_turns_a_fork_needs_as_freed(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_bytes=BLOCK))
        chat = await make_used_chat(here, stage, "ann")
        fork = await chat.fork()
        stage.clock.advance(1)
        await exchange(fork, "mine", LONG)
        await rewrite_row(here, fork, pinned=True)
        report = await here.ledger.retain()
        assert [each.conversation for each in report.retired] == [chat.id]
        assert report.full == ("ann",)
        assert len(await fork.turns()) == 2
        assert await here.ledger.check(at_rest=True) == []

    async def test_retention_keeps_pinned_and_running_chats(self, stage: Stage) -> None:
        limits = with_limits(LIMITS, retain_for=HOUR, retain_bytes=1)
        here, there = await stage.processes(limits=limits)
        pinned, busy, archived = [await make_used_chat(here, stage, "ann") for _ in range(3)]
        await rewrite_row(here, pinned, pinned=True)
        await rewrite_row(here, archived, archived=True)
        holder = await stage.hold_lane(busy, "q")
        stage.clock.advance(2 * HOUR)
        await here.store.beat()
        report = await there.ledger.retain()
        assert {each.conversation for each in report.retired} == {archived.id}
        assert report.full == ("ann",)
        await holder.finish()
        assert len(await pinned.turns()) == 1

    async def test_unlisted_conversation_is_purged_after_a_day(self, stores: list[Store]) -> None:
        store, other = stores
        idle = await insert_conversation(store, conversation(is_listed=False, touched_at=5))
        for each in (conversation(touched_at=5), conversation(is_listed=False, touched_at=6)):
            await insert_conversation(store, each)
        for running, unsettled in ((IDS.new(TurnId), None), (None, IDS.new(TurnId))):
            busy = await insert_conversation(store, conversation(is_listed=False, touched_at=5))
            branch = Branch(id=busy.branch, conversation=busy.id, running=running, unsettled=unsettled)
            await write(store, do("save_branch", branch))
        assert await read(other, do("unlisted_conversations", 5, 9)) == [idle]
        assert await read(other, do("unlisted_conversations", 4, 9)) == []

    async def test_oldest_conversations_of_an_owner_come_first(self, stores: list[Store]) -> None:
        store, other = stores
        made = [
            conversation(touched_at=3),
            conversation(touched_at=1, archived=True),
            conversation(touched_at=2, internal=True),
            conversation(touched_at=1, pinned=True),
            conversation(touched_at=1, is_listed=False),
            conversation(touched_at=1, state=ConversationState.DELETED, purge_at=9),
            conversation(touched_at=4),
            conversation(owner="bob", touched_at=1),
        ]
        for each in made:
            await insert_conversation(store, each)
        oldest = [made[1], made[2], made[0]]
        assert await read(other, do("oldest_conversations", "ann", 3, 9)) == oldest
        assert await read(other, do("oldest_conversations", "ann", 3, 2)) == oldest[:2]
        assert await read(other, do("oldest_deleted", "ann", 9)) == [made[5]]
        assert await read(other, do("oldest_deleted", "bob", 9)) == []

    async def test_deleted_conversations_are_purged_when_due(self, stores: list[Store]) -> None:
        store, other = stores
        made = [conversation(state=ConversationState.DELETED, purge_at=at) for at in (7, 5, 9)]
        for each in made:
            await insert_conversation(store, each)
        await insert_conversation(store, conversation())
        assert await read(other, do("conversations_to_purge", 7, 9)) == [made[1], made[0]]
        assert await read(other, do("conversations_to_purge", 7, 1)) == [made[1]]
        assert await read(other, do("conversations_to_purge", 4, 9)) == []

    async def test_owners_with_stored_rows_are_listed(self, stores: list[Store]) -> None:
        store, other = stores
        for owner, count in (("bob", 1), ("ann", 1), ("eve", 1), ("eve", -1)):
            await write(store, do("count_bytes", owner, count))
        assert await read(other, do("owners", None, 9)) == ["ann", "bob"]
        assert await read(other, do("owners", None, 1)) == ["ann"]
        assert await read(other, do("owners", "ann", 9)) == ["bob"]

    async def test_conversation_counts_bytes_of_its_branches(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        branch = Branch(id=found.branch, conversation=found.id, bytes=BLOCK + 1)
        await write(stores[0], do("add_turn", turn(found.branch, 1)), do("save_branch", branch))
        assert await read(stores[1], do("bytes_of", found.id)) == 2 * BLOCK
        assert await read(stores[1], do("bytes_of", conversation().id)) == 0


async def make_used_chat(process: StageProcess, stage: Stage, owner: str) -> Chat:
    chat = await process.chat(owner=owner)
    await exchange(chat, "q", LONG)
    stage.clock.advance(1)
    return chat


async def rewrite_row(process: StageProcess, chat: Chat, **details: bool) -> None:
    found = await read(process.store, do("conversation", chat.owner, chat.id))
    await write(process.store, do("save_conversation", replace(found, **details)))


class Purges(Contract):
    async def test_ended_attempts_are_purged_by_age_unless_unsettled(self, stores: list[Store]) -> None:
        store = stores[0]
        found = await insert_conversation(store)
        old = [full_attempt(found, state=AttemptState.FAILED, ended_at=10) for _ in range(3)]
        young = full_attempt(found, state=AttemptState.FAILED, ended_at=20)
        running = full_attempt(found)
        for attempt in (*old, young, running):
            await write(store, do("add_attempt", attempt), do("add_records", attempt.id, 0, [b"record"]))
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

    async def test_claims_are_purged_when_expired(self, stores: list[Store]) -> None:
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

    async def test_one_purge_round_removes_all_due_rows(self, stage: Stage) -> None:
        """Otherwise a store grows when traffic adds more rows than a round removes."""
        here = await stage.process(with_limits(LIMITS, purge_rows=2, attempts_kept=60.0, restore_time=60.0))
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

    async def test_purge_removes_turns_of_ended_conversations_only(self, stores: list[Store]) -> None:
        store = stores[0]
        live, deleted, expired = [await insert_conversation(store) for _ in range(3)]
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
                # Newest first: a turn never outlives its parent.
                assert [one.number for one in left] == [1, 2, 3][: len(left)]
        assert removed == 6
        for each, left in ((live, 3), (deleted, 0), (expired, 0)):
            turns = await read(stores[1], do("turns", each.branch, 0, 9, 9))
            assert len(turns) == left
            row = await read(stores[1], do("conversation", "ann", each.id))
            assert row is not None

    async def test_empty_branches_are_cleared_in_bounded_steps(self, stores: list[Store]) -> None:
        """Each was created from the one before, as by repeated undo, and has no turns of its own."""
        store = stores[0]
        found = await insert_conversation(store)
        [first] = await grow(store, found.branch, 1)
        line = (Stretch(found.branch, 0, 1),)
        made = [(await branch_off(store, found, first, *line))[0].id for _ in range(10)]
        await write(store, do("save_conversation", replace(found, state=ConversationState.PURGED)))
        removed = [(await write(stores[step % 2], do("purge_ended", 3)))[0] for step in range(5)]
        assert removed == [3, 3, 3, 2, 0]
        for branch in made:
            assert await read(stores[1], do("origin", branch)) is None
        assert await read(stores[1], do("turn", "ann", first.id)) is None

    async def test_lapsed_conversations_exclude_those_in_use(self, stores: list[Store]) -> None:
        store = stores[0]
        lapsed = await insert_conversation(store, conversation(touched_at=0, expires_after=10))
        await insert_conversation(store, conversation(touched_at=5, expires_after=10))
        await insert_conversation(store, conversation(touched_at=0))
        busy = await insert_conversation(store, conversation(touched_at=0, expires_after=10))
        running = Branch(id=busy.branch, conversation=busy.id, running=IDS.new(TurnId))
        await write(store, do("save_branch", running))
        assert await read(stores[1], do("lapsed_conversations", 10, 9)) == [lapsed]
        assert await read(stores[1], do("lapsed_conversations", 9, 9)) == []
