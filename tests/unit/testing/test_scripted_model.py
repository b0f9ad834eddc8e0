"""The scripted model and the scripted upstream follow their scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from turnledger import Chat, Ledger, Turn
from turnledger.errors import TurnFailed
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool
from turnledger.testing.upstream import CUT, Call, Data, End, Head, Refusal, ScriptedUpstream, Status, Step

BOOM = RuntimeError("the model broke")


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    async with await Ledger.open("memory:") as ledger:
        yield await ledger.conversation()


def outputs(turn: Turn) -> list[str]:
    return [item.text or item.type for item in turn.output]


async def test_scripted_model_emits_texts_as_chunks_of_one_message(chat: Chat) -> None:
    events: list[str] = []
    model = ScriptedModel(["Hel", "lo"])
    turn = await chat.run(model, "Hi", on_event=lambda event: events.append(getattr(event, "text", "-")))
    assert outputs(turn) == ["Hello"]
    assert events == ["-", "Hel", "lo", "-", "-"]


async def test_scripted_model_uses_one_script_per_run_and_records_the_messages(chat: Chat) -> None:
    model = ScriptedModel(["One."], ["Two."])
    await chat.run(model, "a")
    await chat.run(model, "b")
    assert model.seen[0] == [{"role": "user", "content": "a"}]
    assert [message["content"] for message in model.seen[1]] == ["a", "One.", "b"]
    with pytest.raises(AssertionError, match="more often than it has scripts"):
        await chat.run(model, "c")


async def test_scripted_model_adds_items_in_the_order_of_the_script(chat: Chat) -> None:
    model = ScriptedModel([Think("hm"), "I look.", Tool("look", "found", {"at": 1}), Ask("which")])
    turn = await chat.run(model, "Hi")
    assert outputs(turn) == ["reasoning", "I look.", "function_call", "function_call_output", "function_call"]
    assert turn.output[2].fields["arguments"] == '{"at": 1}'
    assert turn.output[3].fields["output"] == "found"
    assert [item.call_id for item in turn.output if item.is_call] == ["call_0", "call_1"]
    assert model.executed == {"look": 1}


async def test_scripted_model_raises_an_error_at_its_place_in_the_script(chat: Chat) -> None:
    with pytest.raises(RuntimeError):
        await chat.run(ScriptedModel(["Hel", BOOM, "lo"]), "Hi")
    assert (await chat.attempts())[0].attempt.partial == "Hel"


async def test_scripted_model_counts_a_tool_that_raises_as_executed(chat: Chat) -> None:
    model = ScriptedModel([Tool("pay", error=BOOM)])
    with pytest.raises(RuntimeError):
        await chat.run(model, "Hi")
    assert model.executed == {"pay": 1}


@pytest.mark.parametrize("step", [BOOM, Tool("pay", error=BOOM)])
async def test_scripted_model_that_raises_an_error_again_drops_its_former_traceback(
    chat: Chat, step: Exception | Tool
) -> None:
    model = ScriptedModel([step], [step])
    depths = []
    for _ in range(2):
        with pytest.raises(RuntimeError) as raised:
            await chat.run(model, "Hi")
        depths.append(len(raised.traceback))
    assert depths[0] == depths[1]


@pytest.mark.parametrize("inside_a_tool", [False, True])
async def test_scripted_model_gate_holds_the_run_until_released(chat: Chat, inside_a_tool: bool) -> None:
    gate = Gate()
    model = ScriptedModel([Tool("wait", gate=gate) if inside_a_tool else gate, "Done."])
    task = asyncio.create_task(chat.run(model, "Hi"))
    await gate.arrived()
    assert not task.done()
    gate.release()
    assert (await task).text == "Done."


async def test_scripted_model_gate_never_released_holds_the_run_until_cancelled(chat: Chat) -> None:
    gate = Gate()
    task = asyncio.create_task(chat.run(ScriptedModel([gate]), "Hi"))
    await gate.arrived()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_scripted_model_in_a_resumed_turn_continues_behind_the_finished_steps(chat: Chat) -> None:
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
    assert outputs(turn) == [*expected, "I pay.", "function_call", "function_call_output", "Done."]


async def test_scripted_model_in_a_resumed_turn_runs_only_open_calls_of_its_own_tools(chat: Chat) -> None:
    script = [Ask("which"), Tool("pay", "paid"), "Done."]
    model = ScriptedModel([script[0], BOOM], script)
    with pytest.raises(RuntimeError):
        await chat.run(model, "Hi", idempotency_key="i")
    turn = await chat.run(model, "Hi", idempotency_key="i")
    assert [item.call_id for item in turn.output if item.is_result] == ["call_1"]
    assert model.executed == {"pay": 1}


async def test_scripted_model_without_a_script_is_never_run_by_an_attached_turn(chat: Chat) -> None:
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


async def fetch(upstream: ScriptedUpstream, **fields: Any) -> tuple[int, bytes]:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{upstream.url}/chat/completions", json=body) as response,
    ):
        return response.status, await response.read()


async def streamed(*script: Step, **fields: Any) -> list[Any]:
    """The payloads of one streamed answer, decoded where they can be."""
    async with ScriptedUpstream(script) as upstream:
        _, body = await fetch(upstream, stream=True, **fields)
    payloads = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    return [payload if payload == b"[DONE]" else msgspec.json.decode(payload) for payload in payloads]


def deltas(chunks: list[Any]) -> list[Any]:
    return [chunk["choices"][0]["delta"] for chunk in chunks[:-2]]


async def test_scripted_upstream_streams_texts_as_chunks() -> None:
    chunks = await streamed("Hel", "lo")
    assert deltas(chunks) == [{"role": "assistant", "content": "Hel"}, {"content": "lo"}]
    assert chunks[-2]["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert chunks[-1] == b"[DONE]"


async def test_scripted_upstream_streams_calls_in_pieces() -> None:
    chunks = await streamed(Call("look", '{"a":1}'))
    first, *pieces = [delta["tool_calls"][0] for delta in deltas(chunks)]
    body = {"name": "look", "arguments": ""}
    assert first == {"index": 0, "id": "call_0", "type": "function", "function": body}
    assert [piece["function"]["arguments"] for piece in pieces] == ['{"a"', ":1}"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_scripted_upstream_sends_usage_when_requested() -> None:
    chunks = await streamed("Hi", stream_options={"include_usage": True})
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


async def test_scripted_upstream_ends_a_stream_with_the_given_marks() -> None:
    assert (await streamed("Hi", End("length")))[-2]["choices"][0]["finish_reason"] == "length"
    assert (await streamed("Hi", End(done=False)))[-1]["choices"][0]["finish_reason"] == "stop"
    assert (await streamed("Hi", End(None)))[1:] == [b"[DONE]"]
    assert len(await streamed("Hi", End(None, done=False))) == 1


async def test_scripted_upstream_sends_raw_bytes_unchanged() -> None:
    async with ScriptedUpstream([b": ping\n\n", Data(b"{"), End(None, done=False)], split=2) as upstream:
        assert await fetch(upstream, stream=True) == (200, b": ping\n\ndata: {\n\n")


async def test_scripted_upstream_returns_a_completion_without_stream() -> None:
    async with ScriptedUpstream(["Hel", "lo", Refusal("No."), Call("look")], [Data(b"{")]) as upstream:
        _, body = await fetch(upstream)
        assert await fetch(upstream) == (200, b"{")
    [choice] = msgspec.json.decode(body)["choices"]
    call = {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Hello", "refusal": "No.", "tool_calls": [call]}
    assert choice == {"index": 0, "message": message, "finish_reason": "tool_calls"}


async def test_scripted_upstream_status_is_the_whole_answer() -> None:
    async with ScriptedUpstream([Status(429, b"{}", {"retry-after": "1"})], ["Hi"]) as upstream:
        assert await fetch(upstream, stream=True) == (429, b"{}")
        assert (await fetch(upstream, stream=True))[0] == 200


@pytest.mark.parametrize(
    ("script", "stream", "error"),
    [
        ([CUT], True, aiohttp.ServerDisconnectedError),
        ([Head(), CUT], True, aiohttp.ClientPayloadError),
        (["Hel", CUT], True, aiohttp.ClientPayloadError),
        (["Hel", CUT], False, aiohttp.ClientPayloadError),
    ],
)
async def test_scripted_upstream_cut_breaks_the_connection(
    script: list[Step], stream: bool, error: type[Exception]
) -> None:
    async with ScriptedUpstream(script) as upstream:
        with pytest.raises(error):
            await fetch(upstream, stream=stream)


async def test_scripted_upstream_body_without_chunks_ends_with_its_connection() -> None:
    async with ScriptedUpstream([Head("text/plain", chunked=False), b"Hi", CUT]) as upstream:
        assert await fetch(upstream, stream=True) == (200, b"Hi")


async def test_scripted_upstream_gate_holds_the_answer_until_released() -> None:
    gate = Gate()
    async with ScriptedUpstream([gate, "Hi"]) as upstream:
        task = asyncio.create_task(fetch(upstream, stream=True))
        await gate.arrived()
        assert not task.done()
        gate.release()
        assert b"Hi" in (await task)[1]


async def test_scripted_upstream_on_exit_cuts_a_held_answer() -> None:
    gate = Gate()
    async with ScriptedUpstream([gate]) as upstream:
        task = asyncio.create_task(fetch(upstream, stream=True))
        await gate.arrived()
    with pytest.raises(aiohttp.ClientError):
        await task


async def test_scripted_upstream_refuses_connections_and_listens_again_on_the_same_url() -> None:
    async with ScriptedUpstream(["Hi"]) as upstream:
        url = upstream.url
        await upstream.refuse()
        with pytest.raises(aiohttp.ClientConnectorError):
            await fetch(upstream)
        await upstream.listen()
        assert upstream.url == url
        assert (await fetch(upstream))[0] == 200


async def test_scripted_upstream_records_requests_and_connections() -> None:
    async with ScriptedUpstream(otherwise=["Hi"]) as upstream:
        await fetch(upstream, x=1)
        await fetch(upstream, x=2)
    first, second = upstream.received
    assert (first.method, first.path, first.body["x"]) == ("POST", "/v1/chat/completions", 1)
    assert (second.headers["content-type"], second.body["x"]) == ("application/json", 2)
    assert upstream.connections == 2


async def test_scripted_upstream_without_a_script_left_returns_500() -> None:
    async with ScriptedUpstream() as upstream:
        status, body = await fetch(upstream)
    assert (status, b"more often than it has scripts" in body) == (500, True)


async def test_scripted_upstream_lists_its_model() -> None:
    async with (
        ScriptedUpstream() as upstream,
        aiohttp.ClientSession() as session,
        session.get(f"{upstream.url}/models") as response,
    ):
        assert [each["id"] for each in (await response.json())["data"]] == ["scripted"]
    assert upstream.received == []


async def test_scripted_upstream_with_max_received_records_only_the_first_requests() -> None:
    async with ScriptedUpstream(otherwise=["Hi"], max_received=1) as upstream:
        for text in ("one", "two"):
            async with aiohttp.ClientSession() as session:
                body = {"model": "m", "messages": [{"role": "user", "content": text}]}
                async with session.post(f"{upstream.url}/chat/completions", json=body) as answer:
                    assert answer.status == 200
        assert [each.body["messages"][0]["content"] for each in upstream.received] == ["one"]
