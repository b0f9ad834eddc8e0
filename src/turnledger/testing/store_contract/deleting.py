"""Deleting: restorable for a while, then gone for good, and forks stay whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_changes

from turnledger.chat import Chat
from turnledger.engine.lifecycle.delete import delete, restore
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
)
from turnledger.model.attempt import Attempt, AttemptState, OnStop
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import EVERYWHERE, Conversation, ConversationState, Within
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.rows import do, read, write
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, StageProcess, exchange, soon

DAY = 24 * 3600.0
MONTH = 30 * DAY


class Deleting(Contract):
    async def test_a_restored_conversation_is_as_it_was(self, stage: Stage) -> None:
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

    async def test_a_deleted_conversation_says_until_when_it_can_be_restored(self, stage: Stage) -> None:
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
            with pytest.raises(ConversationDeleted, match="can be restored until") as told:
                await soon(refused)
            assert told.value.restorable_until == until
        await chat.delete(purge=True)
        with pytest.raises(ConversationDeleted) as told:
            await chat.turns()
        assert told.value.restorable_until is None

    async def test_listed_as_deleted_is_what_can_be_restored(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(expires_after=60.0)
        await exchange(chat, "q")
        await chat.delete()
        for passed, is_there in ((0.0, True), (61.0, True), (MONTH - 62, True), (1.0, False)):
            stage.clock.advance(passed)
            page = await there.ledger.catalogue.list(deleted=True)
            assert [each.conversation.id for each in page.chats] == [chat.id] * is_there

    @pytest.mark.parametrize("way", ["in time", "at once", "afterwards"])
    async def test_what_is_gone_for_good_is_not_restored(self, stage: Stage, way: str) -> None:
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
        assert (await here.ledger.usage(owner=chat.owner)).bytes == 0
        assert await here.ledger.check(at_rest=True) == []

    async def test_what_can_be_restored_is_not_swept(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turn = await exchange(chat, "q")
        stored = await here.ledger.usage(owner=chat.owner)
        await chat.delete()
        for _ in range(3):
            await here.tend()
        assert await read(here.store, do("turn", chat.owner, turn.id)) == turn
        assert await here.ledger.usage(owner=chat.owner) == stored
        assert await here.ledger.check(at_rest=True) == []

    async def test_a_conversation_key_that_was_taken_meanwhile_stays_where_it_is(self, stage: Stage) -> None:
        here = await stage.process()
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

    async def test_a_key_that_a_reset_took_away_does_not_come_back(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k")
        new = await here.ledger.reset("k")
        await old.delete()
        await new.delete()
        assert (await here.ledger.restore(old.id)).conversation_key is None
        assert (await here.ledger.restore(new.id)).conversation_key == "k"

    async def test_deleting_and_restoring_can_be_repeated(self, stage: Stage) -> None:
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

    async def test_only_what_its_owner_and_scope_have_is_deleted_or_restored(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", scope="shop")
        for _ in range(2):
            for owner, within in (("bob", EVERYWHERE), ("ann", Within("desk"))):
                with pytest.raises(ConversationNotFound):
                    await here.ledger.delete(chat.id, owner=owner, within=within, purge=True)
                with pytest.raises(ConversationNotFound):
                    await here.ledger.restore(chat.id, owner=owner, within=within)
            await here.ledger.delete(chat.id, owner="ann", within=Within("shop"))
        restored = await here.ledger.restore(chat.id, owner="ann", within=Within("shop"))
        assert (await restored.info()).state is ConversationState.LIVE

    async def test_an_expired_conversation_is_neither_restored_nor_kept(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(expires_after=60.0, conversation_key="k")
        await exchange(chat, "q")
        stage.clock.advance(61)
        await here.tend()
        with pytest.raises(ConversationExpired):
            await here.ledger.restore(chat.id)
        assert (await chat.delete()).state is ConversationState.PURGED
        assert (await here.chat(conversation_key="k")).id != chat.id

    async def test_the_time_in_which_it_was_deleted_does_not_let_it_expire(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(expires_after=60.0)
        await exchange(chat, "q")
        await chat.delete()
        stage.clock.advance(3_600)
        await here.tend()
        restored = await here.ledger.restore(chat.id)
        await here.tend()
        assert len(await restored.turns()) == 1

    async def test_forks_stay_whole(self, stage: Stage) -> None:
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

    async def test_what_tools_did_when_it_was_deleted_is_told_when_it_is_back(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "pay", [Tool("pay", "paid")], on_failure="keep")
        await there.ledger.delete(chat.id)
        await here.tend()
        with pytest.raises(ConversationDeleted):
            await soon(holder.task)
        assert await there.ledger.check(at_rest=True) == []
        restored = await there.ledger.restore(chat.id)
        [aside] = await restored.attempts()
        assert aside.attempt.state is AttemptState.FAILED
        assert aside.attempt.failure is not None
        assert aside.attempt.failure.code == "conversation_deleted"
        await exchange(restored, "on")
        kinds = [turn.kind for turn in await restored.turns()]
        assert kinds == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert await there.ledger.check(at_rest=True) == []

    async def test_a_turn_of_before_cannot_write_once_it_is_back(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.is_deaf = True
        holder = await stage.hold_lane(chat, "q")
        await there.ledger.delete(chat.id)
        restored = await there.ledger.restore(chat.id)
        await exchange(restored, "other")
        with pytest.raises(ConversationDeleted):
            await holder.finish()
        assert len(await restored.turns()) == 1

    async def test_turn_running_while_its_conversation_is_purged_leaves_no_text_and_ends_as_deleted(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0", ["Private."])
        await here.flush()
        [attempt] = await read(here.store, do("running_of", here.ledger._process.lease))
        here.store.is_deaf = True
        await (await there.chat(chat)).delete(purge=True)
        row = do("attempt", chat.owner, attempt.id)
        assert (await read(there.store, row)).partial == ""
        await there.tend()
        assert await read(there.store, row) is None
        with pytest.raises(ConversationDeleted):
            await holder.finish()

    async def test_the_same_request_goes_on_once_it_is_back(self, stage: Stage) -> None:
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

    @pytest.mark.parametrize("fate", Fate)
    async def test_a_deletion_whose_answer_is_lost_is_one(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")
        await exchange(chat, "q")
        here.store.lose_answer(delete, fate)
        deleted = await chat.delete()
        assert deleted.state is ConversationState.DELETED
        here.store.lose_answer(restore, fate)
        restored = await here.ledger.restore(chat.id)
        assert restored.conversation_key == "k"
        assert await here.ledger.check(at_rest=True) == []

    async def test_a_turn_and_a_deletion_at_once_leave_one_of_two_states(self, stage: Stage) -> None:
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

    async def test_a_chat_that_comes_to_be_as_it_is_deleted_is_told_as_deleted(self, stage: Stage) -> None:
        # Its first turn was stopped, to be kept; who deletes it comes before the one who runs it.
        here, there = await stage.processes()
        here.store.is_deaf = True
        chats: list[Chat] = []

        async def stop_and_delete(turn: RunningTurn) -> None:
            chat = await there.chat(conversation_key="k")
            running: Attempt = await read(here.store, do("attempt", chat.owner, turn.id))
            await write(there.store, do("save_attempt", with_changes(running, stop=OnStop.KEEP)))
            await chat.delete()
            chats.append(chat)
            turn.emit("too late")

        with pytest.raises(ConversationDeleted):
            await soon(here.ledger.run(stop_and_delete, "q", conversation_key="k"))
        told = [each.kind for each in await _told(here, chats[0]) if each.turn is None]
        assert told == [ChangeKind.CHAT_CREATED, ChangeKind.CHAT_DELETED]

    async def test_owners_are_told_of_each_step(self, stage: Stage) -> None:
        here = await stage.process(replace(LIMITS, retain_for=60.0))
        chat, silent = await here.chat(title="T"), await here.chat(internal=True)
        await exchange(chat, "q")
        await silent.delete()
        await chat.delete()
        await chat.delete()
        await here.ledger.restore(chat.id)
        await here.ledger.restore(chat.id)
        stage.clock.advance(61)
        await here.ledger.retain()
        told = [each for each in await _told(here, chat) if each.turn is None]
        assert [(each.kind, each.detail) for each in told] == [
            (ChangeKind.CHAT_CREATED, None),
            (ChangeKind.CHAT_DELETED, "deleted"),
            (ChangeKind.CHAT_RESTORED, None),
            (ChangeKind.CHAT_DELETED, "age"),
        ]
        stage.clock.advance(MONTH)
        await here.tend()
        assert (await _told(here, chat))[-1].detail == "purged"


async def _told(process: StageProcess, chat: Chat) -> list[LiveChange]:
    told: list[LiveChange] = await read(process.store, do("changes_of", chat.owner, 0, 100))
    return told


async def _row(process: StageProcess, chat: Chat) -> Conversation:
    found: Conversation = await read(process.store, do("conversation", chat.owner, chat.id))
    return found
