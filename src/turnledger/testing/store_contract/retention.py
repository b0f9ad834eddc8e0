"""Retention: what is old is deleted, what is too much is purged, and pinned and running ones stay."""

from __future__ import annotations

import logging
from dataclasses import replace as with_limits

import pytest
from msgspec.structs import replace

from turnledger.chat import Chat
from turnledger.engine.ports import Store
from turnledger.errors import ConversationDeleted
from turnledger.model.conversation import BLOCK, Branch, ConversationState
from turnledger.model.ids import TurnId
from turnledger.model.retention import Reason, Retained
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.rows import IDS, begun, conversation, do, read, turn, write
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, StageProcess, exchange, soon

HOUR = 3600.0
LONG = "x" * (BLOCK // 2)


class Retention(Contract):
    async def test_what_nobody_used_for_long_is_deleted_and_reported(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR, purge_rows=1))
        old = [await self._used(here, stage, owner) for owner in ("ann", "ann", "bob")]
        stage.clock.advance(HOUR - 2)
        young = await self._used(here, stage, "ann")
        stage.clock.advance(1)
        with caplog.at_level(logging.INFO, "turnledger"):
            report = await here.ledger.retain()
        assert [each.conversation for each in report.retired] == [each.id for each in old]
        assert {each.reason for each in report.retired} == {Reason.AGE}
        assert all(each.purge_at is not None for each in report.retired)
        assert [line for line in caplog.messages if "was deleted by age" in line] == [
            f"retention: {each.id} was deleted by age" for each in old
        ]
        assert len(await young.turns()) == 1
        for each in old:
            with pytest.raises(ConversationDeleted, match="can be restored"):
                await each.turns()
        assert (await here.ledger.retain()).retired == ()
        assert await here.ledger.check(at_rest=True) == []

    async def test_a_turn_that_failed_is_use(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR))
        chat, silent = await self._used(here, stage, "ann"), await here.chat(owner="ann", internal=True)
        stage.clock.advance(HOUR)
        for each in (chat, silent):
            with pytest.raises(RuntimeError):
                await each.run(ScriptedModel([RuntimeError()]), "q")
        stage.clock.advance(1)
        assert (await here.ledger.retain()).retired == ()
        stage.clock.advance(HOUR)
        gone = {each.conversation for each in (await here.ledger.retain()).retired}
        assert gone == {chat.id, silent.id}

    async def test_a_turn_that_failed_is_use_after_its_attempt_is_gone(self, stage: Stage) -> None:
        limits = with_limits(LIMITS, retain_for=10 * HOUR, attempts_kept=HOUR, unlisted_kept=10 * HOUR)
        here = await stage.process(limits)
        chat = await self._used(here, stage, "ann")
        stage.clock.advance(9 * HOUR)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await chat.run(ScriptedModel([RuntimeError()]), "q")
            with pytest.raises(RuntimeError):
                await here.ledger.run(ScriptedModel([RuntimeError()]), "q", conversation_key="new")
            stage.clock.advance(8 * HOUR)
            await here.tend()
        assert await chat.attempts() == []
        assert (await here.ledger.retain()).retired == ()
        assert len((await here.ledger.catalogue.named("new")).chats) == 1

    async def test_a_restored_conversation_is_not_deleted_again_at_once(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR))
        chat = await self._used(here, stage, "ann")
        stage.clock.advance(HOUR)
        assert len((await here.ledger.retain()).retired) == 1
        restored = await here.ledger.restore(chat.id, owner="ann")
        assert (await here.ledger.retain()).retired == ()
        assert len(await restored.turns()) == 1

    async def test_the_oldest_are_purged_while_there_is_too_much(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=with_limits(LIMITS, retain_bytes=3 * BLOCK, purge_rows=2))
        chats = [await self._used(here, stage, "ann") for _ in range(6)]
        other = await self._used(here, stage, "bob")
        report = await there.ledger.retain()
        assert [each.conversation for each in report.retired] == [each.id for each in chats[:3]]
        assert {(each.reason, each.purge_at) for each in report.retired} == {(Reason.SIZE, None)}
        assert report.full == ()
        assert (await here.ledger.usage(owner="ann")).bytes == 3 * BLOCK
        for each in (*chats[3:], other):
            assert len(await each.turns()) == 1
        with pytest.raises(ConversationDeleted, match="Start a new one"):
            await chats[0].turns()
        assert await here.ledger.check(at_rest=True) == []

    async def test_deleted_ones_make_room_before_others_do(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_bytes=2 * BLOCK))
        chats = [await self._used(here, stage, "ann") for _ in range(3)]
        await chats[2].delete()
        [report] = (await here.ledger.retain()).retired
        assert report.conversation == chats[2].id

    async def test_turns_that_a_fork_shows_make_no_room(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_bytes=BLOCK))
        chat = await self._used(here, stage, "ann")
        fork = await chat.fork()
        stage.clock.advance(1)
        await exchange(fork, "mine", LONG)
        await _change(here, fork, pinned=True)
        report = await here.ledger.retain()
        assert [each.conversation for each in report.retired] == [chat.id]
        assert report.full == ("ann",)
        assert len(await fork.turns()) == 2
        assert await here.ledger.check(at_rest=True) == []

    async def test_pinned_and_running_ones_stay(self, stage: Stage) -> None:
        limits = with_limits(LIMITS, retain_for=HOUR, retain_bytes=1)
        here, there = await stage.processes(limits=limits)
        pinned, busy, archived = [await self._used(here, stage, "ann") for _ in range(3)]
        await _change(here, pinned, pinned=True)
        await _change(here, archived, archived=True)
        holder = await stage.hold_lane(busy, "q")
        stage.clock.advance(2 * HOUR)
        await here.store.beat()
        report = await there.ledger.retain()
        assert {each.conversation for each in report.retired} == {archived.id}
        assert report.full == ("ann",)
        await holder.finish()
        assert len(await pinned.turns()) == 1

    async def test_it_is_done_by_the_timer_and_rarely(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, retain_for=HOUR, retain_every=10 * HOUR))
        await here.tend()
        chat = await self._used(here, stage, "ann")
        stage.clock.advance(2 * HOUR)
        await here.tend()
        assert len(await chat.turns()) == 1
        stage.clock.advance(8 * HOUR)
        await here.tend()
        with pytest.raises(ConversationDeleted):
            await chat.turns()

    async def test_without_bounds_nothing_is_removed(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await self._used(here, stage, "ann")
        stage.clock.advance(1_000_000 * HOUR)
        await here.store.beat()
        assert await here.ledger.retain() == Retained()
        assert len(await chat.turns()) == 1

    # What was begun and came to nothing.

    async def test_what_was_begun_and_never_listed_is_purged_after_a_day(self, stores: list[Store]) -> None:
        store, other = stores
        idle = await begun(store, conversation(is_listed=False, touched_at=5))
        for each in (conversation(touched_at=5), conversation(is_listed=False, touched_at=6)):
            await begun(store, each)
        for running, unsettled in ((IDS.new(TurnId), None), (None, IDS.new(TurnId))):
            busy = await begun(store, conversation(is_listed=False, touched_at=5))
            branch = Branch(id=busy.branch, conversation=busy.id, running=running, unsettled=unsettled)
            await write(store, do("save_branch", branch))
        assert await read(other, do("unlisted_conversations", 5, 9)) == [idle]
        assert await read(other, do("unlisted_conversations", 4, 9)) == []

    async def test_a_conversation_that_came_to_nothing_goes_after_a_day(self, stage: Stage) -> None:
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
            await _change(here, each, is_listed=False)
        stage.clock.advance(24 * HOUR - 1)
        await here.tend()
        assert (await here.chat(conversation_key="0")).id == empty.id
        stage.clock.advance(1)
        await here.tend()
        assert (await here.chat(conversation_key="0")).id != empty.id
        assert (await here.chat(conversation_key="1")).id == waits.id
        assert await here.ledger.check(at_rest=True) == []

    # Rows.

    async def test_the_oldest_of_an_owner_come_first(self, stores: list[Store]) -> None:
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
            await begun(store, each)
        oldest = [made[1], made[2], made[0]]
        assert await read(other, do("oldest_conversations", "ann", 3, 9)) == oldest
        assert await read(other, do("oldest_conversations", "ann", 3, 2)) == oldest[:2]
        assert await read(other, do("oldest_deleted", "ann", 9)) == [made[5]]
        assert await read(other, do("oldest_deleted", "bob", 9)) == []

    async def test_deleted_ones_are_purged_when_they_are_due(self, stores: list[Store]) -> None:
        store, other = stores
        made = [conversation(state=ConversationState.DELETED, purge_at=at) for at in (7, 5, 9)]
        for each in made:
            await begun(store, each)
        await begun(store, conversation())
        assert await read(other, do("conversations_to_purge", 7, 9)) == [made[1], made[0]]
        assert await read(other, do("conversations_to_purge", 7, 1)) == [made[1]]
        assert await read(other, do("conversations_to_purge", 4, 9)) == []

    async def test_owners_are_those_of_whom_something_is_stored(self, stores: list[Store]) -> None:
        store, other = stores
        for owner, count in (("bob", 1), ("ann", 1), ("eve", 1), ("eve", -1)):
            await write(store, do("count_bytes", owner, count))
        assert await read(other, do("owners", None, 9)) == ["ann", "bob"]
        assert await read(other, do("owners", None, 1)) == ["ann"]
        assert await read(other, do("owners", "ann", 9)) == ["bob"]

    async def test_a_conversation_counts_what_its_branches_hold(self, stores: list[Store]) -> None:
        found = await begun(stores[0])
        branch = Branch(id=found.branch, conversation=found.id, bytes=BLOCK + 1)
        await write(stores[0], do("add_turn", turn(found.branch, 1)), do("save_branch", branch))
        assert await read(stores[1], do("bytes_of", found.id)) == 2 * BLOCK
        assert await read(stores[1], do("bytes_of", conversation().id)) == 0

    async def _used(self, process: StageProcess, stage: Stage, owner: str) -> Chat:
        chat = await process.chat(owner=owner)
        await exchange(chat, "q", LONG)
        stage.clock.advance(1)
        return chat


async def _change(process: StageProcess, chat: Chat, **details: bool) -> None:
    found = await read(process.store, do("conversation", chat.owner, chat.id))
    await write(process.store, do("save_conversation", replace(found, **details)))
