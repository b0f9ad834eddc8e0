"""Well formed: the history pairs each tool call with its result, per occurrence and in order."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.errors import MissingToolResults
from turnledger.model.item import Item
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    answer_to,
    soon,
)


async def leave_pending(chat: Chat, *call_ids: str) -> None:
    """Run a turn that asks the client for these results."""
    asks = [Ask("ask", call_id=call_id) for call_id in call_ids]
    await soon(chat.run(ScriptedModel(["I ask.", *asks]), "q0"))


def outputs(items: list[Item]) -> list[tuple[str | None, Any]]:
    return [(item.call_id, item.fields["output"]) for item in items if item.is_result]


class WellFormed(Contract):
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
