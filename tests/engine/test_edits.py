"""Edits and regenerations replace an earlier turn on a new branch once they commit."""

from __future__ import annotations

import pytest

from tests.engine.views import results
from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.commit import commit
from turnledger.errors import (
    IdempotencyMismatch,
    InvalidId,
    InvalidInput,
    MissingToolResults,
    NoNewInput,
    Superseded,
    TurnNotFound,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.ids import TurnId
from turnledger.model.item import NOT_ANSWERED, open_calls
from turnledger.model.turn import AttemptState, Turn, TurnKind
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.effects import BOOM, PAID, fail, kinds
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Holder,
    Stage,
    StageProcess,
    answer_to,
    chain,
    exchange,
    input_texts,
    play,
    run_block,
    soon,
    user,
)

UNKNOWN = TurnId("turn_01890a5d000070008000000000000000")


class TestEdits:
    @pytest.mark.parametrize("place", [0, 1, 2])
    async def test_edit_replaces_a_turn_and_all_turns_after_it_on_a_new_branch(
        self, chat: Chat, same: Chat, place: int
    ) -> None:
        before = await chain(chat, 3)
        old = (await chat.info()).branch
        model = ScriptedModel(["Edited."])
        turn = await soon(play(chat.edit(before[place].id, "other"), model))
        assert model.seen == [
            [part for turn in before[:place] for part in (user(turn.input[0].text), _answer_of(turn))]
            + [user("other")]
        ]
        assert turn.number == place + 1
        assert turn.parent == (before[place - 1].id if place else None)
        for each in (chat, same):
            assert await each.turns() == [*before[:place], turn]
        assert turn.branch == (await chat.info()).branch != old
        await exchange(same, "more")
        assert await input_texts(chat) == [*(f"q{number}" for number in range(1, place + 1)), "other", "more"]
        await chat.switch(old)
        assert await chat.turns() == before

    async def test_edit_is_invisible_to_others_until_its_commit(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        before, found = await chain(chat, 2), await chat.info()
        with here.store.hold(commit) as gate:
            task = stage.start(play(chat.edit(before[0].id, "other"), ScriptedModel(["Edited."])))
            await stage.reach(gate, task)
            assert await same.turns() == before
            assert await chat.info() == found
        turn = await soon(task)
        assert await same.turns() == [turn]

    async def test_running_attempt_names_the_turn_that_it_replaces(self, chat: Chat, same: Chat) -> None:
        first, second = await chain(chat, 2)
        blocks = {
            "message": (chat.turn("new"), None),
            "edit": (chat.edit(first.id, "other"), first.id),
            "regeneration": (chat.regenerate(second.id), second.id),
            "regeneration of the last": (chat.regenerate(), second.id),
        }
        for name, (block, replaced) in blocks.items():
            async with block as turn:
                assert (await same.read()).attempts[0].attempt.replaces == replaced, name
                turn.stop("discard")
        assert [each.attempt.replaces for each in await same.attempts()] == [
            second.id,
            second.id,
            first.id,
            None,
        ]

    async def test_retry_of_a_failed_edit_names_the_turn_that_it_replaces(self, chat: Chat) -> None:
        [first] = await chain(chat, 1)
        for model in (ScriptedModel([Tool("pay"), BOOM]), ScriptedModel([Tool("pay"), BOOM])):
            with pytest.raises(RuntimeError, match=str(BOOM)):
                await soon(play(chat.edit(first.id, "other", idempotency_key="k"), model))
        assert [each.attempt.replaces for each in await chat.attempts()] == [first.id, first.id]

    async def test_edit_of_a_settled_turn_replaces_the_turn_after_it(self, chat: Chat) -> None:
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        last = await exchange(chat, "q2")
        [settled, _] = await chat.turns()
        async with chat.edit(settled.id, "other") as turn:
            turn.stop("discard")
        assert (await chat.attempts())[0].attempt.replaces == last.id

    async def test_history_of_a_running_edit_is_unchanged_by_later_edits(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        before = await chain(chat, 3)
        async with chat.edit(before[2].id, "other") as turn:
            turn.emit("Edited.")
            history, shown = turn.history, list(turn.history)
        seen = turn.messages
        again = await run_block(same.edit(before[1].id, "again"))
        await exchange(chat, "more")
        await run_block(chat.edit(again.id, "and again"))
        assert list(history) == shown == before[:2]
        assert turn.messages == seen

    @pytest.mark.parametrize("what", ["edit", "regenerate", "fork", "siblings"])
    async def test_edit_fork_or_siblings_of_a_turn_off_the_current_line_raises_turn_not_found(
        self, stage: Stage, chat: Chat, what: str
    ) -> None:
        other = await (await stage.process()).chat()
        replaced = (await chain(chat, 2))[1]
        elsewhere = await exchange(other, "elsewhere")
        await run_block(chat.edit(replaced.id, "other"))
        await fail(chat, ScriptedModel([BOOM]))
        [aside] = await chat.attempts()
        before, found = await chat.turns(), await chat.info()
        for id in (replaced.id, elsewhere.id, aside.attempt.id, UNKNOWN):
            with pytest.raises(TurnNotFound):
                await _name(chat, what, id)
        assert await chat.turns() == before
        assert await chat.info() == found
        await exchange(chat, "next", on_busy="reject")

    async def test_edit_of_an_invalid_turn_id_raises_invalid_id(self, chat: Chat) -> None:
        with pytest.raises(InvalidId):
            chat.edit("turn_1", "q")
        with pytest.raises(InvalidId):
            chat.regenerate("turn_1")

    @pytest.mark.parametrize("input", ["  ", []])
    async def test_edit_without_new_input_is_refused_and_settles_nothing(
        self, chat: Chat, input: str
    ) -> None:
        before = await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        attempts = await chat.attempts()
        with pytest.raises(NoNewInput):
            await run_block(chat.edit(before[0].id, input))
        assert await chat.turns() == before
        assert await chat.attempts() == attempts

    async def test_edit_closes_the_calls_pending_at_its_place(self, chat: Chat) -> None:
        pending = await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        answered = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        edited = await run_block(chat.edit(answered.id, "never mind"))
        assert results(edited) == {"c1": NOT_ANSWERED}
        assert edited.parent == pending.id
        again = await run_block(chat.edit(edited.id, [answer_to("c1", "two")]))
        assert results(again) == {"c1": "two"}
        await exchange(chat, "next")

    async def test_edit_with_results_for_calls_not_pending_at_its_place_is_refused(self, chat: Chat) -> None:
        first = await exchange(chat, "q1")
        two = ScriptedModel([Ask("ask", call_id="c1"), Ask("ask", call_id="c2")])
        pending = await soon(chat.run(two, "q2"))
        last = await exchange(chat, "never mind")
        before = await chat.turns()
        with pytest.raises(InvalidInput):
            await run_block(chat.edit(first.id, [answer_to("c1", "one")]))
        with pytest.raises(InvalidInput):
            await run_block(chat.edit(pending.id, [answer_to("c1", "one"), user("q")]))
        with pytest.raises(MissingToolResults):
            await run_block(chat.edit(last.id, [answer_to("c1", "one")]))
        assert await chat.turns() == before
        await exchange(chat, "next", on_busy="reject")

    # Regenerating.

    @pytest.mark.parametrize("named", [False, True])
    async def test_regeneration_repeats_the_input_of_the_named_or_last_turn(
        self, chat: Chat, named: bool
    ) -> None:
        first, last = await chain(chat, 2)
        model = ScriptedModel(["Better."])
        turn = await soon(play(chat.regenerate(first.id if named else None), model))
        replaced = first if named else last
        assert turn.input == replaced.input
        assert turn.number == replaced.number
        assert model.seen[0][-1] == user(replaced.input[0].text)
        assert await chat.turns() == ([] if named else [first]) + [turn]

    async def test_regeneration_repeats_the_tool_results_of_its_turn(self, chat: Chat) -> None:
        two = [Ask("ask", call_id="c1"), Ask("ask", call_id="c2")]
        await soon(chat.run(ScriptedModel(two), "q1"))
        answered = await exchange(chat, [answer_to("c1", "one"), answer_to("c2", "two")])  # type: ignore[arg-type]
        again = await run_block(chat.regenerate(answered.id), "Better.")
        assert again.input == answered.input
        moved_on = await run_block(chat.edit(again.id, [answer_to("c2", "two"), user("enough")]))
        assert results(moved_on) == {"c1": NOT_ANSWERED, "c2": "two"}
        assert (await run_block(chat.regenerate())).input == moved_on.input

    async def test_regeneration_without_a_completed_turn_raises_turn_not_found(self, chat: Chat) -> None:
        with pytest.raises(TurnNotFound):
            await run_block(chat.regenerate())
        await fail(chat, ScriptedModel([Tool("pay"), BOOM]))
        with pytest.raises(TurnNotFound):
            await run_block(chat.regenerate())
        assert await chat.turns() == []

    # Settled turns are never left out.

    async def test_settled_turn_cannot_be_regenerated_and_is_kept_by_an_edit(self, chat: Chat) -> None:
        await exchange(chat, "q1")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await exchange(chat, "q2")
        settled = (await chat.turns())[1]
        with pytest.raises(InvalidInput):
            await run_block(chat.regenerate(settled.id))
        model = ScriptedModel(["Edited."])
        edited = await soon(play(chat.edit(settled.id, "other"), model))
        assert PAID in model.seen[0]
        assert edited.parent == settled.id
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]

    async def test_edit_keeps_the_settled_turns_directly_before_its_place(self, chat: Chat) -> None:
        await exchange(chat, "q1")
        for text in ("one", "two"):
            await fail(chat, ScriptedModel([Tool("pay", text), BOOM]))
        last = await exchange(chat, "q2")
        before = await chat.turns()
        edited = await run_block(chat.edit(last.id, "other"))
        assert await chat.turns() == [*before[:3], edited]

    @pytest.mark.parametrize("again", [False, True])
    async def test_edit_carries_later_settled_turns_over_to_its_branch(
        self, chat: Chat, same: Chat, again: bool
    ) -> None:
        first = await exchange(chat, "q1")
        await exchange(chat, "q2")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]), "Pay.")
        await exchange(chat, "q3")
        model = ScriptedModel(["Edited."])
        block = chat.regenerate(first.id) if again else chat.edit(first.id, "other")
        await soon(play(block, model))
        assert PAID in model.seen[0]
        turns = await same.turns()
        assert kinds(turns) == ["settled", "completed"]
        assert [turn.number for turn in turns] == [1, 2]
        assert [turn.parent for turn in turns] == [None, turns[0].id]
        await exchange(same, "next")
        await run_block(chat.regenerate(turns[1].id))
        assert kinds(await chat.turns()) == ["settled", "completed"]

    async def test_settled_turn_carried_over_by_an_edit_closes_the_calls_pending_there(
        self, chat: Chat
    ) -> None:
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        answered = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c2")]), "q2"))
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]), [answer_to("c2", "two")])
        await exchange(chat, "q3")
        with pytest.raises(InvalidInput):
            await run_block(chat.regenerate(answered.id))
        model = ScriptedModel(["Edited."])
        await soon(play(chat.edit(answered.id, "other"), model))
        turns = await chat.turns()
        assert kinds(turns) == ["completed", "settled", "completed"]
        assert results(turns[1]) == {"c1": NOT_ANSWERED, "call_0": "paid"}
        await exchange(chat, "next")

    # Once.

    async def test_edit_under_one_idempotency_key_is_done_once(self, chat: Chat, same: Chat) -> None:
        first, _ = await chain(chat, 2)
        turn = await run_block(chat.edit(first.id, "other", idempotency_key="i"))
        for each in (chat, same):
            with pytest.raises(TurnReplayed) as replayed:
                await run_block(each.edit(first.id, "other", idempotency_key="i"))
            assert replayed.value.turn == turn
        assert await chat.turns() == [turn]

    async def test_idempotency_key_of_an_edit_is_refused_for_another_place_or_input(self, chat: Chat) -> None:
        first, last = await chain(chat, 2)
        await run_block(chat.edit(last.id, "other", idempotency_key="i"))
        await run_block(chat.regenerate(idempotency_key="r"))
        for block in (
            chat.edit(first.id, "other", idempotency_key="i"),
            chat.edit(last.id, "another", idempotency_key="i"),
            chat.turn("other", idempotency_key="i"),
            chat.regenerate(last.id, idempotency_key="i"),
            chat.regenerate(idempotency_key="i"),
            chat.regenerate(first.id, idempotency_key="r"),
            chat.turn("q2", idempotency_key="r"),
        ):
            with pytest.raises(IdempotencyMismatch):
                await run_block(block)


def _answer_of(turn: Turn) -> dict[str, str]:
    return {"role": "assistant", "content": turn.text}


async def _name(chat: Chat, what: str, id: TurnId) -> None:
    if what == "edit":
        await run_block(chat.edit(id, "q"))
    elif what == "regenerate":
        await run_block(chat.regenerate(id))
    elif what == "fork":
        await chat.fork(id)
    else:
        await chat.siblings(id)


every_fate = pytest.mark.parametrize("fate", Fate)


async def break_down(block: TurnBlock, model: ScriptedModel | None = None) -> ScriptedModel:
    """Run an edit that fails; by default its tool has acted."""
    model = model or ScriptedModel([Tool("pay", "paid"), BOOM])
    with pytest.raises(RuntimeError):
        await soon(play(block, model))
    return model


async def hold_edit(stage: Stage, block: TurnBlock, *script: str | Tool) -> Holder:
    return await stage.hold(lambda model: play(block, model), script)


async def only_one_falls_silent(stage: Stage, alive: StageProcess, observer: StageProcess) -> None:
    """Let a lease time pass without a beat of the holder, but with one of `alive` that the observer has seen
    before it could conclude anything."""
    stage.clock.advance(0.6 * LIMITS.lease_time)
    await alive.store.beat()
    await observer.tend()
    stage.clock.advance(0.6 * LIMITS.lease_time)


class TestUnfinishedEdits:
    async def test_failed_edit_leaves_the_history_and_branch_unchanged(self, chat: Chat) -> None:
        before, found = await chain(chat, 2), await chat.info()
        await break_down(chat.edit(before[0].id, "other"), ScriptedModel(["Half", BOOM]))
        assert await chat.turns() == before
        assert (await chat.info()).branch == found.branch
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.FAILED
        model = ScriptedModel(["a3"])
        await soon(chat.run(model, "q3"))
        assert user("other") not in model.seen[0]
        assert await input_texts(chat) == ["q1", "q2", "q3"]

    async def test_effects_of_a_failed_edit_are_settled_on_the_current_line(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        before = await chain(chat, 3)
        await break_down(chat.edit(before[1].id, "other"))
        assert await chat.turns() == before
        model = ScriptedModel(["a4"])
        await soon(same.run(model, "q4"))
        assert PAID in model.seen[0]
        assert kinds(await chat.turns()) == [*["completed"] * 3, "settled", "completed"]
        assert (await chat.turns())[:3] == before

    async def test_effects_of_a_failed_edit_are_settled_and_carried_over_by_the_next_edit(
        self, chat: Chat
    ) -> None:
        before = await chain(chat, 2)
        old = (await chat.info()).branch
        await break_down(chat.edit(before[0].id, "other"))
        model = ScriptedModel(["Edited."])
        await soon(play(chat.edit(before[0].id, "another"), model))
        assert PAID in model.seen[0]
        assert kinds(await chat.turns()) == ["settled", "completed"]
        await chat.switch(old)
        assert kinds(await chat.turns()) == ["completed", "completed", "settled"]

    @pytest.mark.parametrize("has_pending", [False, True])
    async def test_effects_of_a_failed_edit_are_settled_with_any_calls_pending_at_its_place_or_head(
        self, chat: Chat, has_pending: bool
    ) -> None:
        """Its input answered the calls of its place; those of the head are others, or there are none."""
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        answered = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        if has_pending:
            await soon(chat.run(ScriptedModel([Ask("ask", call_id="c2")]), "q3"))
        await break_down(chat.edit(answered.id, [answer_to("c1", "two"), user("other")]))
        model = ScriptedModel(["Well."])
        await soon(chat.run(model, "next"))
        assert PAID in model.seen[0]
        settled = (await chat.turns())[-2]
        assert settled.kind is TurnKind.SETTLED
        assert results(settled) == {"call_0": "paid"} | ({"c2": NOT_ANSWERED} if has_pending else {})
        assert settled.input[-1].text == "other"
        assert open_calls(await chat.history()) == ()
        assert _results_follow_their_calls(model)

    @pytest.mark.parametrize("by", ["undo", "switch", "fork", "edit"])
    async def test_effects_of_a_failed_edit_are_settled_by_undo_switch_fork_or_edit(
        self, stage: Stage, by: str
    ) -> None:
        chat = await (await stage.process()).chat()
        first = await exchange(chat, "q1")
        old = (await chat.info()).branch
        await soon(play(chat.edit(first.id, "ask"), ScriptedModel([Ask("ask", call_id="c1")])))
        answered = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        shown = (await chat.info()).branch
        await break_down(chat.edit(answered.id, "other"))
        if by == "undo":
            await chat.undo()
        elif by == "fork":
            chat = await chat.fork()
        elif by == "edit":
            await run_block(chat.edit(answered.id, "another"))
        else:
            await chat.switch(old)
            await chat.switch(shown)
        assert "settled" in kinds(await chat.turns())
        assert open_calls(await chat.history()) == ()
        await exchange(chat, "next")

    async def test_retry_of_a_failed_edit_resumes_at_the_same_place(self, chat: Chat, same: Chat) -> None:
        before = await chain(chat, 3)
        model = ScriptedModel([Tool("pay", "paid"), BOOM], [Tool("pay", "paid"), "Paid."])
        await break_down(chat.edit(before[1].id, "other", idempotency_key="i"), model)
        block = same.edit(before[1].id, "other", idempotency_key="i")
        turn = await soon(play(block, model))
        assert model.executed == {"pay": 1}
        assert await chat.turns() == [before[0], turn]
        assert results(turn) == {"call_0": "paid"}
        await exchange(chat, "next")
        assert kinds(await chat.turns()) == ["completed"] * 3

    async def test_retry_of_a_failed_edit_whose_turn_was_undone_raises_turn_not_found(
        self, chat: Chat
    ) -> None:
        before = await chain(chat, 2)
        await break_down(chat.edit(before[1].id, "other", idempotency_key="i"), ScriptedModel([BOOM]))
        await chat.undo()
        with pytest.raises(TurnNotFound):
            await run_block(chat.edit(before[1].id, "other", idempotency_key="i"))

    @pytest.mark.parametrize("way", ["failure", "stop", "stop inside", "stop elsewhere"])
    async def test_kept_edit_is_shown_on_its_branch(self, stage: Stage, way: str) -> None:
        chat, same = await stage.shared_chat()
        before = await chain(chat, 3)
        if way == "failure":
            block = chat.edit(before[1].id, "other", on_failure="keep")
            await break_down(block, ScriptedModel([Tool("pay", "paid"), "Half", BOOM]))
        elif way == "stop inside":
            async with chat.edit(before[1].id, "other") as turn:
                await ScriptedModel([Tool("pay", "paid"), "Half"])(turn)
                turn.stop()
        else:
            holder = await hold_edit(stage, chat.edit(before[1].id, "other"), Tool("pay", "paid"), "Half")
            ended = await soon((same if way == "stop elsewhere" else chat).stop())
            assert ended.state is AttemptState.KEPT
            with pytest.raises(TurnStopped):
                await soon(holder.task)
        turns = await same.turns()
        assert kinds(turns) == ["completed", "interrupted"]
        assert turns[0] == before[0]
        assert turns[1].branch == (await chat.info()).branch
        assert turns[1].text == "Half"
        model = ScriptedModel(["a"])
        await soon(same.run(model, "next", on_busy="reject"))
        assert PAID in model.seen[0]
        assert user("q2") not in model.seen[0]

    # Death.

    @pytest.mark.parametrize("policy", ["keep", "settle"])
    @pytest.mark.parametrize("found_by", ["tending", "waiting", "attached"])
    async def test_edit_of_a_dead_process_is_kept_or_settled_by_its_policy(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat, policy: str, found_by: str
    ) -> None:
        before = await chain(chat, 3)
        block = chat.edit(before[1].id, "other", on_failure=policy, idempotency_key="i")
        holder = await hold_edit(stage, block, Tool("pay", "paid"))
        model, attached = ScriptedModel(["a"]), None
        taking_up = ScriptedModel([Tool("pay", "paid"), "Done."])
        if found_by == "waiting":
            task = await stage.queue(same, model, "next")
            stage.clock.advance(LIMITS.lease_time)
            there.store.announce()
            await soon(task)
        else:
            if found_by == "attached":
                begun = there.store.operations.count("begin")
                retry = same.edit(before[1].id, "other", idempotency_key="i")
                attached = stage.start(play(retry, taking_up))
                await stage.until_run(there, begin, begun + 1)
            await stage.bury_others(there)
            if attached is not None and policy == "keep":
                with pytest.raises(TurnReplayed):
                    await soon(attached)
            elif attached is not None:
                await soon(attached)
                assert taking_up.executed == {}
            await soon(same.run(model, "next"))
        assert PAID in model.seen[0]
        is_settled = policy == "settle" and attached is None
        shown = ["q1", "q2", "q3", "other", "next"] if is_settled else ["q1", "other", "next"]
        assert await input_texts(same) == shown
        assert (user("q2") in model.seen[0]) is is_settled
        holder.gate.release()
        with pytest.raises(Superseded):
            await soon(holder.task)
        assert await input_texts(same) == shown

    @pytest.mark.parametrize("policy", ["keep", "settle"])
    async def test_queue_behind_an_edit_of_a_dead_process_keeps_its_order(
        self, stage: Stage, policy: str
    ) -> None:
        """What is kept lies on a branch of its own, and the queue has moved there."""
        here, there, third = await stage.processes(3)
        chat = await here.chat()
        before = await chain(chat, 2)
        await hold_edit(stage, chat.edit(before[1].id, "other", on_failure=policy))
        first = await stage.queue(await there.chat(chat), ScriptedModel(["a3"]), "q3")
        second = await stage.queue(await third.chat(chat), ScriptedModel(["a4"]), "q4")
        there.store.ignores_hints = True
        await only_one_falls_silent(stage, there, third)
        third.store.announce()
        await third.tend()
        there.store.ignores_hints = False
        there.store.announce()
        await soon(first)
        await soon(second)
        assert (await input_texts(chat))[-2:] == ["q3", "q4"]

    async def test_request_that_takes_over_from_a_dead_edit_waits_behind_its_queue(
        self, stage: Stage
    ) -> None:
        here, there, third = await stage.processes(3)
        chat = await here.chat()
        before = await chain(chat, 2)
        await hold_edit(stage, chat.edit(before[1].id, "other", on_failure="keep"))
        there.store.ignores_hints = True
        first = await stage.queue(await there.chat(chat), ScriptedModel(["a3"]), "q3")
        late = await stage.queue(await third.chat(chat), ScriptedModel(["a4"]), "q4", on_busy="queue")
        await only_one_falls_silent(stage, there, third)
        begun = third.store.operations.count("begin")
        third.store.announce()
        await stage.until_run(third, begin, begun + 1)
        assert not late.done()
        there.store.ignores_hints = False
        there.store.announce()
        await soon(first)
        await soon(late)
        assert await input_texts(chat) == ["q1", "other", "q3", "q4"]

    # Lost answers.

    @every_fate
    async def test_edit_whose_commit_is_in_doubt_is_committed_once(
        self, here: StageProcess, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        before = await chain(chat, 2)
        here.store.lose_answer(commit, fate)
        turn = await run_block(chat.edit(before[1].id, "other"))
        assert await same.turns() == [before[0], turn]
        await exchange(same, "next", on_busy="reject")
        assert await chat.attempts() == []

    # Deletion.


def _results_follow_their_calls(model: ScriptedModel) -> bool:
    """Whether no message stands between a call and its result in what the model was shown."""
    waiting: set[str] = set()
    for message in model.seen[-1]:
        if message["role"] == "tool":
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return False
        waiting |= {each["id"] for each in message.get("tool_calls", ())}
    return not waiting
