"""Effects of unfinished turns: settled once, carried to every branch, and never repeated by a retry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine.views import check_shape, read_all, results, shown
from turnledger.chat import Chat
from turnledger.engine.history.line import STRETCHES_KEPT
from turnledger.engine.ports import Runner, Tables
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import NoNewInput, TurnFailed
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import NOT_STARTED, OUTCOME_UNKNOWN
from turnledger.model.turn import AttemptState, Turn, TurnKind
from turnledger.testing.gates import Fate, Gate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Think, Tool
from turnledger.testing.store_contract.effects import BOOM, PAID, fail, kinds
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Stage,
    StageProcess,
    answer_to,
    call,
    chain,
    exchange,
    message_texts,
    play,
    run_block,
    soon,
    user,
)

ways_to_leave_out = pytest.mark.parametrize(
    "way", ["undo", "regenerate", "edit", "early edit", "early fork", "prefix", "divergence", "switch"]
)
PAYING = (Tool("pay", "paid"), "Half")


async def interrupt(stage: Stage, chat: Chat, script: Sequence[Step] = PAYING, **options: Any) -> Turn:
    """Stop a turn after this script has run, and keep it."""
    await stage.hold_lane(chat, "Pay.", script, **options)
    ended = await soon(chat.stop(policy="keep"))
    assert ended.turn is not None
    return ended.turn


async def seen_next(chat: Chat) -> list[dict[str, Any]]:
    """What the model of the next turn is shown."""
    model = ScriptedModel(["a"])
    await soon(chat.run(model, "next"))
    return model.seen[0]


async def left_out(chat: Chat, way: str, first: Turn, last: Turn, other: BranchId) -> Chat:
    """Show a line without the last turn of [first, last], by one of the ways there are."""
    q1, a1 = user("q1"), {"role": "assistant", "content": "a1"}
    match way:
        case "undo":
            await soon(chat.undo())
        case "regenerate":
            await run_block(chat.regenerate())
        case "edit":
            await run_block(chat.edit(last.id, "other"))
        case "early edit":
            await run_block(chat.edit(first.id, "other"))
        case "early fork":
            return await soon(chat.fork(first.id))
        case "prefix":
            await run_block(chat.resent([q1, a1, user("Pay.")]))
        case "divergence":
            await run_block(chat.resent([user("other"), a1, user("next")]))
        case "switch":
            await soon(chat.switch(other))
    return chat


class TestEffects:
    @ways_to_leave_out
    async def test_effects_of_an_interrupted_turn_are_settled_on_every_branch_without_the_turn(
        self, stage: Stage, chat: Chat, same: Chat, way: str
    ) -> None:
        [first] = await chain(chat, 1)
        await run_block(chat.edit(first.id, "q1"), "a1")
        other = await shown(chat)
        await soon(chat.switch(first.branch))
        stopped = await interrupt(stage, chat, details={"model": "m"})
        assert kinds(await chat.turns()) == ["completed", "interrupted"]
        left = await left_out(same, way, first, stopped, other)
        turns = await left.turns()
        assert "interrupted" not in kinds(turns)
        [settled] = [turn for turn in turns if turn.kind is TurnKind.SETTLED]
        assert results(settled) == {"call_0": "paid"}
        assert (settled.input, settled.details) == (stopped.input, {"model": "m"})
        assert "Half" not in [each.text for each in settled.output]
        assert settled.output[-1].role == "developer"
        messages = await seen_next(left)
        assert messages.count(PAID) == 1
        check_shape(await read_all(left, settled.id))

    @ways_to_leave_out
    async def test_interrupted_turn_without_effects_is_left_out_without_a_settled_turn(
        self, stage: Stage, chat: Chat, way: str
    ) -> None:
        [first] = await chain(chat, 1)
        await run_block(chat.edit(first.id, "q1"), "a1")
        other = await shown(chat)
        await soon(chat.switch(first.branch))
        stopped = await interrupt(stage, chat, [Tool("look", "seen", read_only=True), "Half"])
        left = await left_out(chat, way, first, stopped, other)
        assert set(kinds(await left.turns())) == {"completed"}

    async def test_undo_with_forget_drops_the_effects_of_an_interrupted_turn(
        self, stage: Stage, chat: Chat
    ) -> None:
        before = await chain(chat, 1)
        await interrupt(stage, chat)
        await soon(chat.undo(forget=True))
        assert await chat.turns() == before
        assert PAID not in await seen_next(chat)

    @pytest.mark.parametrize("is_kept", [True, False])
    async def test_forgotten_effects_are_not_carried_over_by_a_later_switch(
        self, stage: Stage, chat: Chat, same: Chat, *, is_kept: bool
    ) -> None:
        [first] = await chain(chat, 1)
        await run_block(chat.edit(first.id, "q1"), "a1")
        third = await shown(chat)
        await soon(chat.switch(first.branch))
        if is_kept:
            await interrupt(stage, chat)
            await soon(chat.undo(forget=True))
        else:
            await exchange(chat, "q2")
            await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
            await soon(chat.undo(forget=True))
        made = await shown(chat)
        assert await chat.turns() == [first]
        other = same
        await soon(other.switch(first.branch))
        assert set(kinds(await other.turns())) & {"interrupted", "settled"}
        await interrupt(stage, other, [Tool("pay", "again"), "Half"])
        for branch in (third, made):
            await soon(other.switch(branch))
            [settled] = [turn for turn in await other.turns() if turn.kind is TurnKind.SETTLED]
            assert results(settled) == {"call_0": "again"}

    async def test_effects_of_a_completed_turn_are_dropped_when_it_is_edited(self, chat: Chat) -> None:
        paid = await soon(chat.run(ScriptedModel([Tool("pay", "paid"), "Paid."]), "Pay."))
        model = ScriptedModel(["a"])
        await soon(play(chat.edit(paid.id, "other"), model))
        assert model.seen == [[user("other")]]

    async def test_settled_turn_takes_the_log_of_its_attempt(self, chat: Chat) -> None:
        async def log(tables: Tables, id: TurnId) -> list[bytes]:
            return await tables.log_chunks(id, 0, 9)

        await fail(chat, ScriptedModel([*PAYING, BOOM]))
        [aside] = await chat.attempts()
        read = chat._process.store.read
        assert await read(log, aside.attempt.id, aside.attempt.owner)
        await exchange(chat, "next")
        assert await read(log, aside.attempt.id, aside.attempt.owner) == []

    # Switch.

    @pytest.mark.parametrize("waits", [True, False])
    async def test_switch_settles_the_effects_of_a_failed_turn_on_the_branch_it_shows(
        self, chat: Chat, same: Chat, waits: bool
    ) -> None:
        before, old = await chain(chat, 2), await shown(chat)
        await run_block(chat.edit(before[1].id, "other"))
        new = await shown(chat)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        if not waits:
            await exchange(chat, "q3")
        await soon(same.switch(old))
        turns = await chat.turns()
        assert await shown(chat) == old
        assert kinds(turns) == ["completed", "completed", "settled"]
        assert (turns[:2], turns[2].parent, turns[2].number) == (before, before[1].id, 3)
        check_shape(await read_all(chat, turns[2].id))
        for branch in (new, old, new):
            await soon(chat.switch(branch))
            settled = [turn for turn in await chat.turns() if turn.kind is TurnKind.SETTLED]
            assert len(settled) == 1
        assert (await seen_next(chat)).count(PAID) == 1

    async def test_switch_settles_equal_effects_separately_and_in_order(self, chat: Chat) -> None:
        [first] = await chain(chat, 1)
        await run_block(chat.edit(first.id, "other"))
        for result in ("paid", "paid", "again"):
            await fail(chat, ScriptedModel([Tool("pay", result), BOOM]))
        await soon(chat.switch(first.branch))
        settled_results = [results(turn)["call_0"] for turn in (await chat.turns())[1:]]
        assert settled_results == ["paid", "paid", "again"]

    async def test_switch_does_not_settle_effects_that_were_carried_over_before(
        self, stage: Stage, chat: Chat
    ) -> None:
        [first] = await chain(chat, 1)
        stopped = await interrupt(stage, chat)
        await run_block(chat.edit(first.id, "one"))
        one = await shown(chat)
        await run_block(chat.edit((await chat.turns())[-1].id, "two"))
        two = await shown(chat)
        for branch in (stopped.branch, one, two, stopped.branch, two):
            await soon(chat.switch(branch))
            assert (await seen_next(chat)).count(PAID) == 1
            await soon(chat.undo())

    async def test_switch_that_settles_effects_closes_the_calls_pending_there(self, chat: Chat) -> None:
        pending = await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        await run_block(chat.edit(pending.id, "other"))
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await soon(chat.switch(pending.branch))
        settled = (await chat.turns())[-1]
        assert set(results(settled)) == {"c1", "call_0"}
        assert PAID in await seen_next(chat)

    @pytest.mark.parametrize("fate", Fate)
    async def test_switch_whose_answer_is_lost_settles_effects_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        [first] = await chain(chat, 1)
        await run_block(chat.edit(first.id, "other"))
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        here.store.lose_answer(begin, fate, fate)
        await soon(chat.switch(first.branch))
        assert kinds(await chat.turns()) == ["completed", "settled"]

    async def test_switch_after_many_edits_settles_only_effects_missing_from_its_branch(
        self, chat: Chat
    ) -> None:
        await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "early"), BOOM]))
        last = await exchange(chat, "q3")
        old = await shown(chat)
        for number in range(STRETCHES_KEPT + 5):
            last = await run_block(chat.edit(last.id, f"edit {number}"))
            last = await exchange(chat, "more")
        await fail(chat, ScriptedModel([Tool("pay", "late"), BOOM]))
        await soon(chat.switch(old))
        settled_results = [
            results(turn)["call_0"] for turn in await chat.turns() if turn.kind is TurnKind.SETTLED
        ]
        assert settled_results == ["early", "late"]

    # Forks.

    async def test_fork_carries_over_the_effects_settled_after_its_turn(self, chat: Chat) -> None:
        before = await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await exchange(chat, "q3")
        forked = await soon(chat.fork(before[0].id))
        turns = await forked.turns()
        assert kinds(turns) == ["completed", "settled"]
        assert (turns[0], turns[1].parent) == (before[0], before[0].id)
        await chat.delete(purge=True)
        assert PAID in await seen_next(forked)

    # Resent histories.

    async def test_results_resent_after_an_interrupted_turn_are_asked_again_with_their_calls(
        self, stage: Stage, chat: Chat
    ) -> None:
        pending = await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        await stage.hold_lane(chat, [answer_to("c1", "one")], [Tool("pay", "paid")])  # type: ignore[arg-type]
        await soon(chat.stop(policy="keep"))
        call = {"id": "c1", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
        calling = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "one"}
        model = ScriptedModel(["a"])
        await soon(play(chat.resent([user("q1"), calling, result]), model))
        assert PAID in model.seen[0]
        assert result in model.seen[0]
        assert pending.id not in [turn.id for turn in await chat.turns()]


async def three_calls(turn: RunningTurn) -> None:
    """One call is answered, one started, one neither, and one is read-only."""
    one, two, three, look = (call(name, f"c_{name}") for name in ("one", "two", "three", "look"))
    await turn.add(one, two, three, look)
    await turn.start(one)
    await turn.add(answer_to("c_one", "done"))
    await turn.start(two)
    await turn.start(look, read_only=True)
    await turn.add(answer_to("c_look", "seen"))
    turn.emit("Half")
    raise BOOM


class TestSettled:
    async def test_each_failed_turn_is_settled_separately_and_in_order(self, chat: Chat) -> None:
        await fail(chat, ScriptedModel([Tool("pay", "one"), BOOM]))
        await fail(chat, ScriptedModel([Tool("pay", "two"), BOOM]))
        await exchange(chat, "q")
        turns = await chat.turns()
        assert kinds(turns) == ["settled", "settled", "completed"]
        assert [results(turn) for turn in turns[:2]] == [{"call_0": "one"}, {"call_0": "two"}]
        assert [turn.parent for turn in turns] == [None, turns[0].id, turns[1].id]

    @pytest.mark.parametrize("forgets", [False, True])
    async def test_failed_turn_with_only_read_only_calls_or_on_failure_forget_is_not_settled(
        self, chat: Chat, forgets: bool
    ) -> None:
        failing = ScriptedModel([Tool("pay", read_only=not forgets), BOOM])
        await fail(chat, failing, on_failure="forget" if forgets else "settle")
        [aside] = await chat.attempts()
        assert bool(aside.journal.items) is not forgets
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q"))
        assert model.seen == [[user("q")]]
        assert kinds(await chat.turns()) == ["completed"]

    async def test_stopped_turn_with_on_failure_forget_is_still_settled(
        self, stage: Stage, chat: Chat
    ) -> None:
        await stage.hold_lane(chat, "Pay.", [Tool("pay", "paid")], on_failure="forget")
        await soon(chat.stop(policy="discard"))
        await exchange(chat, "q")
        assert kinds(await chat.turns()) == ["settled", "completed"]

    async def test_effects_of_a_rolled_back_turn_are_shown_to_the_turn_that_replaced_it(
        self, stage: Stage, chat: Chat, same: Chat
    ) -> None:
        await stage.hold_lane(chat, "Pay.", [Tool("pay", "paid")])
        model = ScriptedModel(["a"])
        await soon(same.run(model, "Stop!", on_busy="rollback"))
        assert PAID in model.seen[0]

    @pytest.mark.parametrize("way", ["failure", "stop"])
    async def test_kept_turn_states_the_known_outcome_of_each_call(self, chat: Chat, way: str) -> None:
        if way == "failure":
            await fail(chat, three_calls, on_failure="keep")
        else:
            await soon(chat.run(_stopping(three_calls), "Pay."))
        [turn] = await chat.turns()
        assert turn.kind is TurnKind.INTERRUPTED
        assert results(turn) == {
            "c_one": "done",
            "c_look": "seen",
            "c_two": OUTCOME_UNKNOWN,
            "c_three": NOT_STARTED,
        }
        assert turn.output[-1].fields["status"] == "incomplete"
        await exchange(chat, "q")

    async def test_refused_request_settles_no_failed_turn(self, chat: Chat) -> None:
        await exchange(chat, "Hello")
        await fail(chat, ScriptedModel([Tool("pay"), BOOM]))
        before, attempts = await chat.turns(), await chat.attempts()
        with pytest.raises(NoNewInput):
            await chat.run(ScriptedModel(), " ")
        assert await chat.turns() == before
        assert await chat.attempts() == attempts
        await exchange(chat, "q")
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]

    async def test_settled_turn_keeps_the_results_its_input_gave(self, chat: Chat) -> None:
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1"), Ask("ask", call_id="c2")]), "Hello"))
        await fail(
            chat, ScriptedModel([Tool("pay", "paid"), BOOM]), [answer_to("c1", "one"), answer_to("c2", "two")]
        )
        await exchange(chat, "q")
        turns = await chat.turns()
        assert kinds(turns) == ["completed", "settled", "completed"]
        assert results(turns[1]) == {"c1": "one", "c2": "two", "call_0": "paid"}
        assert results(turns[2]) == {}

    async def test_effects_of_a_discarded_turn_are_settled_by_the_next_turn(
        self, stage: Stage, chat: Chat
    ) -> None:
        await stage.hold_lane(chat, "Pay.", [Tool("pay", "paid"), "Half"], idempotency_key="i")
        ended = await soon(chat.stop(policy="discard"))
        assert ended.state is AttemptState.DISCARDED
        assert await chat.turns() == []
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q"))
        assert PAID in model.seen[0]
        assert kinds(await chat.turns()) == ["settled", "completed"]


def _stopping(runner: Runner) -> Runner:
    async def run(turn: RunningTurn) -> None:
        with pytest.raises(RuntimeError):
            await runner(turn)
        turn.stop()

    return run


async def retry(chat: Chat, model: Runner, text: str = "q") -> Turn:
    return await soon(chat.run(model, text, idempotency_key="i"))


def outputs(turn: Turn) -> list[str]:
    return [item.fields["output"] for item in turn.items if item.is_result]


class TestResumed:
    async def test_resumed_retry_does_not_repeat_finished_steps(self, chat: Chat, same: Chat) -> None:
        whole: list[Step] = [Think("hm"), "I look.", Tool("look", "found"), Tool("pay", "paid"), "Done."]
        model = ScriptedModel([*whole[:3], BOOM], whole)
        await fail(chat, model, "q", idempotency_key="i")
        turn = await retry(same, model)
        assert model.executed == {"look": 1, "pay": 1}
        assert outputs(turn) == ["found", "paid"]
        assert [item.type for item in turn.output] == [
            "reasoning",
            "message",
            "function_call",
            "function_call_output",
            "function_call",
            "function_call_output",
            "message",
        ]
        assert model.seen[1][-1] == {"role": "tool", "tool_call_id": "call_0", "content": "found"}
        assert turn.text == "I look.Done."
        assert await chat.turns() == [turn]

    async def test_resumed_attempt_is_marked_resumed_and_leaves_no_effects_to_settle(
        self, chat: Chat
    ) -> None:
        model = ScriptedModel([Tool("pay"), BOOM], [Tool("pay"), "Done."])
        await fail(chat, model, "q", idempotency_key="i")
        turn = await retry(chat, model)
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.RESUMED
        assert aside.journal.items == []
        await exchange(chat, "next")
        assert [each.kind for each in await chat.turns()] == [TurnKind.COMPLETED, TurnKind.COMPLETED]
        assert (await chat.turns())[0] == turn

    async def test_turn_whose_process_died_in_a_tool_is_resumed_in_another_process(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        gate = Gate()
        script: list[Step] = [Tool("book", "booked"), Tool("pay", gate=gate), "Done."]
        model = ScriptedModel(script, script)
        task = stage.start(chat.run(model, "q", idempotency_key="i"))
        await stage.reach(gate, task)
        await stage.bury_others(there)
        turn = await retry(same, model)
        assert model.executed == {"book": 1, "pay": 1}
        assert outputs(turn) == ["booked", OUTCOME_UNKNOWN]

    @pytest.mark.parametrize("attach", [False, True])
    async def test_retry_that_finds_the_process_dead_resumes_its_turn(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat, attach: bool
    ) -> None:
        gate = Gate()
        model = ScriptedModel([Tool("pay", "paid"), gate], [Tool("pay", "paid"), "Done."])
        task = stage.start(chat.run(model, "q", idempotency_key="i"))
        await stage.reach(gate, task)
        await there.tend()  # it has seen the other alive
        stage.clock.advance(LIMITS.lease_time)
        turn = await soon(same.run(model, "q", idempotency_key="i", attach=attach))
        assert (turn.text, model.executed) == ("Done.", {"pay": 1})
        assert await chat.turns() == [turn]
        assert await stage.tickets(chat) == []

    async def test_queued_request_raises_turn_failed_when_the_process_of_its_turn_dies(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat)
        gate = Gate()
        first = await stage.queue(chat, ScriptedModel([gate]), "q", idempotency_key="i")
        second = await stage.queue(same, ScriptedModel(["never said"]), "q", idempotency_key="i")
        await holder.finish()
        await stage.reach(gate, first)
        await stage.bury_others(there)
        with pytest.raises(TurnFailed):
            await soon(second)
        turn = await soon(same.run(ScriptedModel(["Done."]), "q", idempotency_key="i"))
        assert [each.id for each in await chat.turns()][1:] == [turn.id]

    async def test_retry_that_fails_is_resumed_again(self, chat: Chat) -> None:
        whole: list[Step] = [Tool("one", "1"), Tool("two", "2"), Tool("three", "3"), "Done."]
        model = ScriptedModel([whole[0], BOOM], [*whole[:2], BOOM], whole)
        await fail(chat, model, "q", idempotency_key="i")
        await fail(chat, model, "q", idempotency_key="i")
        turn = await retry(chat, model)
        assert model.executed == {"one": 1, "two": 1, "three": 1}
        assert outputs(turn) == ["1", "2", "3"]

    async def test_call_with_a_recorded_result_returns_it_and_does_not_run_again(self, stage: Stage) -> None:
        """The runner begins anew with every attempt, and does not look at the steps."""
        chat, same = await stage.shared_chat()
        paid: list[str] = []
        returned: list[str] = []

        async def pay_twice(turn: RunningTurn) -> None:
            for count in (1, 2):

                async def pay(count: int = count) -> str:
                    paid.append(f"paid {count}")
                    return paid[-1]

                returned.append((await turn.call(call("pay", "c"), pay)).fields["output"])
                if len(returned) < 4:
                    raise BOOM
            turn.emit("Done.")

        await fail(chat, pay_twice, "q", idempotency_key="i")
        assert (paid, returned) == (["paid 1"], ["paid 1"])
        await fail(chat, pay_twice, "q", idempotency_key="i")
        assert (paid, returned[1:]) == (["paid 1"], ["paid 1"])
        returned.append("and another time")
        turn = await retry(same, pay_twice)
        assert (paid, returned[3:]) == (["paid 1", "paid 2"], ["paid 1", "paid 2"])
        assert outputs(turn) == ["paid 1", "paid 2"]

    async def test_call_of_unknown_outcome_reports_it_and_does_not_run_again(self, chat: Chat) -> None:
        paid: list[str] = []

        async def pay() -> str:
            paid.append("paid")
            raise BOOM

        async def agent(turn: RunningTurn) -> None:
            result = await turn.call(call("pay", "c"), pay)
            turn.emit(result.fields["output"])

        await fail(chat, agent, "q", idempotency_key="i")
        turn = await retry(chat, agent)
        assert paid == ["paid"]
        assert turn.text == OUTCOME_UNKNOWN
        assert outputs(turn) == [OUTCOME_UNKNOWN]

    async def test_call_added_but_not_started_is_run_by_the_retry(self, chat: Chat) -> None:
        paid: list[str] = []

        async def pay() -> str:
            paid.append("paid")
            return "paid"

        async def agent(turn: RunningTurn) -> None:
            if not turn.is_resumed:
                await turn.add(call("pay", "c"))
                raise BOOM
            await turn.call(call("pay", "c"), pay)
            await turn.call({**call("pay", "d").fields, "id": "another"}, pay)
            turn.emit("Done.")

        await fail(chat, agent, "q", idempotency_key="i")
        turn = await retry(chat, agent)
        assert paid == ["paid", "paid"]
        assert [item.call_id for item in turn.output if item.is_result] == ["c", "d"]

    async def test_turn_that_failed_after_reasoning_can_be_resumed(self, chat: Chat) -> None:
        model = ScriptedModel([Think("hm"), BOOM], [Think("hm"), "Done."])
        await fail(chat, model, "q", idempotency_key="i")
        turn = await retry(chat, model)
        assert [item.type for item in turn.output] == ["reasoning", "message"]

    async def test_retry_after_the_conversation_moved_on_starts_from_the_beginning(self, chat: Chat) -> None:
        look = Tool("look", "found", read_only=True)
        model = ScriptedModel([look, BOOM], [look, "Done."])
        await fail(chat, model, "q", idempotency_key="i")
        await exchange(chat, "q1", "a1")
        turn = await retry(chat, model)
        assert model.executed == {"look": 2}
        assert [message["content"] for message in model.seen[1]] == ["q1", "a1", "q"]
        assert [each.id for each in await chat.turns()][-1] == turn.id
        assert await message_texts(chat) == ["q1", "a1", "q", "Done."]

    async def test_retry_of_a_settled_turn_returns_the_settled_turn(self, chat: Chat) -> None:
        model = ScriptedModel([Tool("pay"), BOOM])
        await fail(chat, model, "q", idempotency_key="i")
        await exchange(chat, "next")
        turn = await retry(chat, model)
        assert turn.kind is TurnKind.SETTLED
        assert model.executed == {"pay": 1}
        assert [each.kind for each in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]

    async def test_retry_after_on_failure_forget_runs_the_tools_again(self, chat: Chat) -> None:
        model = ScriptedModel([Tool("pay"), BOOM], [Tool("pay"), "Done."])
        await fail(chat, model, "q", idempotency_key="i", on_failure="forget")
        await retry(chat, model)
        assert model.executed == {"pay": 2}

    async def test_resumed_retry_still_settles_another_failed_turn(self, chat: Chat) -> None:
        look = Tool("look", "found", read_only=True)
        model = ScriptedModel([look, BOOM], [look, "Done."])
        await fail(chat, model, "q", idempotency_key="i")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]), "pay")
        await retry(chat, model)
        assert [turn.kind for turn in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert {"role": "tool", "tool_call_id": "call_0", "content": "paid"} in model.seen[1]
