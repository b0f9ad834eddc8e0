"""The scripted model plays its scripts, and goes on where an earlier attempt broke off."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnledger import Chat, Ledger, Turn
from turnledger.errors import TurnFailed
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool

BOOM = RuntimeError("the model broke")

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    async with await Ledger.open("memory:") as ledger:
        yield await ledger.conversation()


def told(turn: Turn) -> list[str]:
    return [item.text or item.type for item in turn.output]


async def test_texts_are_chunks_of_one_message(chat: Chat) -> None:
    events: list[str] = []
    model = ScriptedModel(["Hel", "lo"])
    turn = await chat.run(model, "Hi", on_event=lambda event: events.append(getattr(event, "text", "-")))
    assert told(turn) == ["Hello"]
    assert events == ["-", "Hel", "lo", "-", "-"]


async def test_each_run_has_its_script_and_what_it_saw_is_recorded(chat: Chat) -> None:
    model = ScriptedModel(["One."], ["Two."])
    await chat.run(model, "a")
    await chat.run(model, "b")
    assert model.seen[0] == [{"role": "user", "content": "a"}]
    assert [message["content"] for message in model.seen[1]] == ["a", "One.", "b"]
    with pytest.raises(AssertionError, match="more often than it has scripts"):
        await chat.run(model, "c")


async def test_items_are_added_in_their_place(chat: Chat) -> None:
    model = ScriptedModel([Think("hm"), "I look.", Tool("look", "found", {"at": 1}), Ask("which")])
    turn = await chat.run(model, "Hi")
    assert told(turn) == ["reasoning", "I look.", "function_call", "function_call_output", "function_call"]
    assert turn.output[2].fields["arguments"] == '{"at": 1}'
    assert turn.output[3].fields["output"] == "found"
    assert [item.call_id for item in turn.output if item.is_call] == ["call_0", "call_1"]
    assert model.executed == {"look": 1}


async def test_an_error_is_raised_where_it_stands(chat: Chat) -> None:
    with pytest.raises(RuntimeError):
        await chat.run(ScriptedModel(["Hel", BOOM, "lo"]), "Hi")
    assert (await chat.attempts())[0].attempt.partial == "Hel"


async def test_a_tool_that_raises_has_acted(chat: Chat) -> None:
    model = ScriptedModel([Tool("pay", error=BOOM)])
    with pytest.raises(RuntimeError):
        await chat.run(model, "Hi")
    assert model.executed == {"pay": 1}


@pytest.mark.parametrize("inside_a_tool", [False, True])
async def test_a_gate_holds_the_run_until_it_is_released(chat: Chat, inside_a_tool: bool) -> None:
    gate = Gate()
    model = ScriptedModel([Tool("wait", gate=gate) if inside_a_tool else gate, "Done."])
    task = asyncio.create_task(chat.run(model, "Hi"))
    await gate.arrived()
    assert not task.done()
    gate.release()
    assert (await task).text == "Done."


async def test_a_gate_that_is_never_released_hangs_until_cancelled(chat: Chat) -> None:
    gate = Gate()
    task = asyncio.create_task(chat.run(ScriptedModel([gate]), "Hi"))
    await gate.arrived()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_resumed_turn_goes_on_behind_its_finished_steps(chat: Chat) -> None:
    gate = Gate()
    gate.release()
    whole = [Think(), "I look.", Tool("look"), gate, "I pay.", Tool("pay"), "Done."]
    model = ScriptedModel([*whole[:3], BOOM], [*whole[:6], BOOM], [*whole[:3], BOOM, *whole[4:]])
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await chat.run(model, "Hi", idempotency_key="i")
    turn = await chat.run(model, "Hi", idempotency_key="i")
    assert model.executed == {"look": 1, "pay": 1}
    expected = ["reasoning", "I look.", "function_call", "function_call_output"]
    assert told(turn) == [*expected, "I pay.", "function_call", "function_call_output", "Done."]


async def test_of_a_resumed_turn_only_open_calls_of_its_own_tools_are_run(chat: Chat) -> None:
    script = [Ask("which"), Tool("pay", "paid"), "Done."]
    model = ScriptedModel([script[0], BOOM], script)
    with pytest.raises(RuntimeError):
        await chat.run(model, "Hi", idempotency_key="i")
    turn = await chat.run(model, "Hi", idempotency_key="i")
    assert [item.call_id for item in turn.output if item.is_result] == ["call_1"]
    assert model.executed == {"pay": 1}


async def test_a_model_without_a_script_is_one_that_must_not_run(chat: Chat) -> None:
    gate, never = Gate(), ScriptedModel()
    running = asyncio.create_task(chat.run(ScriptedModel([gate, BOOM]), "Hi", idempotency_key="i"))
    await gate.arrived()
    attached = asyncio.create_task(chat.run(never, "Hi", idempotency_key="i"))
    await asyncio.sleep(0)
    gate.release()
    with pytest.raises(TurnFailed):
        await attached
    with pytest.raises(RuntimeError):
        await running
    assert never.seen == []
