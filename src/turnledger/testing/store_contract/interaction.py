"""Interaction: a conversation is in use while a turn runs or waits there, and the end of a turn is use."""

from __future__ import annotations

import asyncio
from dataclasses import replace as limited
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.model.conversation import ConversationState, Ticket
from turnledger.model.ids import TurnId
from turnledger.model.retention import ResetPolicy
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.rows import IDS, do, write
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, exchange, said, soon


class Interaction(Contract):
    @pytest.mark.parametrize("way", ["fails", "is discarded", "dies"])
    async def test_a_conversation_outlives_a_turn_that_ran_too_long_and_did_not_end_well(
        self, stage: Stage, way: str
    ) -> None:
        """The end of a turn counts as interaction, and what waits behind it runs."""
        here, there = await stage.processes()
        chat = await here.chat(expires_after=60, conversation_key="k")
        holder = await stage.hold_lane(chat, "q0")
        same = await there.chat(chat)
        waiting = await stage.queue(same, ScriptedModel(["a1"]), "q1")
        stage.clock.advance(3600)
        await here.store.beat()
        await there.tend()
        if way == "fails":
            holder.task.cancel()
        elif way == "is discarded":
            await soon(chat.stop(policy="discard"))
        else:
            await stage.bury_others(there)
        assert (await soon(waiting)).input[-1].text == "q1"
        await there.tend()
        assert (await there.chat(conversation_key="k")).id == chat.id
        assert await said(same) == ["q1", "a1"]

    @pytest.mark.parametrize("way", ["fails", "is discarded", "is discarded in the queue"])
    async def test_the_end_of_a_turn_counts_as_interaction(self, stage: Stage, way: str) -> None:
        here = await stage.process()
        chat = await here.chat(expires_after=60, conversation_key="k", reset=ResetPolicy.idle(60))
        holder = await stage.hold_lane(chat, "q")
        waiting = await stage.queue(chat, ScriptedModel(["a"]), "q1")
        stage.clock.advance(3600)
        if way == "is discarded in the queue":
            await soon(chat.stop((await stage.tickets(chat))[0].attempt))
        waiting.cancel()
        await asyncio.wait((waiting,))
        if way == "is discarded":
            await soon(chat.stop(policy="discard"))
        else:
            holder.task.cancel()
            await asyncio.wait((holder.task,))
        assert (await chat.info()).touched_at == stage.clock.now_ms()
        stage.clock.advance(59)
        await here.tend()
        assert (await here.chat(conversation_key="k")).id == chat.id

    @pytest.mark.parametrize("way", ["runs", "waits"])
    async def test_stopping_a_turn_that_is_no_interaction_is_none(self, stage: Stage, way: str) -> None:
        limits = limited(LIMITS, retain_for=60.0)
        here, there = await stage.process(), await stage.process(limits)
        chat = await here.chat(owner="ann")
        await exchange(chat, "q0", "a0")
        used = (await chat.info()).touched_at
        stage.clock.advance(3600)
        holder = await stage.hold_lane(chat, "q1", interaction=False)
        waiting = await stage.queue(chat, ScriptedModel(["a2"]), "q2", interaction=False)
        [ticket] = await stage.tickets(chat)
        ended = await soon(chat.stop(None if way == "runs" else ticket.attempt, policy="discard"))
        assert ended is not None
        (holder.task if way == "waits" else waiting).cancel()
        await asyncio.wait((holder.task, waiting))
        assert (await chat.info()).touched_at == used
        assert [each.conversation for each in (await there.ledger.retain()).retired] == [chat.id]

    async def test_a_conversation_is_not_over_while_a_turn_waits_there(self, stage: Stage) -> None:
        """Between the turn before it and its own begin, nothing runs."""
        limits = limited(LIMITS, retain_for=60.0, retain_bytes=0, unlisted_kept=60.0)
        here, there = await stage.process(), await stage.process(limits)
        details: dict[str, Any] = {"expires_after": 60, "reset": ResetPolicy.idle(60)}
        chat = await here.chat(conversation_key="k", **details)
        await exchange(chat, "q0", "a0")
        unlisted = await here.chat(conversation_key="u")
        await write(here.store, do("save_conversation", replace(await unlisted.info(), is_listed=False)))
        for each in (chat, unlisted):
            ticket = Ticket(
                attempt=IDS.new(TurnId),
                conversation=each.id,
                branch=(await each.info()).branch,
                lease=here.ledger._process.lease,
                deadline=stage.clock.now_ms() + 1,
            )
            await write(here.store, do("add_ticket", ticket))
        stage.clock.advance(3600)
        await here.store.beat()
        await there.tend()
        await there.ledger.retain()
        assert (await there.chat(conversation_key="k", **details)).id == chat.id
        assert len(await (await there.chat(chat)).turns()) == 1
        assert [each.id for each in await there.listed()] == [chat.id]
        assert (await unlisted.info()).state is ConversationState.LIVE
