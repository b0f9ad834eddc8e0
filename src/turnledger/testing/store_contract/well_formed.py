"""Well formed: each tool call has its result, per occurrence and in order; what would break it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import MalformedItems, MissingToolResults, NoNewInput
from turnledger.model.item import Item, ItemLike
from turnledger.model.messages.calls import NOT_ANSWERED, NOT_STARTED
from turnledger.model.turn import TurnKind
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    answer_to,
    call,
    exchange,
    said,
    soon,
    user,
)

REASONING = {"type": "reasoning", "summary": []}
IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "https://images.example/1.png"}]}


async def leave_pending(chat: Chat, *call_ids: str) -> None:
    """Run a turn that asks the client for these results."""
    asks = [Ask("ask", call_id=call_id) for call_id in call_ids]
    await soon(chat.run(ScriptedModel(["I ask.", *asks]), "q0"))


def outputs(items: list[Item]) -> list[tuple[str | None, Any]]:
    return [(item.call_id, item.fields["output"]) for item in items if item.is_result]


class WellFormed(Contract):
    @pytest.mark.parametrize(
        "input",
        ["", " \n\t", [], {"role": "assistant", "content": "Hi"}, {"role": "system", "content": "Be kind"}],
    )
    async def test_a_turn_without_new_input_is_refused_and_changes_nothing(
        self, stage: Stage, input: ItemLike
    ) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "q0")
        before, found = await chat.turns(), await chat.info()
        with pytest.raises(NoNewInput):
            await chat.run(ScriptedModel(), input)
        assert await chat.turns() == before
        assert await chat.attempts() == []
        assert await chat.info() == found

    async def test_an_image_alone_is_new_input(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, IMAGE)  # type: ignore[arg-type]
        assert len(await chat.turns()) == 1

    @pytest.mark.parametrize(
        "input",
        [
            ["q", REASONING],
            ["q", call("look", "c1")],
            ["q", answer_to("c1", "r")],
            [answer_to("c1", "r")],
        ],
        ids=["reasoning", "call", "stray result and message", "stray result"],
    )
    async def test_input_that_only_a_model_or_nobody_can_make_is_refused(
        self, stage: Stage, input: list[ItemLike]
    ) -> None:
        chat = await (await stage.process()).chat()
        with pytest.raises(MalformedItems):
            await chat.run(ScriptedModel(), input)
        assert await chat.turns() == []
        assert await chat.attempts() == []

    async def test_results_of_pending_calls_are_input(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await leave_pending(chat, "c1", "c2")
        model = ScriptedModel(["Thanks."])
        await soon((await there.chat(chat)).run(model, [answer_to("c2", "two"), answer_to("c1", "one")]))
        assert outputs(await chat.history()) == [("c2", "two"), ("c1", "one")]
        assert [message["role"] for message in model.seen[0]] == ["user", "assistant", "tool", "tool"]

    async def test_missing_results_are_named_and_nothing_changes(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await leave_pending(chat, "c1", "c2", "c3")
        before = await chat.turns()
        with pytest.raises(MissingToolResults) as refused:
            await chat.run(ScriptedModel(), [answer_to("c2", "two")])
        assert refused.value.missing == ("c1", "c3")
        assert await chat.turns() == before
        assert await chat.attempts() == []

    async def test_a_user_message_closes_the_calls_that_were_not_answered(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await leave_pending(chat, "c1", "c2")
        model = ScriptedModel(["Fine."], ["Yes."])
        turn = await soon((await there.chat(chat)).run(model, ["Never mind.", answer_to("c2", "two")]))
        assert outputs(list(turn.input)) == [("c2", "two"), ("c1", NOT_ANSWERED)]
        assert model.seen[0][-1] == user("Never mind.")
        assert [message["role"] for message in model.seen[0]] == ["user", "assistant", "tool", "tool", "user"]
        await soon(chat.run(model, "Still there?"))

    async def test_a_result_is_not_accepted_twice(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await leave_pending(chat, "c1")
        with pytest.raises(MalformedItems):
            await chat.run(ScriptedModel(), [answer_to("c1", "one"), answer_to("c1", "again")])
        await soon(chat.run(ScriptedModel(["Thanks."]), [answer_to("c1", "one")]))
        with pytest.raises(MalformedItems):
            await chat.run(ScriptedModel(), [answer_to("c1", "again")])
        assert len(await chat.turns()) == 2

    async def test_calls_stay_pending_while_turns_fail(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await leave_pending(chat, "c1")
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([RuntimeError("boom")]), [answer_to("c1", "one")])
        await soon(chat.run(ScriptedModel(["Thanks."]), [answer_to("c1", "one")]))
        assert outputs(await chat.history()) == [("c1", "one")]

    async def test_call_ids_may_repeat_and_are_paired_per_occurrence(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        tools = [Tool("look", "one", call_id="c"), Tool("look", "two", call_id="c")]
        await soon(chat.run(ScriptedModel([*tools, Ask("ask", call_id="c")]), "q0"))
        model = ScriptedModel([Tool("look", "four", call_id="c"), "Done."], ["Yes."])
        await soon(chat.run(model, [answer_to("c", "three")]))
        await soon(chat.run(model, "q1"))
        assert [output for _, output in outputs(await chat.history())] == ["one", "two", "three", "four"]
        contents = [message["content"] for message in model.seen[1] if message["role"] == "tool"]
        assert contents == ["one", "two", "three", "four"]

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
    async def test_output_that_breaks_the_pairing_is_refused_when_it_is_added(
        self, stage: Stage, items: list[ItemLike]
    ) -> None:
        chat = await (await stage.process()).chat()
        async with chat.turn("q") as turn:
            with pytest.raises(MalformedItems):
                await turn.add(*items)
            assert turn.steps == ()
            turn.emit("Fine.")
        assert await said(chat) == ["q", "Fine."]

    async def test_a_started_call_without_a_result_cannot_be_committed(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()

        async def runner(turn: RunningTurn) -> None:
            await turn.add(pay := call("pay", "c1"))
            await turn.start(pay)

        with pytest.raises(MalformedItems, match="started"):
            await chat.run(runner, "q")
        assert await chat.turns() == []

    async def test_reasoning_stays_with_the_item_it_led_to(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await soon(chat.run(ScriptedModel([Think(), Tool("look"), Think(), "Done."]), "q"))
        async with chat.turn("q1") as turn:
            assert [item.type for item in turn.items] == [
                "message",
                "reasoning",
                "function_call",
                "function_call_output",
                "reasoning",
                "message",
                "message",
            ]
            turn.emit("Yes.")

    async def test_a_draft_that_ends_in_reasoning_can_still_be_looked_at(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        async with chat.turn("q") as turn:
            await turn.add(REASONING)
            assert turn.messages == [user("q")]
            turn.emit("Done.")

    async def test_an_interrupted_turn_is_kept_without_stranded_reasoning(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await stage.hold_lane(chat, "q0", [Tool("look"), Think()])
        await soon(chat.stop())
        [turn] = await chat.turns()
        assert [item.type for item in turn.items] == ["message", "function_call", "function_call_output"]
        await exchange(chat, "q1")

    async def test_an_interrupted_turn_leaves_no_call_open(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await stage.hold_lane(chat, "q0", [Think(), Ask("ask", call_id="c1")])
        await soon(chat.stop())
        [turn] = await chat.turns()
        assert turn.kind is TurnKind.INTERRUPTED
        assert outputs(list(turn.items)) == [("c1", NOT_STARTED)]
        with pytest.raises(MalformedItems):
            await chat.run(ScriptedModel(), [answer_to("c1", "late")])
        await exchange(chat, "q1")

    async def test_text_between_calls_stays_in_its_place(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turn = await soon(
            chat.run(ScriptedModel(["One. ", Tool("look"), "Two. ", Tool("look"), "Three."]), "q")
        )
        kinds = [item.text or item.type for item in turn.output]
        expected = ["One. ", "function_call", "function_call_output", "Two. ", "function_call"]
        assert kinds == [*expected, "function_call_output", "Three."]
