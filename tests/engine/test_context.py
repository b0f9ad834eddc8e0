"""Context and instructions of a turn; input and output that are not well formed are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.views import leave_pending, outputs
from turnledger.chat import Chat
from turnledger.engine.history.context import Context
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import MalformedItems, MissingToolResults, NoNewInput
from turnledger.model.item import NOT_ANSWERED, NOT_STARTED, Item, ItemLike
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.power_loss import run_and_read_instructions
from turnledger.testing.store_contract.stage import (
    Stage,
    StageProcess,
    answer_to,
    call,
    exchange,
    message_texts,
    soon,
    user,
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


class TestContext:
    @pytest.mark.parametrize("is_cached", [True, False])
    async def test_limited_context_of_an_edit_shows_the_last_turns_before_its_place(
        self, there: StageProcess, chat: Chat, is_cached: bool
    ) -> None:
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
    async def test_context_of_an_edit_shows_the_settled_turn_that_it_carries_over(
        self, chat: Chat, same: Chat, context: Context
    ) -> None:
        await exchanges(chat, 3)
        first = (await chat.turns())[1]
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(ScriptedModel([Tool("pay"), ValueError("broken")]), "q4"))
        async with same.edit(first.id, "q", context=context) as turn:
            seen = [item.text or item.type for item in turn.items]
            assert seen[:5] == ["q1", "a1", "q4", "function_call", "function_call_output"]
            assert (seen[-1], turn.number) == ("q", 3)
            turn.emit("a")
        assert [each.number for each in await chat.turns()] == [1, 2, 3]

    async def test_primer_precedes_the_history_for_one_turn(self, chat: Chat) -> None:
        await exchange(chat, "q", "a", instructions="Be brief.")
        primes = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}]
        assert await shown(chat, primer=primes) == ["Be brief.", "p", "r", "q", "a"]
        assert await shown(chat) == ["Be brief.", "q", "a", "next", "ok"]
        assert [item.text for item in await chat.history()][:4] == ["q", "a", "next", "ok"]


async def _edited(chat: Chat, place: Turn, instructions: str | None) -> str | None:
    """Put a turn in the place of another; return the instructions that it is under."""
    async with chat.edit(place.id, "edited", instructions=instructions) as turn:
        turn.emit("a")
    return turn.instructions[0].text if turn.instructions else None


class TestInstructions:
    async def test_instructions_stay_in_force_until_replaced_in_every_process(
        self, chat: Chat, same: Chat
    ) -> None:
        assert await run_and_read_instructions(chat) is None
        assert await run_and_read_instructions(chat, instructions="Be brief.") == "Be brief."
        assert await run_and_read_instructions(same) == "Be brief."
        assert await run_and_read_instructions(same, instructions="Be kind.") == "Be kind."
        assert await run_and_read_instructions(chat) == "Be kind."
        assert await run_and_read_instructions(chat, instructions="") is None
        assert await run_and_read_instructions(same) is None

    async def test_instructions_for_one_turn_leave_the_lasting_ones_in_force(
        self, chat: Chat, same: Chat
    ) -> None:
        assert await run_and_read_instructions(chat, instructions_once="Sing.") == "Sing."
        assert await run_and_read_instructions(same) is None
        await run_and_read_instructions(chat, instructions="Be brief.")
        assert await run_and_read_instructions(same, instructions_once="Sing.") == "Sing."
        assert await run_and_read_instructions(same, instructions_once="") is None
        assert await run_and_read_instructions(chat) == "Be brief."

    async def test_instructions_are_recorded_with_the_turn_and_not_among_its_items(self, chat: Chat) -> None:
        developer = {"role": "developer", "content": "Be brief."}
        await run_and_read_instructions(chat, "q1")
        await run_and_read_instructions(chat, "q2", instructions=[developer])
        await run_and_read_instructions(chat, "q3", instructions_once="Sing.")
        await run_and_read_instructions(chat, "q4", instructions=())
        assert await message_texts(chat) == ["q1", "a", "q2", "a", "q3", "a", "q4", "a"]
        turns = await chat.turns()
        recorded = [each.instructions and messages_of(each.instructions) for each in turns]
        assert recorded == [None, [developer], [{"role": "system", "content": "Sing."}], ()]
        assert [each.instructed for each in turns] == [0, 2, 2, 0]

    async def test_instructions_in_force_can_be_read_from_another_process(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        assert await chat.instructions() == ()
        await exchange(chat, "q", instructions="Be brief.")
        [item] = await same.instructions()
        assert (item.role, item.text) == ("system", "Be brief.")

    async def test_instructions_of_a_failed_turn_do_not_come_into_force(self, chat: Chat) -> None:
        await run_and_read_instructions(chat, instructions="Be brief.")
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(ScriptedModel([ValueError("broken")]), "q", instructions="Be kind."))
        assert await run_and_read_instructions(chat) == "Be brief."

    async def test_instructions_of_a_kept_turn_of_a_dead_process_stay_in_force(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        await stage.hold_lane(chat, instructions="Be kind.", on_failure="keep")
        await stage.bury_others(there)
        assert [each.instructed for each in await same.turns()] == [1]
        assert await run_and_read_instructions(same) == "Be kind."

    async def test_instructions_of_a_settled_turn_stay_in_force_for_the_next(self, chat: Chat) -> None:
        await run_and_read_instructions(chat, instructions="Be brief.")
        model = ScriptedModel([Tool("pay"), ValueError("broken")])
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(model, "q", instructions="Be kind."))
        assert await run_and_read_instructions(chat, "q1") == "Be kind."
        assert [each.instructed for each in await chat.turns()] == [1, 2, 2]

    async def test_instructions_of_a_resumed_retry_are_those_of_the_first_attempt(self, chat: Chat) -> None:
        model = ScriptedModel([Tool("pay"), ValueError("broken")], [Tool("pay"), "Paid."])
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(model, "q", instructions_once="Be kind.", idempotency_key="i"))
        turn = await soon(chat.run(model, "q", instructions_once="Be kind.", idempotency_key="i"))
        assert model.seen[1][0] == {"role": "system", "content": "Be kind."}
        assert [item.text for item in turn.instructions or ()] == ["Be kind."]
        assert await chat.instructions() == ()

    async def test_instructions_of_a_replaced_turn_apply_to_the_turn_that_replaces_it(
        self, chat: Chat, same: Chat
    ) -> None:
        await run_and_read_instructions(chat, "q1", instructions="One.")
        await run_and_read_instructions(chat, "q2", instructions="Two.")
        await run_and_read_instructions(chat, "q3", instructions_once="Three.")
        first, second, third = await chat.turns()
        assert await _edited(same, third, None) == "Three."
        assert await run_and_read_instructions(same) == "Two."
        assert await _edited(same, second, "Other.") == "Other."
        assert await run_and_read_instructions(chat) == "Other."
        assert await _edited(chat, first, None) == "One."
        assert await run_and_read_instructions(same) == "One."

    async def test_instructions_of_a_fork_or_undo_are_those_of_its_last_turn(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        for number, text in enumerate(("One.", None, "Two."), 1):
            await run_and_read_instructions(chat, f"q{number}", instructions=text)
        turns = await chat.turns()
        forked = await same.fork(turns[1].id)
        assert await run_and_read_instructions(forked) == "One."
        await chat.undo()
        assert await run_and_read_instructions(chat) == "One."
        assert [item.text for item in await chat.instructions()] == ["One."]

    async def test_instructions_of_an_edit_are_those_in_force_before_its_place(self, chat: Chat) -> None:
        for number, text in enumerate(("One.", None, "Two."), 1):
            await run_and_read_instructions(chat, f"q{number}", instructions=text)
        assert await _edited(chat, (await chat.turns())[1], None) == "One."
        assert [each.instructed for each in await chat.turns()] == [1, 1]
        assert await run_and_read_instructions(chat) == "One."

    async def test_instructions_in_force_are_unchanged_by_the_settled_turn_of_a_failed_edit(
        self, chat: Chat
    ) -> None:
        await run_and_read_instructions(chat, "q1", instructions="One.")
        await run_and_read_instructions(chat, "q2", instructions="Two.")
        first = (await chat.turns())[0]
        with pytest.raises(ValueError, match="broken"):
            async with chat.edit(first.id, "q") as turn:
                await ScriptedModel([Tool("pay"), ValueError("broken")])(turn)
        assert await run_and_read_instructions(chat) == "Two."
        assert [each.instructed for each in await chat.turns()] == [1, 2, 2, 2]
        assert await _edited(chat, first, None) == "One."
        carried = (await chat.turns())[0]
        assert (carried.kind, carried.instructions, carried.instructed) == (TurnKind.SETTLED, None, 0)


REASONING = {"type": "reasoning", "summary": []}
IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "https://images.example/1.png"}]}


class TestWellFormed:
    @pytest.mark.parametrize(
        "input",
        ["", " \n\t", [], {"role": "assistant", "content": "Hi"}, {"role": "system", "content": "Be kind"}],
    )
    async def test_turn_without_new_input_is_refused_and_changes_nothing(
        self, chat: Chat, input: ItemLike
    ) -> None:
        await exchange(chat, "q0")
        before, found = await chat.turns(), await chat.info()
        with pytest.raises(NoNewInput):
            await chat.run(ScriptedModel(), input)
        assert await chat.turns() == before
        assert await chat.attempts() == []
        assert await chat.info() == found

    async def test_image_alone_is_accepted_as_new_input(self, chat: Chat) -> None:
        await exchange(chat, IMAGE)  # type: ignore[arg-type]
        assert len(await chat.turns()) == 1

    @pytest.mark.parametrize(
        "input",
        [["q", REASONING], ["q", call("look", "c1")], ["q", answer_to("c1", "r")], [answer_to("c1", "r")]],
        ids=["reasoning", "call", "stray result and message", "stray result"],
    )
    async def test_input_with_reasoning_calls_or_stray_results_is_refused(
        self, chat: Chat, input: list[ItemLike]
    ) -> None:
        with pytest.raises(MalformedItems):
            await chat.run(ScriptedModel(), input)
        assert await chat.turns() == []
        assert await chat.attempts() == []

    async def test_user_message_closes_unanswered_calls(self, there: StageProcess, chat: Chat) -> None:
        await leave_pending(chat, "c1", "c2")
        model = ScriptedModel(["Fine."], ["Yes."])
        turn = await soon((await there.chat(chat)).run(model, ["Never mind.", answer_to("c2", "two")]))
        assert outputs(list(turn.input)) == [("c2", "two"), ("c1", NOT_ANSWERED)]
        assert model.seen[0][-1] == user("Never mind.")
        assert [message["role"] for message in model.seen[0]] == ["user", "assistant", "tool", "tool", "user"]
        await soon(chat.run(model, "Still there?"))

    async def test_second_result_of_a_call_is_refused(self, chat: Chat) -> None:
        await leave_pending(chat, "c1")
        with pytest.raises(MalformedItems):
            await chat.run(ScriptedModel(), [answer_to("c1", "one"), answer_to("c1", "again")])
        await soon(chat.run(ScriptedModel(["Thanks."]), [answer_to("c1", "one")]))
        with pytest.raises(MalformedItems):
            await chat.run(ScriptedModel(), [answer_to("c1", "again")])
        assert len(await chat.turns()) == 2

    @pytest.mark.parametrize(
        "items",
        [
            [answer_to("c1", "r")],
            [call("look", "c1"), call("look", "c1")],
            [call("look", "c1"), answer_to("c2", "r")],
            [call("look", "c1"), {"type": "custom_tool_call_output", "call_id": "c1", "output": "r"}],
            [call("look", "c1"), REASONING, answer_to("c1", "r")],
            [REASONING, "not the model"],
        ],
        ids=["stray", "reused id", "other id", "other kind", "reasoning, result", "reasoning, user message"],
    )
    async def test_output_that_breaks_the_pairing_is_refused_when_added(
        self, chat: Chat, items: list[ItemLike]
    ) -> None:
        async with chat.turn("q") as turn:
            with pytest.raises(MalformedItems):
                await turn.add(*items)
            assert turn.steps == ()
            turn.emit("Fine.")
        assert await message_texts(chat) == ["q", "Fine."]

    async def test_commit_of_a_started_call_without_a_result_is_refused(self, chat: Chat) -> None:

        async def runner(turn: RunningTurn) -> None:
            await turn.add(pay := call("pay", "c1"))
            await turn.start(pay)

        with pytest.raises(MalformedItems, match="started"):
            await chat.run(runner, "q")
        assert await chat.turns() == []

    async def test_messages_of_a_running_turn_that_ends_in_reasoning_can_be_read(self, chat: Chat) -> None:
        async with chat.turn("q") as turn:
            await turn.add(REASONING)
            assert turn.messages == [user("q")]
            turn.emit("Done.")

    async def test_interrupted_turn_closes_its_open_calls(self, stage: Stage, chat: Chat) -> None:
        await stage.hold_lane(chat, "q0", [Think(), Ask("ask", call_id="c1")])
        await soon(chat.stop())
        [turn] = await chat.turns()
        assert turn.kind is TurnKind.INTERRUPTED
        assert outputs(list(turn.items)) == [("c1", NOT_STARTED)]
        with pytest.raises(MalformedItems):
            await chat.run(ScriptedModel(), [answer_to("c1", "late")])
        await exchange(chat, "q1")

    async def test_text_between_calls_keeps_its_position(self, chat: Chat) -> None:
        turn = await soon(
            chat.run(ScriptedModel(["One. ", Tool("look"), "Two. ", Tool("look"), "Three."]), "q")
        )
        kinds = [item.text or item.type for item in turn.output]
        expected = ["One. ", "function_call", "function_call_output", "Two. ", "function_call"]
        assert kinds == [*expected, "function_call_output", "Three."]

    async def test_results_of_pending_calls_are_accepted_as_input(self, chat: Chat, same: Chat) -> None:
        await leave_pending(chat, "c1", "c2")
        model = ScriptedModel(["Thanks."])
        await soon(same.run(model, [answer_to("c2", "two"), answer_to("c1", "one")]))
        assert outputs(await chat.history()) == [("c2", "two"), ("c1", "one")]
        assert [message["role"] for message in model.seen[0]] == ["user", "assistant", "tool", "tool"]

    async def test_missing_tool_results_are_named_and_the_turn_is_refused(self, chat: Chat) -> None:
        await leave_pending(chat, "c1", "c2", "c3")
        before = await chat.turns()
        with pytest.raises(MissingToolResults) as refused:
            await chat.run(ScriptedModel(), [answer_to("c2", "two")])
        assert refused.value.missing == ("c1", "c3")
        assert await chat.turns() == before
        assert await chat.attempts() == []

    async def test_pending_calls_stay_pending_after_a_failed_turn(self, chat: Chat) -> None:
        await leave_pending(chat, "c1")
        await fail(chat, ScriptedModel([RuntimeError("boom")]), [answer_to("c1", "one")])
        await soon(chat.run(ScriptedModel(["Thanks."]), [answer_to("c1", "one")]))
        assert outputs(await chat.history()) == [("c1", "one")]

    async def test_repeated_call_ids_are_paired_with_results_per_occurrence(self, chat: Chat) -> None:
        tools = [Tool("look", "one", call_id="c"), Tool("look", "two", call_id="c")]
        await soon(chat.run(ScriptedModel([*tools, Ask("ask", call_id="c")]), "q0"))
        model = ScriptedModel([Tool("look", "four", call_id="c"), "Done."], ["Yes."])
        await soon(chat.run(model, [answer_to("c", "three")]))
        await soon(chat.run(model, "q1"))
        assert [output for _, output in outputs(await chat.history())] == ["one", "two", "three", "four"]
        contents = [message["content"] for message in model.seen[1] if message["role"] == "tool"]
        assert contents == ["one", "two", "three", "four"]
