"""A connection cut at any byte leaves the history complete or unchanged, and the turn can be read again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.crash.tcp_server import PartialResponse, TcpServer, completion, exchange, request, run_tcp_server
from turnledger import Turn
from turnledger.engine.ports import Store
from turnledger.engine.turn.begin import begin
from turnledger.runners.demo import DemoModel
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fault_proxy import Fault, FaultProxy
from turnledger.testing.gates import Gate, GatedStore
from turnledger.types import TurnKind

QUESTION = "How are you?"
POLICIES = ("continue", "keep", "discard")
STRIDE = int(os.environ.get("CUT_EVERY", "101"))
"""Bytes between two cuts; `python -m tests.proof every_cut` cuts at every byte."""


class Pace:
    """Time for the demo model: each word waits until the client has heard the one before. After a cut it
    goes on as soon as the server has noticed, or, for one that shall be stopped, never."""

    def __init__(self) -> None:
        self.noticed: Callable[[], Awaitable[None]] | None = None
        self.heard = PartialResponse()
        self.stops_after_cut = False
        self.words = 0

    def begin(self, *, stops_after_cut: bool) -> PartialResponse:
        self.heard, self.words, self.stops_after_cut = PartialResponse(), 0, stops_after_cut
        return self.heard

    async def sleep(self, _: float) -> None:
        self.words += 1
        words = self.words
        await self.heard.until(lambda heard: heard.is_over or len(heard.payloads) >= words)
        if self.heard.is_over and self.stops_after_cut:
            await asyncio.Event().wait()
        if self.heard.is_over and self.noticed is not None:
            await self.noticed()
            await asyncio.sleep(0)  # the connection knows; who watches it hears of it now


class Stage:
    """A server behind a proxy, and a model that goes as fast as its client hears."""

    def __init__(self, run_tcp_server: TcpServer, proxy: FaultProxy, pace: Pace) -> None:
        self.served = run_tcp_server
        self.proxy = proxy
        self.pace = pace
        pace.noticed = lambda: run_tcp_server.wait_all_lost(proxy.connections)
        self._asked = 0

    async def ask(
        self,
        fault: Fault | None,
        policy: str,
        *,
        stream: bool = True,
        key: str | None = None,
        retry: int | None = None,
    ) -> tuple[PartialResponse, str]:
        """Ask, in a conversation of its own unless it is named; return what was heard once the server is at
        rest, and its key."""
        self._asked += 1
        key = key or f"chat-{self._asked:06}"
        self.proxy.plan(fault)
        heard = self.pace.begin(stops_after_cut=stream and policy != "continue")
        headers = {"X_Conversation_Id": key, "X_Turn_On_Disconnect": policy}
        if retry is not None:
            headers["X_Stainless_Retry_Count"] = str(retry)
        await exchange(self.proxy.port, completion(QUESTION, stream=stream, **headers), heard)
        await self.served.wait_at_rest(self.proxy.connections)
        return heard, key

    async def history(self, key: str) -> list[Turn]:
        chat = await self.served.ledger.conversation(conversation_key=key)
        return await chat.turns()

    async def goes_on(self, key: str) -> None:
        """The conversation takes another turn, at once."""
        self.proxy.plan(None)
        heard = self.pace.begin(stops_after_cut=False)
        headers = {"X_Conversation_Id": key, "X_Turn_On_Busy": "reject"}
        await exchange(self.proxy.port, completion("And now?", **headers), heard)
        assert heard.payloads[-1] == b"[DONE]"


@asynccontextmanager
async def stage(store: Store | None = None) -> AsyncIterator[Stage]:
    pace = Pace()
    model = DemoModel(sleep=pace.sleep, now=lambda: 0)
    async with run_tcp_server(model, store=store) as serving, FaultProxy(serving.port) as proxy:
        yield Stage(serving, proxy, pace)


def size_of(policy: str, *, stream: bool = True) -> int:
    headers = {"X_Conversation_Id": "chat-000001", "X_Turn_On_Disconnect": policy}
    return len(completion(QUESTION, stream=stream, **headers))


def whole(turn: Turn) -> bool:
    return turn.kind is TurnKind.COMPLETED and turn.text.endswith("nothing before that.")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_incomplete_request_leaves_no_chat(policy: str, stream: bool) -> None:
    size = size_of(policy, stream=stream)
    async with stage() as on:
        for sent in [*range(0, size, STRIDE), size - 1]:
            heard, key = await on.ask(Fault(sent=sent), policy, stream=stream)
            assert heard.raw == b""
            assert (await on.served.ledger.list()).chats == ()
        await on.goes_on(key)


@pytest.mark.parametrize("policy", POLICIES)
async def test_stream_cut_anywhere_leaves_a_turn_according_to_policy(policy: str) -> None:
    async with stage() as on:
        uncut, key = await on.ask(None, policy)
        (turn,) = await on.history(key)
        assert whole(turn)
        assert uncut.text == turn.text
        words, said = on.pace.words, uncut.raw.index(b"[DONE]")
        ends = {said, said + 6, said + 8, len(uncut.raw) - 1}
        outcomes = set()
        for received in sorted({*range(0, len(uncut.raw), STRIDE), *ends}):
            heard, key = await on.ask(Fault(received=received), policy)
            assert len(heard.raw) == received
            turns = await on.history(key)
            outcomes.add(check_cut(policy, heard, turns, is_finished=len(heard.payloads) >= words))
            if len(outcomes) == 1 or received in ends:
                await on.goes_on(key)
        assert (
            outcomes
            == {"continue": {"whole"}, "keep": {"kept", "whole"}, "discard": {"gone", "whole"}}[policy]
        )


def check_cut(policy: str, heard: PartialResponse, turns: list[Turn], *, is_finished: bool) -> str:
    """Hold the history against what its client had heard when it was cut off; say what became of it."""
    if policy == "continue" or is_finished:
        (turn,) = turns
        assert whole(turn)
        assert turn.text.startswith(heard.text)
        return "whole"
    if policy == "discard":
        assert turns == []
        return "gone"
    (turn,) = turns
    assert turn.kind is TurnKind.INTERRUPTED
    assert turn.text.startswith(heard.text)
    return "kept"


@pytest.mark.parametrize("policy", POLICIES)
async def test_answer_cut_after_the_commit_leaves_a_complete_turn(policy: str) -> None:
    async with stage() as on:
        uncut, _ = await on.ask(None, policy, stream=False)
        for received in range(0, len(uncut.raw), STRIDE):
            heard, key = await on.ask(Fault(received=received), policy, stream=False)
            assert not heard.is_whole
            (turn,) = await on.history(key)
            assert whole(turn)


async def test_retry_of_a_cut_off_client_is_the_same_turn() -> None:
    async with stage() as on:
        uncut, _ = await on.ask(None, "continue", retry=0)
        # What was handed to the socket before it broke counts as heard: nobody can know better.
        words, last = on.pace.words, uncut.raw.index(uncut.payloads[on.pace.words - 1])
        faults = [Fault(sent=sent) for sent in range(0, size_of("continue"), 4 * STRIDE)]
        faults += [Fault(received=received) for received in range(0, last, STRIDE)]
        for fault in faults:
            first, key = await on.ask(fault, "continue", retry=0)
            assert len(first.payloads) < words
            again, _ = await on.ask(None, "continue", key=key, retry=1)
            assert again.is_whole
            (turn,) = await on.history(key)
            assert whole(turn)
            assert (again.headers["x-turn-id"], again.text) == (turn.id, turn.text)


async def test_identical_message_of_a_client_that_read_everything_is_a_second_turn() -> None:
    async with stage() as on:
        _, key = await on.ask(None, "continue", retry=0)
        for retry in (0, 1):  # a count above 0 may be left from a request that never came
            await on.ask(None, "continue", key=key, retry=retry)
        assert len(await on.history(key)) == 3


@pytest.mark.parametrize(
    ("policy", "kinds"), [("continue", ["completed"]), ("keep", ["interrupted"]), ("discard", [])]
)
async def test_disconnect_while_a_turn_begins_follows_the_policy(policy: str, kinds: list[str]) -> None:
    store = GatedStore(MemoryStore())
    async with stage(store) as on:
        with store.hold(begin) as gate:
            asking = asyncio.create_task(on.ask(None, policy))
            await gate.arrived()
            on.proxy.cut()
            await on.served.wait_all_lost(1)
            gate.release()
        _, key = await asking
        assert [turn.kind for turn in await on.history(key)] == kinds
        await on.goes_on(key)


@pytest.mark.parametrize(("policy", "texts"), [("continue", ["1", "2"]), ("keep", ["1"]), ("discard", ["1"])])
async def test_disconnect_while_a_turn_is_queued_follows_the_policy(policy: str, texts: list[str]) -> None:
    gate = Gate()
    async with held(gate) as (serving, proxy):
        direct = asyncio.create_task(exchange(serving.port, completion("1", X_Conversation_Id="one")))
        await gate.arrived()
        headers = {"X_Conversation_Id": "one", "X_Turn_On_Disconnect": policy}
        waiting = asyncio.create_task(exchange(proxy.port, completion("2", **headers)))
        await serving.wait_queued(1)
        proxy.cut()
        assert (await waiting).raw == b""
        await serving.wait_all_lost(1)
        if policy != "continue":
            await serving.wait_queued(0)
        gate.release()
        assert (await direct).payloads[-1] == b"[DONE]"
        await serving.wait_at_rest(2)
        chat = await serving.ledger.conversation(conversation_key="one")
        assert [turn.input[0].text for turn in await chat.turns()] == texts


@asynccontextmanager
async def held(gate: Gate) -> AsyncIterator[tuple[TcpServer, FaultProxy]]:
    """A server whose model says one word and waits at the gate."""

    async def sleep(_: float) -> None:
        await gate.pass_through()

    model = DemoModel(sleep=sleep, now=lambda: 0)
    async with run_tcp_server(model) as serving, FaultProxy(serving.port) as proxy:
        yield serving, proxy


async def read_on(port: int, turn: str, after: str) -> list[tuple[str, bytes]]:
    """Follow a turn by its events, from there on; return those that came whole."""
    headers = {"Last_Event_ID": after} if after else {}
    heard = await exchange(port, request(f"/api/turns/{turn}/events", method="GET", **headers))
    events = heard.body.split(b"\n\n")[:-1]
    return [(event.split(b"\n")[0].decode().removeprefix("id: "), event) for event in events]


async def test_event_reader_cut_anywhere_resumes_without_gap_or_duplicate() -> None:
    async with stage() as on:
        heard, _ = await on.ask(Fault(received=900), "continue")
        turn = heard.headers["x-turn-id"]
        whole_story = await read_on(on.served.port, turn, "")
        assert [number for number, _ in whole_story] == [str(n + 1) for n in range(len(whole_story))]
        assert b"turn.finished" in whole_story[-1][1]
        size = len((await exchange(on.served.port, request(f"/api/turns/{turn}/events", method="GET"))).raw)
        for received in range(0, size, STRIDE):
            on.proxy.plan(Fault(received=received))
            first = await read_on(on.proxy.port, turn, "")
            if first != whole_story:  # who has heard of the end would only hear it again
                first += await read_on(on.proxy.port, turn, first[-1][0] if first else "")
            assert first == whole_story


async def test_event_reader_of_a_running_turn_resumes_after_a_cut() -> None:
    gate = Gate()
    async with held(gate) as (serving, proxy):
        heard = PartialResponse()
        asking = asyncio.create_task(exchange(proxy.port, completion("1", X_Conversation_Id="one"), heard))
        await heard.until(lambda heard: bool(heard.payloads))
        turn = heard.headers["x-turn-id"]
        early = PartialResponse()
        asked = request(f"/api/turns/{turn}/events", method="GET")
        reading = asyncio.create_task(exchange(proxy.port, asked, early))
        await early.until(lambda heard: bool(heard.payloads))
        proxy.cut()
        await asyncio.gather(asking, reading)
        await serving.wait_all_lost(2)
        assert early.body.count(b"id: ") == 1
        rest = asyncio.create_task(read_on(proxy.port, turn, "1"))
        await serving.wait_connected(3)
        gate.release()
        told = [number for number, _ in await rest]
        assert told == [str(number + 2) for number in range(len(told))]
        assert told == [number for number, _ in await read_on(serving.port, turn, "")][1:]
