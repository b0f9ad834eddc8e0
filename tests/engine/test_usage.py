"""Quotas: an owner whose storage is full begins nothing new, and can free space."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.client_retries import Retry
from turnledger.errors import StorageFull, TurnReplayed
from turnledger.model.conversation import BLOCK
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import LIMITS, Stage, exchange, said, soon, tell, user
from turnledger.testing.store_contract.usage import FULL, LONG, stored


async def fill(chat: Chat) -> None:
    """Store as much as FULL allows."""
    await exchange(chat, "q1", LONG)
    await exchange(chat, "q2", LONG)


class TestQuotas:
    async def test_who_stores_as_much_as_may_be_begins_no_turn(self, stage: Stage) -> None:
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
            there.ledger.conversation(owner="ann"),
            there.ledger.conversation(owner="ann", idempotency_key="i"),
            there.ledger.conversation(conversation_key="other", owner="ann"),
            there.ledger.reset("k", owner="ann"),
        ):
            with pytest.raises(StorageFull, match="Purge conversations"):
                await refused_call
        for refused in (
            chat.turn("q3"),
            same.turn("q3", on_busy="interrupt"),
            chat.resent([user("q3")], sent="new"),
            chat.edit(before[0].id, "q3"),
            chat.regenerate(),
            there.ledger.turn("q3", conversation_key="k", owner="ann"),
            there.ledger.turn("q3", owner="ann"),
        ):
            with pytest.raises(StorageFull, match="Purge conversations"):
                await tell(refused)
        assert await chat.turns() == before
        assert await chat.attempts() == []
        assert len(await here.listed(owner="ann")) == 1
        await exchange(await here.chat(owner="eve"), "q")

    async def test_what_was_answered_is_answered_again(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=FULL)
        chat = await here.chat(owner="ann")
        once = await exchange(chat, "q1", LONG, idempotency_key="i")
        asked = chat.turn("q2", retry=Retry(b"digest"))
        lost = await tell(asked, LONG)
        here.ledger.lost(asked)
        await here.tend()
        same = await there.chat(chat)
        assert await exchange(same, "q1", idempotency_key="i") == once
        with pytest.raises(TurnReplayed) as replay:
            await tell(same.turn("q2", retry=Retry(b"digest", 1)))
        assert replay.value.turn == lost

    async def test_what_runs_goes_on_and_what_waits_is_refused(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        holder = await stage.hold_lane(chat, "q1")
        waiting = await stage.queue(chat, ScriptedModel(), "q2")
        await exchange(other, "q1", LONG)
        await holder.finish()
        with pytest.raises(StorageFull):
            await soon(waiting)
        assert await said(chat) == ["q1", "Working done."]
        assert await stage.tickets(chat) == []

    async def test_failing_turns_reach_the_limit(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat = await here.chat(owner="ann")
        for _ in range(3):
            with pytest.raises((RuntimeError, StorageFull)):
                await chat.run(ScriptedModel([LONG, RuntimeError("boom")]), "q")
        with pytest.raises(StorageFull):
            await exchange(chat, "q")

    async def test_chats_are_bounded_by_number(self, stage: Stage) -> None:
        here = await stage.process(replace(LIMITS, owner_chats=2))
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        for refused in (
            here.ledger.conversation(owner="ann"),
            chat.fork(),
            tell(here.ledger.turn("q", owner="ann")),
        ):
            with pytest.raises(StorageFull, match="2 chats"):
                await refused
        await exchange(chat, "q")
        await other.delete()
        with pytest.raises(StorageFull):
            await here.chat(owner="ann")
        await other.delete(purge=True)
        await tell(here.ledger.turn("q", owner="ann"))
        assert (await here.ledger.usage(owner="ann")).chats == 2
        assert await here.ledger.check(at_rest=True) == []

    async def test_what_stores_nothing_more_can_be_done(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat = await here.chat(owner="ann")
        await fill(chat)
        assert len(await chat.turns()) == 2
        await chat.update(title="T", metadata={"a": "b"})
        await chat.flag((await chat.turns())[0].id, to_model=False)
        await chat.switch((await chat.info()).branch)
        assert await chat.stop() is None

    @pytest.mark.parametrize("is_busy", [False, True])
    async def test_a_switch_that_copies_effects_needs_room_and_is_counted(
        self, stage: Stage, *, is_busy: bool
    ) -> None:
        """Refusing hides nothing: the branch that is shown tells of the effect."""
        here, there = await stage.process(FULL), await stage.process()
        chat = await here.chat(owner="ann")
        first = await exchange(chat, "q1")
        await tell(chat.edit(first.id, "q1 again"))
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
        size = await stored(here)
        await soon(same.switch(other))
        assert await stored(here) >= size + BLOCK
        assert await here.ledger.check(at_rest=True) == []
        await soon(chat.switch(first.branch))
        await soon(chat.switch(other))

    async def test_there_is_room_again_after_a_purge(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        await exchange(chat, "q1", LONG)
        with pytest.raises(StorageFull):
            await exchange(other, "q")
        await chat.delete(purge=True)
        await here.tend()
        await exchange(other, "q")
