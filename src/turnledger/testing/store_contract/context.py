"""Context: what a model is shown of a history, chosen per turn and well formed. The rest is not read."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.history.context import Context
from turnledger.engine.history.history import read_turns
from turnledger.errors import MalformedItems
from turnledger.model.item import Item, ItemLike
from turnledger.model.messages.calls import open_calls
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Think, Tool
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    StageProcess,
    answer_to,
    call,
    exchange,
    soon,
)


async def shown(chat: Chat, input: Any = "next", **options: Any) -> list[str]:
    """Run a turn; return what its model saw, without the input, in short."""
    seen: list[Item] = []

    async def look(turn: Any) -> None:
        seen.extend(turn.items)
        assert turn.number == (await chat.turns(limit=1))[-1].number + 1
        turn.emit("ok")

    ran = await soon(chat.run(look, input, **options))
    assert tuple(seen[-len(ran.input) :]) == ran.input
    return [item.text or item.type for item in seen[: -len(ran.input)]]


async def exchanges(chat: Chat, count: int) -> None:
    for number in range(1, count + 1):
        await exchange(chat, f"q{number}", f"a{number}")


def per_message(item: Item) -> int:
    return 1


def turns_read(process: StageProcess) -> int:
    return process.store.trips.count(read_turns.__name__)


class ContextShown(Contract):
    async def test_all_is_shown_by_default(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchanges(chat, 2)
        assert await shown(chat) == ["q1", "a1", "q2", "a2"]
        assert await shown(chat, context=Context.all()) == ["q1", "a1", "q2", "a2", "next", "ok"]

    @pytest.mark.parametrize("is_cached", [True, False])
    async def test_the_last_turns_are_shown(self, stage: Stage, is_cached: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchanges(chat, 4)
        same = chat if is_cached else await there.chat(chat)
        assert await shown(same, context=Context.last(2)) == ["q3", "a3", "q4", "a4"]
        assert await shown(same, context=Context.last(0)) == []
        assert await shown(same, context=Context.last(9)) == [
            *(text for number in range(1, 5) for text in (f"q{number}", f"a{number}")),
            *("next", "ok") * 2,
        ]

    @pytest.mark.parametrize("is_cached", [True, False])
    async def test_as_much_is_shown_as_fits_into_the_budget(self, stage: Stage, is_cached: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchanges(chat, 40)
        same = chat if is_cached else await there.chat(chat)
        assert await shown(same, context=Context.budget(6, per_message)) == ["q39", "a39", "q40", "a40"]
        assert await shown(same, context=Context.budget(0, per_message)) == []
        assert len(await shown(same, context=Context.budget(72, per_message))) == 70
        assert len(await shown(same, context=Context.budget(10_000))) == 2 * 43

    async def test_a_part_that_was_loaded_does_not_pass_for_the_whole(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchanges(chat, 3)
        same = await there.chat(chat)
        assert await shown(same, "q4", context=Context.last(1)) == ["q3", "a3"]
        assert (await shown(same, "q5"))[:2] == ["q1", "a1"]
        assert len(await shown(same, "q6")) == 10

    async def test_turns_that_are_not_shown_are_not_read(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchanges(chat, 3)
        same = await there.chat(chat)
        async with same.turn("q4", context=Context.last(1)) as turn:
            # One more, since the calls that a turn answers are in the turn before.
            assert [each.number for each in turn.history] == [2, 3]
            assert turn.number == 4
            turn.emit("a4")
        assert turns_read(there) == 1

    async def test_a_turn_and_the_one_whose_calls_it_answers_are_shown_together(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchanges(chat, 1)
        await soon(chat.run(ScriptedModel([Think(), Ask("look", call_id="c")]), "q2"))
        await soon(chat.run(ScriptedModel(["a2"]), answer_to("c", "found")))
        pair = ["q2", "reasoning", "function_call", "function_call_output", "a2"]
        assert await shown(await there.chat(chat), context=Context.last(1)) == pair
        assert await shown(chat, context=Context.last(2)) == [*pair, "next", "ok"]

    async def test_a_result_whose_call_does_not_fit_is_left_out(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await soon(chat.run(ScriptedModel([Think(), Ask("look", call_id="c")]), "q2"))
        await soon(chat.run(ScriptedModel(["a2"]), answer_to("c", "found")))
        assert await shown(await there.chat(chat), context=Context.budget(3, per_message)) == ["a2"]

    @pytest.mark.parametrize("context", [Context.last(0), Context.budget(0)])
    async def test_the_calls_that_the_input_answers_are_always_shown(
        self, stage: Stage, context: Context
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchanges(chat, 1)
        await soon(chat.run(ScriptedModel([Ask("look", call_id="c")]), "q2"))
        same = await there.chat(chat)
        assert await shown(same, [answer_to("c", "found")], context=context) == ["q2", "function_call"]

    @pytest.mark.parametrize("is_cached", [True, False])
    async def test_an_edit_is_shown_the_end_of_what_is_before_it(self, stage: Stage, is_cached: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchanges(chat, 20)
        turns = await chat.turns()
        same = chat if is_cached else await there.chat(chat)
        for context in (Context.last(1), Context.budget(4, per_message)):
            async with same.edit(turns[18].id, "q", context=context) as turn:
                assert [item.text for item in turn.items] == ["q18", "a18", "q"]
                assert turn.number == 19
                turn.stop("discard")
        async with same.edit(turns[2].id, "q", context=Context.last(1)) as turn:
            turn.emit("a")
        assert await shown(same, context=Context.last(2)) == ["q2", "a2", "q", "a"]
        whole = ["q1", "a1", "q2", "a2", "q", "a", "next", "ok"]
        assert await shown(chat, context=Context.budget(999)) == whole

    @pytest.mark.parametrize("context", [Context.all(), Context.last(2), Context.budget(99, per_message)])
    async def test_what_an_edit_carries_over_is_shown(self, stage: Stage, context: Context) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchanges(chat, 3)
        first = (await chat.turns())[1]
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(ScriptedModel([Tool("pay"), ValueError("broken")]), "q4"))
        same = await there.chat(chat)
        async with same.edit(first.id, "q", context=context) as turn:
            seen = [item.text or item.type for item in turn.items]
            assert seen[:5] == ["q1", "a1", "q4", "function_call", "function_call_output"]
            assert (seen[-1], turn.number) == ("q", 3)
            turn.emit("a")
        assert [each.number for each in await chat.turns()] == [1, 2, 3]

    async def test_steps_are_shown_as_they_come_and_take_their_part_of_the_budget(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchanges(chat, 2)
        async with chat.turn("q3", context=Context.budget(5, per_message)) as turn:
            assert [item.text for item in turn.items] == ["q1", "a1", "q2", "a2", "q3"]
            await turn.add(call("look", "c"))
            await turn.add(answer_to("c", "found"))
            assert [item.text for item in turn.items] == ["q2", "a2", "q3", "", ""]
            turn.emit("a3")

    async def test_instructions_are_always_shown(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "q", "a", instructions="Be brief.")
        await exchanges(chat, 3)
        same = await there.chat(chat)
        assert await shown(same, context=Context.last(1)) == ["Be brief.", "q3", "a3"]
        assert await shown(same, context=Context.budget(0)) == ["Be brief."]

    async def test_hidden_items_take_nothing_of_the_budget(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first = await exchange(chat, "first", "one")
        for turn in [await exchange(chat, f"q{number}") for number in range(20)]:
            await chat.flag(turn.id, to_model=False)
        same = await there.chat(chat)
        assert await shown(same, context=Context.budget(3, per_message)) == ["first", "one"]
        assert await shown(chat, context=Context.last(2)) == ["next", "ok"]
        assert (await chat.turns(limit=30))[0] == first

    async def test_priming_stands_before_the_history_for_one_turn(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "q", "a", instructions="Be brief.")
        primes = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}]
        assert await shown(chat, priming=primes) == ["Be brief.", "p", "r", "q", "a"]
        assert await shown(chat) == ["Be brief.", "q", "a", "next", "ok"]
        assert [item.text for item in await chat.history()][:4] == ["q", "a", "next", "ok"]

    async def test_priming_that_is_not_well_formed_is_refused_before_anything_begins(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        reasoning = {"type": "reasoning", "summary": []}
        broken: list[list[ItemLike]] = [
            [call("look", "c")],
            [answer_to("c", "found")],
            [reasoning],
            ["q", reasoning],
        ]
        for primes in broken:
            with pytest.raises(MalformedItems):
                chat.turn("q", priming=primes)
        assert await chat.attempts() == []

    async def test_what_is_shown_is_well_formed_whatever_is_cut_and_hidden(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        script: list[Step] = [Think(), Tool("look", call_id="s"), "text", Think(), Ask("pay", call_id="c")]
        inputs: list[Any] = ["q", *[[answer_to("c", "paid")]] * 4]
        for input in inputs:
            await soon(chat.run(ScriptedModel(script), input))
        turns = await chat.turns()
        for place in range(len(turns[2].items)):
            await chat.flag(turns[2].id, place, to_model=False)
            for context in (Context.all(), Context.last(1), Context.last(2), Context.budget(200)):
                async with same.turn(answer_to("c", "paid"), context=context) as turn:
                    assert len(open_calls(turn.items)) == 0
                    turn.stop("discard")
            await chat.flag(turns[2].id, place, to_model=True)
