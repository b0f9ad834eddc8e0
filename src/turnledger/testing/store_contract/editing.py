"""Editing and regenerating: another turn in the place of an earlier one, on a branch of its own."""

from __future__ import annotations

from random import Random

import pytest

from turnledger.chat import Chat
from turnledger.engine.turn.commit import commit
from turnledger.errors import (
    IdempotencyMismatch,
    InvalidId,
    InvalidInput,
    MissingToolResults,
    NoNewInput,
    TurnNotFound,
    TurnReplayed,
)
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.messages.calls import NOT_ANSWERED
from turnledger.model.turn import Turn
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    answer_to,
    asked,
    chain,
    exchange,
    play,
    said,
    soon,
    tell,
    user,
)
from turnledger.testing.store_contract.what_happened import BOOM, PAID, fail, kinds, results

UNKNOWN = TurnId("turn_01890a5d000070008000000000000000")


async def whole(chat: Chat) -> list[Turn]:
    return await chat.turns(limit=1_000)


class Editing(Contract):
    @pytest.mark.parametrize("place", [0, 1, 2])
    async def test_an_edit_takes_the_place_of_a_turn_and_of_those_behind_it(
        self, stage: Stage, place: int
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before = await chain(chat, 3)
        old = (await chat.info()).branch
        model = ScriptedModel(["Edited."])
        turn = await soon(play(chat.edit(before[place].id, "other"), model))
        assert model.seen == [
            [part for turn in before[:place] for part in (user(turn.input[0].text), _told(turn))]
            + [user("other")]
        ]
        assert turn.number == place + 1
        assert turn.parent == (before[place - 1].id if place else None)
        for each in (chat, await there.chat(chat)):
            assert await each.turns() == [*before[:place], turn]
        assert turn.branch == (await chat.info()).branch != old
        await exchange(await there.chat(chat), "more")
        assert await asked(chat) == [*(f"q{number}" for number in range(1, place + 1)), "other", "more"]
        await chat.switch(old)
        assert await chat.turns() == before

    async def test_until_its_commit_nothing_has_changed(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before, found = await chain(chat, 2), await chat.info()
        with here.store.hold(commit) as gate:
            task = stage.start(play(chat.edit(before[0].id, "other"), ScriptedModel(["Edited."])))
            await stage.reach(gate, task)
            assert await (await there.chat(chat)).turns() == before
            assert await chat.info() == found
        turn = await soon(task)
        assert await (await there.chat(chat)).turns() == [turn]

    async def test_what_a_running_edit_sees_never_changes(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before = await chain(chat, 3)
        async with chat.edit(before[2].id, "other") as turn:
            turn.emit("Edited.")
            history, shown = turn.history, list(turn.history)
        seen = turn.messages
        again = await tell((await there.chat(chat)).edit(before[1].id, "again"))
        await exchange(chat, "more")
        await tell(chat.edit(again.id, "and again"))
        assert list(history) == shown == before[:2]
        assert turn.messages == seen

    async def test_lines_of_nested_edits_read_as_they_were_written(self, stage: Stage) -> None:
        """Against plain lists: a hundred edits anywhere, then every branch and pages anywhere."""
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        random = Random(7)
        line = await chain(chat, 4)
        lines: dict[BranchId, list[Turn]] = {}
        for number in range(100):
            using = (chat, same)[number % 2]
            lines[(await chat.info()).branch] = list(line)
            place = random.randrange(len(line) - 2, len(line))
            edited = await tell(using.edit(line[place].id, f"edit {number}"), f"answer {number}")
            line = [*line[:place], edited]
            for _ in range(random.randrange(1, 3)):
                line.append(await exchange(using, "more", "yes"))
        lines[(await chat.info()).branch] = line
        assert len(line) > 70
        for limit in (1, 3, 50, 1_000):
            for before in (None, *range(1, len(line) + 3, 5)):
                end = len(line) if before is None else before - 1
                assert await chat.turns(before=before, limit=limit) == line[:end][-limit:]
        for branch, expected in random.sample(sorted(lines.items()), 12):
            await chat.switch(branch)
            assert await whole(same) == expected
            assert await same.turns(limit=2) == expected[-2:]
            await exchange(same, "on")
            assert (await whole(chat))[:-1] == expected

    @pytest.mark.parametrize("what", ["edit", "regenerate", "fork", "siblings"])
    async def test_only_turns_of_the_line_that_is_shown_can_be_named(self, stage: Stage, what: str) -> None:
        chat = await (await stage.process()).chat()
        other = await (await stage.process()).chat()
        replaced = (await chain(chat, 2))[1]
        elsewhere = await exchange(other, "elsewhere")
        await tell(chat.edit(replaced.id, "other"))
        await fail(chat, ScriptedModel([BOOM]))
        [aside] = await chat.attempts()
        before, found = await chat.turns(), await chat.info()
        for id in (replaced.id, elsewhere.id, aside.attempt.id, UNKNOWN):
            with pytest.raises(TurnNotFound):
                await _name(chat, what, id)
        assert await chat.turns() == before
        assert await chat.info() == found
        await exchange(chat, "next", on_busy="reject")

    async def test_what_is_no_turn_id_is_refused_as_such(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        with pytest.raises(InvalidId):
            chat.edit("turn_1", "q")
        with pytest.raises(InvalidId):
            chat.regenerate("turn_1")

    @pytest.mark.parametrize("input", ["  ", []])
    async def test_an_edit_needs_something_new_and_a_refused_one_settles_nothing(
        self, stage: Stage, input: str
    ) -> None:
        chat = await (await stage.process()).chat()
        before = await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        attempts = await chat.attempts()
        with pytest.raises(NoNewInput):
            await tell(chat.edit(before[0].id, input))
        assert await chat.turns() == before
        assert await chat.attempts() == attempts

    async def test_an_edit_closes_the_calls_that_wait_at_its_place(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        asking = await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        told = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        edited = await tell(chat.edit(told.id, "never mind"))
        assert results(edited) == {"c1": NOT_ANSWERED}
        assert edited.parent == asking.id
        again = await tell(chat.edit(edited.id, [answer_to("c1", "two")]))
        assert results(again) == {"c1": "two"}
        await exchange(chat, "next")

    async def test_results_for_calls_that_do_not_wait_at_its_place_are_refused(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        first = await exchange(chat, "q1")
        two = ScriptedModel([Ask("ask", call_id="c1"), Ask("ask", call_id="c2")])
        asking = await soon(chat.run(two, "q2"))
        told = await exchange(chat, "never mind")
        before = await chat.turns()
        with pytest.raises(InvalidInput):
            await tell(chat.edit(first.id, [answer_to("c1", "one")]))
        with pytest.raises(InvalidInput):
            await tell(chat.edit(asking.id, [answer_to("c1", "one"), user("q")]))
        with pytest.raises(MissingToolResults):
            await tell(chat.edit(told.id, [answer_to("c1", "one")]))
        assert await chat.turns() == before
        await exchange(chat, "next", on_busy="reject")

    async def test_an_edit_may_leave_calls_open_for_the_next_turn(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        [first] = await chain(chat, 1)
        await soon(play(chat.edit(first.id, "other"), ScriptedModel([Ask("ask", call_id="c1")])))
        answered = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        assert results(answered) == {"c1": "one"}

    # Regenerating.

    @pytest.mark.parametrize("named", [False, True])
    async def test_regenerating_asks_the_same_again(self, stage: Stage, named: bool) -> None:
        chat = await (await stage.process()).chat()
        first, last = await chain(chat, 2)
        model = ScriptedModel(["Better."])
        turn = await soon(play(chat.regenerate(first.id if named else None), model))
        replaced = first if named else last
        assert turn.input == replaced.input
        assert turn.number == replaced.number
        assert model.seen[0][-1] == user(replaced.input[0].text)
        assert await chat.turns() == ([] if named else [first]) + [turn]

    async def test_results_are_given_again_when_their_turn_is_regenerated(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        two = [Ask("ask", call_id="c1"), Ask("ask", call_id="c2")]
        await soon(chat.run(ScriptedModel(two), "q1"))
        told = await exchange(chat, [answer_to("c1", "one"), answer_to("c2", "two")])  # type: ignore[arg-type]
        again = await tell(chat.regenerate(told.id), "Better.")
        assert again.input == told.input
        moved_on = await tell(chat.edit(again.id, [answer_to("c2", "two"), user("enough")]))
        assert results(moved_on) == {"c1": NOT_ANSWERED, "c2": "two"}
        assert (await tell(chat.regenerate())).input == moved_on.input

    async def test_an_interrupted_turn_is_regenerated_whole(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await stage.hold_lane(chat, "q1", ["Half"])
        await soon(chat.stop())
        assert (await tell(chat.regenerate(), "Whole.")).text == "Whole."
        assert await said(chat) == ["q1", "Whole."]

    async def test_without_a_turn_there_is_nothing_to_regenerate(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        with pytest.raises(TurnNotFound):
            await tell(chat.regenerate())
        await fail(chat, ScriptedModel([Tool("pay"), BOOM]))
        with pytest.raises(TurnNotFound):
            await tell(chat.regenerate())
        assert await chat.turns() == []

    # Settled turns are never left out.

    async def test_a_settled_turn_cannot_be_run_again_and_is_not_replaced_by_an_edit(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "q1")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await exchange(chat, "q2")
        settled = (await chat.turns())[1]
        with pytest.raises(InvalidInput):
            await tell(chat.regenerate(settled.id))
        model = ScriptedModel(["Edited."])
        edited = await soon(play(chat.edit(settled.id, "other"), model))
        assert PAID in model.seen[0]
        assert edited.parent == settled.id
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]

    async def test_a_branch_begins_with_the_settled_turns_that_directly_follow(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "q1")
        for text in ("one", "two"):
            await fail(chat, ScriptedModel([Tool("pay", text), BOOM]))
        last = await exchange(chat, "q2")
        before = await chat.turns()
        edited = await tell(chat.edit(last.id, "other"))
        assert await chat.turns() == [*before[:3], edited]

    @pytest.mark.parametrize("again", [False, True])
    async def test_later_settled_turns_are_carried_over(self, stage: Stage, again: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first = await exchange(chat, "q1")
        await exchange(chat, "q2")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]), "Pay.")
        await exchange(chat, "q3")
        model = ScriptedModel(["Edited."])
        block = chat.regenerate(first.id) if again else chat.edit(first.id, "other")
        await soon(play(block, model))
        assert PAID in model.seen[0]
        turns = await (await there.chat(chat)).turns()
        assert kinds(turns) == ["settled", "completed"]
        assert [turn.number for turn in turns] == [1, 2]
        assert [turn.parent for turn in turns] == [None, turns[0].id]
        await exchange(await there.chat(chat), "next")
        await tell(chat.regenerate(turns[1].id))
        assert kinds(await chat.turns()) == ["settled", "completed"]

    async def test_what_is_carried_closes_the_calls_that_wait_at_the_place(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        told = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c2")]), "q2"))
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([Tool("pay", "paid"), BOOM]), [answer_to("c2", "two")])
        await exchange(chat, "q3")
        with pytest.raises(InvalidInput):
            await tell(chat.regenerate(told.id))
        model = ScriptedModel(["Edited."])
        await soon(play(chat.edit(told.id, "other"), model))
        turns = await chat.turns()
        assert kinds(turns) == ["completed", "settled", "completed"]
        assert results(turns[1]) == {"c1": NOT_ANSWERED, "call_0": "paid"}
        await exchange(chat, "next")

    # Once.

    async def test_an_edit_with_its_key_happens_once(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first, _ = await chain(chat, 2)
        turn = await tell(chat.edit(first.id, "other", idempotency_key="i"))
        for each in (chat, await there.chat(chat)):
            with pytest.raises(TurnReplayed) as replayed:
                await tell(each.edit(first.id, "other", idempotency_key="i"))
            assert replayed.value.turn == turn
        assert await chat.turns() == [turn]

    async def test_a_key_stands_for_one_place(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        first, last = await chain(chat, 2)
        await tell(chat.edit(last.id, "other", idempotency_key="i"))
        await tell(chat.regenerate(idempotency_key="r"))
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
                await tell(block)


def _told(turn: Turn) -> dict[str, str]:
    return {"role": "assistant", "content": turn.text}


async def _name(chat: Chat, what: str, id: TurnId) -> None:
    if what == "edit":
        await tell(chat.edit(id, "q"))
    elif what == "regenerate":
        await tell(chat.regenerate(id))
    elif what == "fork":
        await chat.fork(id)
    else:
        await chat.siblings(id)
