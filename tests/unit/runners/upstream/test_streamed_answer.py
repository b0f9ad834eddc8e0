"""A streamed answer ends where its model says, and gives its connection back."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.runners.asking import ASKED, asking, payloads, text_of
from turnledger import Chat
from turnledger.errors import ModelRefused
from turnledger.runners.chat_runner import ChatRunner
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Data, End, Head, ScriptedUpstream, Status

pytestmark = pytest.mark.anyio


async def test_connections_are_used_again() -> None:
    scripted = ScriptedUpstream(["a"], ["b"], [Status(400)], ["c"], [Head(), "d", End(done=False)], ["e"])
    async with asking(scripted) as model:
        for _ in range(2):
            await payloads(model)
        with pytest.raises(ModelRefused):
            await model.complete(ASKED)
        await model.complete(ASKED)
        await payloads(model)
        await payloads(model)
        await model.models()
    assert scripted.connections == 1


async def test_a_connection_that_stays_open_behind_the_answer_holds_nothing_up(chat: Chat) -> None:
    finish = Data(b'{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}')
    scripted = ScriptedUpstream(["Hi", finish, Data(b"[DONE]"), Gate()], ["Again"])
    async with asking(scripted, lingers=0.0) as model:
        assert (await chat.run(ChatRunner(model, {}), "Hi")).text == "Hi"
        assert (await chat.run(ChatRunner(model, {}), "Hi")).text == "Again"
    assert scripted.connections == 2


async def test_a_connection_is_given_time_to_end_behind_the_answer() -> None:
    gate = Gate()
    answer = b'data: {"choices": []}\n\ndata: [DONE]\n\n'
    scripted = ScriptedUpstream([answer, gate, End(None, done=False)], ["Again"])
    async with asking(scripted, lingers=60.0) as model:
        async with model.stream(ASKED) as batches:
            assert await anext(batches) == [b'{"choices": []}']
            ending = asyncio.create_task(anext(batches, None))
            await gate.arrived()
            assert not ending.done()
            gate.release()
            assert await ending is None
        await payloads(model)
    assert scripted.connections == 1


async def test_what_comes_behind_the_end_is_not_heard() -> None:
    async with asking(ScriptedUpstream(["Hi", Data(b"[DONE]"), "more", "more"])) as model:
        assert text_of(await payloads(model)) == "Hi"


async def test_an_end_by_the_connection_needs_the_models_own_mark() -> None:
    async with asking(ScriptedUpstream([Head(chunked=False), "Hi"])) as model:
        assert text_of(await payloads(model)) == "Hi"


async def test_a_last_event_without_its_blank_line_is_heard() -> None:
    async with asking(ScriptedUpstream([Head(chunked=False), "Hi", b"data: [DONE]", CUT])) as model:
        assert text_of(await payloads(model)) == "Hi"


async def test_leaving_a_stream_early_lets_go_of_it() -> None:
    scripted = ScriptedUpstream(["a", Gate()], ["b"])
    async with asking(scripted) as model:
        async with model.stream(ASKED) as batches:
            async for _ in batches:
                break
        assert text_of(await payloads(model)) == "b"
    assert scripted.connections == 2
