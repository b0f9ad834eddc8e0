"""Deletion and retention: restorable for a while, then purged in bounded steps; forks stay whole."""

from __future__ import annotations

import logging
from dataclasses import replace as with_limits

import pytest
from msgspec.structs import replace

from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.errors import ConversationDeleted, ConversationNotFound
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import (
    BLOCK,
    EVERYWHERE,
    Conversation,
    ConversationState,
    Within,
)
from turnledger.model.retention import RetentionReason
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.rows.kit import (
    do,
    read,
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
        assert await read(here.store, do("turn", turn.id, owner=chat.owner)) is None
        assert (await read(here.store, do("branch", left.branch, owner=chat.owner))).preview == ""
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
    found: list[LiveChange] = await read(process.store, do("changes", None, 100, owner=chat.owner))
    return found


async def _row(process: StageProcess, chat: Chat) -> Conversation:
    found: Conversation = await read(process.store, do("conversation", chat.id, owner=chat.owner))
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


async def make_used_chat(process: StageProcess, stage: Stage, owner: str) -> Chat:
    chat = await process.chat(owner=owner)
    await exchange(chat, "q", LONG)
    stage.clock.advance(1)
    return chat


async def rewrite_row(process: StageProcess, chat: Chat, **details: bool) -> None:
    found = await read(process.store, do("conversation", chat.id, owner=chat.owner))
    await write(process.store, do("save_conversation", replace(found, **details)))


class Purges(Contract):
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
        assert [await read(here.store, do("bytes_of", chat.id, owner=chat.owner)) for chat in chats] == [
            0
        ] * 7
        for chat in chats:
            with pytest.raises(ConversationDeleted):
                await here.ledger.restore(chat.id)
