"""Nothing silently forgotten: an unknown, deleted or expired conversation raises its own error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.engine.turn.running_turn import record
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
    InvalidId,
    TurnFailed,
)
from turnledger.model.ids import ConversationId, TurnId
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    exchange,
    expect_refusal,
    run_block,
    soon,
)

UNKNOWN = ConversationId("conv_01890a5d000070008000000000000000")
UNKNOWN_TURN = TurnId("turn_01890a5d000070008000000000000000")
NEVER = ScriptedModel()


USES: dict[str, Callable[[Chat], Awaitable[Any]]] = {
    "run": lambda chat: chat.run(NEVER, "q"),
    "read": lambda chat: chat.read(),
    "turns": lambda chat: chat.turns(),
    "history": lambda chat: chat.history(),
    "attempts": lambda chat: chat.attempts(),
    "info": lambda chat: chat.info(),
    "update": lambda chat: chat.update(title="T"),
    "stop": lambda chat: chat.stop(),
    "edit": lambda chat: run_block(chat.edit(UNKNOWN_TURN, "q")),
    "regenerate": lambda chat: run_block(chat.regenerate()),
    "undo": lambda chat: chat.undo(),
    "switch": lambda chat: chat.switch(chat.as_opened.branch),
    "fork": lambda chat: chat.fork(),
    "siblings": lambda chat: chat.siblings(UNKNOWN_TURN),
}


async def _expect_error_from_every_use(
    process: StageProcess, chat: Chat, same: Chat, error: type[Exception]
) -> None:
    """Expect the error in two processes, before and after the purge."""
    for _ in range(2):
        for name, use in USES.items():
            for each in (chat, same):
                await expect_refusal(name, use(each), error)
        with pytest.raises(error):
            await process.chat(chat)
        await process.tend()


class MissingConversations(Contract):
    async def test_unknown_id_is_not_found_and_creates_nothing(self, stage: Stage) -> None:
        here = await stage.process()
        with pytest.raises(ConversationNotFound):
            await here.ledger.conversation(UNKNOWN)
        with pytest.raises(ConversationNotFound):
            await here.ledger.run(NEVER, "q", conversation=UNKNOWN)
        assert await here.list_chats() == []

    async def test_malformed_id_is_refused(self, stage: Stage) -> None:
        here = await stage.process()
        for text in ("conv_", "conv_1", "my chat", UNKNOWN.upper(), UNKNOWN + "0"):
            with pytest.raises(InvalidId):
                await here.ledger.conversation(text)

    async def test_deleted_conversation_refuses_every_use(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await exchange(chat, "q")
        await chat.delete()
        await _expect_error_from_every_use(there, chat, same, ConversationDeleted)
        await same.delete()

    async def test_expired_conversation_refuses_every_use(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(expires_after=60)
        same = await there.chat(chat)
        await exchange(chat, "q")
        stage.clock.advance(59)
        await same.info()
        stage.clock.advance(1)
        await _expect_error_from_every_use(there, chat, same, ConversationExpired)

    async def test_turn_postpones_expiry(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(expires_after=60)
        for _ in range(3):
            stage.clock.advance(59)
            await exchange(chat, "q")
            await here.tend()
        assert len(await chat.turns()) == 3

    async def test_conversation_with_a_running_turn_does_not_expire(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(expires_after=60)
        stage.clock.advance(59)
        holder = await stage.hold_lane(chat, "q")
        stage.clock.advance(59)
        await there.tend()
        assert len(await (await there.chat(chat)).attempts()) == 1
        stage.clock.advance(3600)
        await here.store.beat()
        await there.tend()
        await holder.finish()
        assert len(await chat.turns()) == 1

    async def test_running_turn_of_a_deleted_conversation_cannot_commit(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        with here.store.hold(commit) as gate:
            task = stage.start(chat.run(ScriptedModel(["a"]), "q"))
            await stage.reach(gate, task)
            await (await there.chat(chat)).delete()
        with pytest.raises(ConversationDeleted):
            await soon(task)
        with pytest.raises(ConversationDeleted):
            await chat.turns()
        await there.tend()
        assert await there.list_chats() == []

    async def test_tool_of_a_deleted_conversation_cannot_start(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        model = ScriptedModel([Tool("pay"), "Paid."])
        here.store.ignores_hints = True
        task = stage.start(chat.run(model, "q"))
        with here.store.hold(record) as gate:
            await stage.reach(gate, task)
            await (await there.chat(chat)).delete()
        with pytest.raises(ConversationDeleted):
            await soon(task)
        assert model.executed == {}

    async def test_queued_turns_of_a_deleted_conversation_are_refused(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat, "q0", idempotency_key="i")
        waiting = await stage.queue(await there.chat(chat), NEVER, "q1")
        same, begun = await there.chat(chat), there.store.operations.count("begin")
        attached = stage.start(same.run(NEVER, "q0", idempotency_key="i"))
        await stage.until_run(there, begin, begun + 1)
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await soon(waiting)
        with pytest.raises((ConversationDeleted, TurnFailed)):
            await soon(attached)

    async def test_deletion_leaves_other_conversations(self, stage: Stage) -> None:
        here = await stage.process(replace(LIMITS, purge_rows=3))
        kept, gone = await here.chat(), await here.chat()
        for number in range(4):
            await exchange(kept, f"q{number}")
            await exchange(gone, f"q{number}")
        before = await kept.turns()
        await gone.delete()
        for _ in range(4):
            await here.tend()
        assert await kept.turns() == before
        await exchange(kept, "q4")
        assert len(await kept.turns()) == 5
