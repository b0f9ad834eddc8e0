"""Resent histories, retried and while others are at work: each is read against the line as it is by then."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.errors import (
    HistoryDiverged,
    IdempotencyMismatch,
    MalformedItems,
    MissingToolResults,
    NoNewInput,
    TurnReplayed,
)
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.resent import (
    BROKEN,
    SYSTEM,
    Messages,
    calling,
    fail,
    refused,
    result,
    send,
    sound,
    talk,
)
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    chain,
    exchange,
    play,
    said,
    soon,
    user,
)


class ResentOnce(Contract):
    async def test_a_committed_turn_is_replayed_though_the_history_holds_it(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        turn = await send(chat, mine, "a2", idempotency_key="i")
        for each in (chat, same):
            with pytest.raises(TurnReplayed) as replay:
                await send(each, mine, idempotency_key="i")
            assert replay.value.turn == turn
        assert await said(chat) == ["q1", "a1", "q2", "a2"]

    async def test_another_body_is_another_request(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await send(chat, [user("q1")], idempotency_key="i")
        await refused(chat, [user("q2")], IdempotencyMismatch, idempotency_key="i")
        await refused(chat, [SYSTEM, user("q1")], IdempotencyMismatch, idempotency_key="i")
        await refused(chat, [user("q1")], IdempotencyMismatch, idempotency_key="i", sent="new")
        await refused(chat, [user("q1")], IdempotencyMismatch, idempotency_key="i", priming="Hello")

    async def test_a_second_request_attaches_while_the_first_runs(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        holder = await stage.hold(lambda model: play(chat.resent(mine, idempotency_key="i"), model))
        second = stage.start(send(same, mine, idempotency_key="i"))
        await stage.until_run(there, begin, 1)
        turn = await holder.finish()
        with pytest.raises(TurnReplayed) as replay:
            await soon(second)
        assert replay.value.turn.id == turn.id
        assert await said(chat) == ["q1", "a1", "q2", "Working done."]

    async def test_a_retry_resumes_what_failed(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await chain(chat, 1)
        mine = [SYSTEM, *talk("q1", "a1", "q2")]
        model = ScriptedModel([Tool("pay"), BROKEN], [Tool("pay"), "Paid."])
        for each in (chat, await there.chat(chat)):
            try:
                await soon(play(each.resent(mine, idempotency_key="i"), model))
            except ValueError:
                continue
        assert model.executed["pay"] == 1
        assert await said(chat) == ["q1", "a1", "q2", "Paid."]
        assert [each.kind for each in await chat.turns()] == [TurnKind.COMPLETED] * 2

    async def test_an_edit_is_resumed_on_its_branch(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 2)
        mine = talk("q1", "a1", "edited")
        model = ScriptedModel([Tool("pay"), BROKEN], [Tool("pay"), "Paid."])
        with pytest.raises(ValueError, match="broken"):
            await soon(play(chat.resent(mine, idempotency_key="i"), model))
        await soon(play(chat.resent(mine, idempotency_key="i"), model))
        assert model.executed["pay"] == 1
        assert await said(chat) == ["q1", "a1", "edited", "Paid."]

    async def test_a_retry_goes_where_it_began_though_the_key_has_moved_on(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        await fail(chat, mine, "Hm", idempotency_key="i")
        fresh = await here.ledger.reset("k")
        await send(fresh, mine, "a2", idempotency_key="i")
        assert await said(chat) == ["q1", "a1", "q2", "a2"]
        assert await said(fresh) == []

    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("fate", Fate)
    async def test_a_begin_whose_answer_is_lost_happens_once(
        self, stage: Stage, fate: Fate, key: str | None
    ) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        here.store.lose_answer(begin, fate)
        await send(chat, talk("q1", "a1", "edited"), idempotency_key=key)
        assert await said(chat) == ["q1", "a1", "edited", "ok"]
        await sound(here)

    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("fate", Fate)
    async def test_a_commit_whose_answer_is_lost_happens_once(
        self, stage: Stage, fate: Fate, key: str | None
    ) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        here.store.lose_answer(commit, fate)
        mine = talk("q1", "a1", "q2", "a2", "q3")
        await send(chat, mine, idempotency_key=key)
        if key is not None:
            with pytest.raises(TurnReplayed):
                await send(chat, mine, idempotency_key=key)
        await send(chat, [*mine, *talk("", "ok", "q4")[1:]])
        assert await said(chat) == ["q1", "a1", "q2", "a2", "q3", "ok", "q4", "ok"]
        await sound(here)


class ResentInBetween(Contract):
    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("is_elsewhere", [False, True])
    async def test_a_second_message_to_the_same_history_is_an_edit_by_then(
        self, stage: Stage, is_elsewhere: bool, key: str | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat) if is_elsewhere else chat
        await chain(chat, 1)
        holder = await stage.hold(lambda model: play(chat.resent(talk("q1", "a1", "left")), model))
        right = play(same.resent(talk("q1", "a1", "right"), idempotency_key=key), ScriptedModel(["ok"]))
        waiting = await stage.line_up(chat, right)
        left = await holder.finish()
        turn = await soon(waiting)
        assert await said(chat) == ["q1", "a1", "right", "ok"]
        assert {each.turn.id for each in await chat.siblings(turn.id)} == {left.id, turn.id}
        await sound(here)

    @pytest.mark.parametrize("on_divergence", ["branch", "reject"])
    async def test_the_same_message_sent_twice_asks_for_another_answer_by_then(
        self, stage: Stage, on_divergence: str
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        holder = await stage.hold(lambda model: play(chat.resent(mine), model))
        block = same.resent(mine, on_divergence=on_divergence)
        waiting = await stage.line_up(chat, play(block, ScriptedModel(["again"])))
        first = await holder.finish()
        turn = await soon(waiting)
        assert await said(chat) == ["q1", "a1", "q2", "again"]
        assert {each.turn.id for each in await chat.siblings(turn.id)} == {first.id, turn.id}

    async def test_what_is_new_in_both_is_kept_in_both_if_only_that_is_sent(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        holder = await stage.hold(lambda model: play(chat.resent(talk("left"), sent="new"), model))
        right = play(chat.resent(talk("right"), sent="new"), ScriptedModel(["ok"]))
        waiting = await stage.line_up(chat, right)
        await holder.finish()
        await soon(waiting)
        assert await said(chat) == ["q1", "a1", "left", "Working done.", "right", "ok"]

    async def test_the_line_moves_between_reading_and_beginning(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await chain(chat, 1)
        with here.store.hold(begin) as gate:
            late = stage.start(send(chat, talk("q1", "a1", "q2", "a2", "q3"), "a3"))
            await stage.reach(gate, late)
            await exchange(same, "q2", "a2")
        await soon(late)
        assert await said(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]

    async def test_the_branch_changes_while_it_waits(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await chain(chat, 3)
        holder = await stage.hold(lambda model: play(chat.resent(talk("q1", "a1", "left")), model))
        same = await there.chat(chat)
        mine = talk("q1", "a1", "left", "Working done.", "q3")
        waiting = await stage.line_up(chat, play(same.resent(mine), ScriptedModel(["a3"])))
        await holder.finish()
        await soon(waiting)
        assert await said(chat) == ["q1", "a1", "left", "Working done.", "q3", "a3"]

    async def test_a_window_that_the_running_turn_will_complete_is_not_refused(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        mine = talk("q2", "Working done.", "q3")
        block = chat.resent(mine, on_divergence="reject")
        waiting = await stage.line_up(chat, play(block, ScriptedModel(["a3"])))
        await holder.finish()
        await soon(waiting)
        assert await said(chat) == ["q1", "a1", "q2", "Working done.", "q3", "a3"]

    async def test_what_is_refused_after_waiting_leaves_nothing_behind(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        block = chat.resent(talk("q1", "a1", "right"), on_divergence="reject")
        waiting = await stage.line_up(chat, play(block, ScriptedModel(["no"])))
        await holder.finish()
        with pytest.raises(HistoryDiverged):
            await soon(waiting)
        assert await stage.tickets(chat) == []
        assert await said(chat) == ["q1", "a1", "q2", "Working done."]

    async def test_one_that_interrupts_continues_behind_what_was_kept(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        await send(chat, talk("q1", "a1", "q2", "Work", "q3"), "a3", on_busy="interrupt")
        await asyncio.wait([holder.task])
        assert await said(chat) == ["q1", "a1", "q2", "Working", "q3", "a3"]

    async def test_one_that_rolls_back_takes_the_place(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        await send(chat, talk("q1", "a1", "q3"), "a3", on_busy="rollback")
        await asyncio.wait([holder.task])
        assert await said(chat) == ["q1", "a1", "q3", "a3"]

    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    @pytest.mark.parametrize(
        ("mine", "error"),
        [
            (talk("q1", "a1"), NoNewInput),
            ([*talk("q1", "a1", "q3"), {"role": "user", "content": 7}], MalformedItems),
        ],
    )
    async def test_what_is_refused_stops_nothing(
        self, stage: Stage, mine: Messages, error: type[Exception], policy: str, key: str | None
    ) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        with pytest.raises(error):
            await send(chat, mine, on_busy=policy, idempotency_key=key)
        await holder.finish()
        assert await said(chat) == ["q1", "a1", "q2", "Working done."]

    @pytest.mark.parametrize("key", [None, "i"])
    async def test_a_rollback_that_is_refused_where_it_goes_stops_nothing(
        self, stage: Stage, key: str | None
    ) -> None:
        chat = await (await stage.process()).chat()
        await send(chat, [user("q1")], Ask("look", call_id="c"), Ask("look", call_id="d"))
        holder = await stage.hold_lane(chat, "q2")
        mine = [user("q1"), calling("c", "d"), result("d")]
        with pytest.raises(MissingToolResults):
            await send(chat, mine, on_busy="rollback", idempotency_key=key)
        await holder.finish()
        assert await said(chat) == ["q1", "q2", "Working done."]

    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("policy", ["keep", "settle", "forget"])
    async def test_it_takes_over_from_a_dead_process(
        self, stage: Stage, policy: str, key: str | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await chain(chat, 1)
        await stage.hold_lane(chat, "q2", [Tool("pay"), "Wor"], on_failure=policy)
        same = await there.chat(chat)
        mine = talk("q1", "a1", "q3")
        waiting = await stage.line_up(
            same, play(same.resent(mine, idempotency_key=key), ScriptedModel(["a3"]))
        )
        stage.clock.advance(LIMITS.lease_time)
        there.ledger._process.bells.ring_all()
        await soon(waiting)
        kept = {"keep": ["q2"], "settle": ["q2"], "forget": []}[policy]
        texts = await said(same)
        assert texts[:2] + texts[-2:] == ["q1", "a1", "q3", "a3"]
        assert texts[2:3] == (kept or ["q3"])
        await sound(there)

    async def test_a_settled_turn_stays_for_clients_that_never_saw_it(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        await fail(chat, talk("q1", "a1", "q2", "a2", "pay"))
        mine = talk("q1", "a1", "q2", "a2", "q3")
        await send(chat, mine, "a3")
        await send(chat, [*mine, *talk("", "a3", "q4")[1:]], "a4")
        kinds = [each.kind for each in await chat.turns()]
        assert kinds == [*[TurnKind.COMPLETED] * 2, TurnKind.SETTLED, *[TurnKind.COMPLETED] * 2]
        await send(chat, talk("q1", "a1", "edited"), "b2")
        texts = await said(chat)
        assert texts[:2] + texts[-2:] == ["q1", "a1", "edited", "b2"]
        assert [each.kind for each in await chat.turns()].count(TurnKind.SETTLED) == 1
        await sound(here)

    async def test_it_goes_on_after_an_interruption(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        async with chat.resent(talk("q1", "a1", "q2")) as turn:
            turn.emit("Let me see")
            turn.stop()
        for mine in (
            talk("q1", "a1", "q2", "Let me", "q3"),
            talk("q1", "a1", "q3"),
            [*talk("", "a1")[1:], user("q3")],
        ):
            await send(chat, mine, "a3")
            texts = await said(chat)
            assert texts == ["q1", "a1", "q2", "Let me see", "q3", "a3"]
