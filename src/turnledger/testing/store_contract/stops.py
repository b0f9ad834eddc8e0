"""Stops: acknowledged when the attempt is final, told truly, and stronger than the death of the holder."""

from __future__ import annotations

import pytest

from turnledger.engine.commit import commit
from turnledger.engine.stops import request_stop
from turnledger.errors import TurnStopped
from turnledger.model.attempt import AttemptState
from turnledger.model.turn import TurnKind
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, exchange, said, soon

every_place = pytest.mark.parametrize("elsewhere", [False, True])


class Stops(Contract):
    @every_place
    async def test_a_stopped_turn_is_kept_by_default(self, stage: Stage, elsewhere: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q", [Tool("look"), "Half"])
        ended = await soon((await (there if elsewhere else here).chat(chat)).stop())
        assert ended is not None
        assert ended.state is AttemptState.KEPT
        with pytest.raises(TurnStopped) as stopped:
            await soon(holder.task)
        [turn] = await chat.turns()
        assert turn == ended.turn == stopped.value.turn
        assert turn.kind is TurnKind.INTERRUPTED
        assert turn.text == "Half"
        assert await chat.attempts() == []

    @every_place
    @pytest.mark.parametrize("chosen", ["by the turn", "by the stop"])
    async def test_a_stopped_turn_is_discarded_if_that_was_asked_for(
        self, stage: Stage, elsewhere: bool, chosen: str
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        by_turn = chosen == "by the turn"
        holder = await stage.hold_lane(chat, "q", ["Half"], on_stop="discard" if by_turn else "keep")
        same = await (there if elsewhere else here).chat(chat)
        ended = await soon(same.stop(policy=None if by_turn else "discard"))
        assert ended is not None
        assert ended.state is AttemptState.DISCARDED
        with pytest.raises(TurnStopped) as stopped:
            await soon(holder.task)
        assert stopped.value.turn is None
        assert await chat.turns() == []
        [aside] = await chat.attempts()
        assert (aside.attempt.state, aside.attempt.partial) == (AttemptState.DISCARDED, "Half")

    async def test_a_turn_stops_itself_without_an_error(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        async with chat.turn("q") as turn:
            turn.emit("Half")
            turn.stop()
        assert turn.state is AttemptState.KEPT
        assert await chat.turns() == [turn.turn]

    async def test_a_commit_that_comes_first_wins_over_a_stop(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.is_deaf = True
        with here.store.hold(commit) as gate:
            task = stage.start(chat.run(ScriptedModel(["Whole."]), "q"))
            await stage.reach(gate, task)
            stopping = stage.start((await there.chat(chat)).stop())
            await stage.until_run(there, request_stop, 1)
        ended = await soon(stopping)
        assert ended is not None
        assert ended.state is AttemptState.COMPLETED
        assert ended.turn == await soon(task)

    async def test_the_first_stop_decides(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.is_deaf = True
        holder = await stage.hold_lane(chat, "q", ["Half"])
        first = stage.start((await there.chat(chat)).stop(policy="discard"))
        await stage.until_run(there, request_stop, 1)
        second = await soon(chat.stop(policy="keep"))
        assert second == await soon(first)
        assert second is not None
        assert second.state is AttemptState.DISCARDED
        with pytest.raises(TurnStopped):
            await soon(holder.task)
        assert await chat.turns() == []

    @pytest.mark.parametrize("policy", ["keep", "discard"])
    async def test_a_recorded_stop_outlives_its_holder(self, stage: Stage, policy: str) -> None:
        """The holder never hears of the stop and falls silent; whoever buries it honours the stop."""
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.is_deaf = True
        other = "keep" if policy == "discard" else "forget"
        await stage.hold_lane(chat, "q", [Tool("pay", "paid")], on_failure=other)
        same = await there.chat(chat)
        stopping = stage.start(same.stop(policy=policy))
        await stage.until_run(there, request_stop, 1)
        await stage.bury_others(there)
        ended = await soon(stopping)
        assert ended is not None
        if policy == "keep":
            assert ended.state is AttemptState.KEPT
            assert [turn.kind for turn in await same.turns()] == [TurnKind.INTERRUPTED]
        else:
            assert ended.state is AttemptState.DISCARDED
            assert await same.turns() == []
            await exchange(same, "next")
            assert [turn.kind for turn in await same.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]

    async def test_who_waits_for_a_stop_takes_over_from_a_silent_holder(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.is_deaf = True
        await stage.hold_lane(chat, "q", ["Half"], on_stop="discard")
        stopping = stage.start((await there.chat(chat)).stop())
        await stage.until_run(there, request_stop, 1)
        await there.tend()  # the lease is seen at its beat
        stage.clock.advance(LIMITS.lease_time)
        there.store.announce()
        ended = await soon(stopping)
        assert ended is not None
        assert ended.state is AttemptState.DISCARDED

    @every_place
    async def test_a_queued_turn_can_be_stopped_before_it_runs(self, stage: Stage, elsewhere: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        model = ScriptedModel()
        waiting = await stage.queue(chat, model, "q1", idempotency_key="i")
        [ticket] = await stage.tickets(chat)
        same = await (there if elsewhere else here).chat(chat)
        ended = await soon(same.stop(ticket.attempt))
        assert ended is not None
        assert ended.state is AttemptState.DISCARDED
        with pytest.raises(TurnStopped):
            await soon(waiting)
        with pytest.raises(TurnStopped):
            await soon(same.run(model, "q1", idempotency_key="i"))
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert model.seen == []
        assert await said(chat) == ["q0", "Working done."]
        [aside] = await chat.attempts()
        assert (aside.attempt.id, aside.attempt.state) == (ticket.attempt, AttemptState.DISCARDED)

    async def test_stopping_a_queued_turn_leaves_the_running_one_alone(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        holder = await stage.hold_lane(chat, "q0")
        stopped = await stage.queue(chat, ScriptedModel(), "q1")
        waiting = await stage.queue(chat, ScriptedModel(["a2"]), "q2")
        await soon(chat.stop((await stage.tickets(chat))[0].attempt))
        with pytest.raises(TurnStopped):
            await soon(stopped)
        await holder.finish()
        await soon(waiting)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q2"]

    async def test_there_is_nothing_to_stop_on_an_idle_conversation(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        assert await soon(chat.stop()) is None
        turn = await exchange(chat, "q")
        assert await soon(chat.stop()) is None
        ended = await soon(chat.stop(turn.id))
        assert ended is not None
        assert (ended.state, ended.turn) == (AttemptState.COMPLETED, turn)

    async def test_a_stop_names_a_turn_of_its_own_conversation(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(), await here.chat()
        turn = await exchange(chat, "q")
        holder = await stage.hold_lane(chat, "q1")
        [running] = await chat.attempts()
        assert await soon(other.stop(running.attempt.id)) is None
        assert await soon(other.stop(turn.id)) is None
        await holder.finish()
