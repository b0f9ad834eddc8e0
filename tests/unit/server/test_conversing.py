from __future__ import annotations

import asyncio
import gc

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, Reply, ask
from turnledger import Ledger
from turnledger.engine.commit import commit
from turnledger.errors import CommitOutcomeUnknown, ModelTimeout, NoNewInput, TurnStopped
from turnledger.model.turn import TurnKind
from turnledger.runners.demo import DemoModel
from turnledger.server.app import make_app
from turnledger.server.completing import renamed
from turnledger.server.conversing import outcome_of
from turnledger.server.models import Found, Models
from turnledger.server.settings import Settings
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import GatedStore, When

HEADERS = (HOST, JSON, (b"x-conversation-id", b"ada"))


def body(*, stream: bool) -> bytes:
    messages = [{"role": "user", "content": "Hello"}]
    return msgspec.json.encode({"model": "demo", "messages": messages, "stream": stream})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_commit_that_goes_through_is_not_denied_by_a_shutdown(stream: bool) -> None:
    store = GatedStore(MemoryStore(Database()))
    ledger = await Ledger.over(store)
    models = Models({"demo": Found(DemoModel(pace=0), "demo")})
    app = make_app(ledger, models, Settings())
    with store.hold(commit, When.AFTER) as gate:
        asking = asyncio.ensure_future(
            ask(app, "/v1/chat/completions", method="POST", headers=HEADERS, parts=(body(stream=stream),))
        )
        await gate.arrived()
        app.service.shutting_down.set()
        app.hurry()
    reply: Reply = await asking
    assert reply.status == 200
    assert reply.body.endswith(b"data: [DONE]\n\n") if stream else reply.is_whole
    assert b"error" not in reply.body
    chat = await ledger.conversation(conversation_key="ada", create=False)
    assert len(await chat.turns()) == 1
    await ledger.close()


@pytest.mark.parametrize(
    ("problem", "word"),
    [
        (TurnStopped(), "stopped"),
        (CommitOutcomeUnknown(), "unknown"),
        (NoNewInput(), "refused"),
        (ModelTimeout(), "failed"),
        (RuntimeError(), "failed"),
    ],
)
def test_how_a_turn_ended_is_counted_in_a_word(problem: BaseException, word: str) -> None:
    assert outcome_of(problem) == word


def test_only_the_id_of_an_answer_changes() -> None:
    assert renamed([b'{"id":"a", "x":"a"}'], "a", "turn_1") == [b'{"id":"turn_1", "x":"a"}']
    assert renamed([b'{"id":"a","x":{"id":"a"}}'], "a", "turn_1") == [b'{"id":"turn_1","x":{"id":"a"}}']
    assert renamed([b'{"x":"a", "id":"a"}'], "a", "turn_1") == [b'{"x":"a", "id":"turn_1"}']
    assert renamed([], "a", "turn_1") == []
    assert msgspec.json.decode(renamed([b'{"x":"a"}'], "", "turn_1")[0]) == {"id": "turn_1", "x": "a"}


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_shutdown_cut_short_and_kept_is_not_told_as_done(stream: bool) -> None:
    ledger = await Ledger.open("memory:")
    stalled = asyncio.Event()

    async def never(_: float) -> None:
        stalled.set()
        await asyncio.Event().wait()

    models = Models({"demo": Found(DemoModel(pace=1, sleep=never), "demo")})
    app = make_app(ledger, models, Settings())
    asking = asyncio.ensure_future(
        ask(
            app,
            "/v1/chat/completions",
            method="POST",
            headers=(*HEADERS, (b"x-turn-on-failure", b"keep")),
            parts=(body(stream=stream).replace(b"Hello", b"/stall"),),
        )
    )
    await stalled.wait()
    app.service.shutting_down.set()
    app.hurry()
    reply: Reply = await asking
    assert b"shutting_down" in reply.body
    assert b"[DONE]" not in reply.body
    chat = await ledger.conversation(conversation_key="ada", create=False)
    assert [turn.kind for turn in await chat.turns()] == [TurnKind.INTERRUPTED]
    await ledger.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_was_told_leaves_nothing_to_the_garbage_collector(stream: bool) -> None:
    ledger = await Ledger.open()
    app = make_app(ledger, Models({"demo": Found(DemoModel(pace=0), "demo")}), Settings())

    async def turn() -> None:
        reply = await ask(
            app, "/v1/chat/completions", method="POST", headers=HEADERS, parts=(body(stream=stream),)
        )
        assert reply.status == 200

    await turn()  # the conversation is made, which takes a way of its own
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await turn()
        for _ in range(5):
            await asyncio.sleep(0)  # what was cancelled has ended
        gc.collect()
        left = [type(each).__name__ for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert "RunningTurn" not in left
    assert "Outlet" not in left
    await ledger.close()
