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
    """Time for the demo model: each word waits until the client has received the one before. After a cut it
    continues as soon as the server has noticed, or, for a turn that shall be stopped, never."""

    def __init__(self) -> None:
        self.noticed: Callable[[], Awaitable[None]] | None = None
        self.response = PartialResponse()
        self.stops_after_cut = False
        self.words = 0

    def begin(self, *, stops_after_cut: bool) -> PartialResponse:
        self.response, self.words, self.stops_after_cut = PartialResponse(), 0, stops_after_cut
        return self.response

    async def sleep(self, _: float) -> None:
        self.words += 1
        words = self.words
        await self.response.until(lambda response: response.is_over or len(response.payloads) >= words)
        if self.response.is_over and self.stops_after_cut:
            await asyncio.Event().wait()
        if self.response.is_over and self.noticed is not None:
            await self.noticed()
            await asyncio.sleep(0)  # the connection knows; its watcher is notified now


class Stage:
    """A server behind a proxy, and a model as fast as its client receives."""

    def __init__(self, run_tcp_server: TcpServer, proxy: FaultProxy, pace: Pace) -> None:
        self.served = run_tcp_server
        self.proxy = proxy
        self.pace = pace
        pace.noticed = lambda: run_tcp_server.wait_all_lost(proxy.connections)
        self._count = 0

    async def send(
        self,
        fault: Fault | None,
        policy: str,
        *,
        stream: bool = True,
        key: str | None = None,
        retry: int | None = None,
    ) -> tuple[PartialResponse, str]:
        """Send a request, in a conversation of its own unless it is named; return the response and the key
        once the server is at rest."""
        self._count += 1
        key = key or f"chat-{self._count:06}"
        self.proxy.plan(fault)
        response = self.pace.begin(stops_after_cut=stream and policy != "continue")
        headers = {"X_Conversation_Id": key, "X_Turn_On_Disconnect": policy, "X_Conversation_Messages": "new"}
        if retry is not None:
            headers["X_Stainless_Retry_Count"] = str(retry)
        await exchange(self.proxy.port, completion(QUESTION, stream=stream, **headers), response)
        await self.served.wait_at_rest(self.proxy.connections)
        return response, key

    async def history(self, key: str) -> list[Turn]:
        chat = await self.served.ledger.conversation(conversation_key=key)
        return await chat.turns()

    async def check_continues(self, key: str) -> None:
        """Check that the conversation takes another turn at once."""
        self.proxy.plan(None)
        response = self.pace.begin(stops_after_cut=False)
        headers = {"X_Conversation_Id": key, "X_Turn_On_Busy": "reject"}
        await exchange(self.proxy.port, completion("And now?", **headers), response)
        assert response.payloads[-1] == b"[DONE]"


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
            response, key = await on.send(Fault(sent=sent), policy, stream=stream)
            assert response.raw == b""
            assert (await on.served.ledger.list()).chats == ()
        await on.check_continues(key)


@pytest.mark.parametrize("policy", POLICIES)
async def test_stream_cut_anywhere_leaves_a_turn_according_to_policy(policy: str) -> None:
    async with stage() as on:
        uncut, key = await on.send(None, policy)
        (turn,) = await on.history(key)
        assert whole(turn)
        assert uncut.text == turn.text
        words, done_at = on.pace.words, uncut.raw.index(b"[DONE]")
        ends = {done_at, done_at + 6, done_at + 8, len(uncut.raw) - 1}
        outcomes = set()
        for received in sorted({*range(0, len(uncut.raw), STRIDE), *ends}):
            response, key = await on.send(Fault(received=received), policy)
            assert len(response.raw) == received
            turns = await on.history(key)
            outcomes.add(check_cut(policy, response, turns, is_finished=len(response.payloads) >= words))
            if len(outcomes) == 1 or received in ends:
                await on.check_continues(key)
        assert (
            outcomes
            == {"continue": {"whole"}, "keep": {"kept", "whole"}, "discard": {"gone", "whole"}}[policy]
        )


def check_cut(policy: str, response: PartialResponse, turns: list[Turn], *, is_finished: bool) -> str:
    """Compare the history with the response that the client received before the cut; return the outcome."""
    if policy == "continue" or is_finished:
        (turn,) = turns
        assert whole(turn)
        assert turn.text.startswith(response.text)
        return "whole"
    if policy == "discard":
        assert turns == []
        return "gone"
    (turn,) = turns
    assert turn.kind is TurnKind.INTERRUPTED
    assert turn.text.startswith(response.text)
    return "kept"


@pytest.mark.parametrize("policy", POLICIES)
async def test_answer_cut_after_the_commit_leaves_a_complete_turn(policy: str) -> None:
    async with stage() as on:
        uncut, _ = await on.send(None, policy, stream=False)
        for received in range(0, len(uncut.raw), STRIDE):
            response, key = await on.send(Fault(received=received), policy, stream=False)
            assert not response.is_whole
            (turn,) = await on.history(key)
            assert whole(turn)


async def test_retry_of_a_cut_off_client_is_the_same_turn() -> None:
    async with stage() as on:
        uncut, _ = await on.send(None, "continue", retry=0)
        # Bytes handed to the socket before the cut count as received: the server cannot know better.
        words, last = on.pace.words, uncut.raw.index(uncut.payloads[on.pace.words - 1])
        faults = [Fault(sent=sent) for sent in range(0, size_of("continue"), 4 * STRIDE)]
        faults += [Fault(received=received) for received in range(0, last, STRIDE)]
        for fault in faults:
            first, key = await on.send(fault, "continue", retry=0)
            assert len(first.payloads) < words
            again, _ = await on.send(None, "continue", key=key, retry=1)
            assert again.is_whole
            (turn,) = await on.history(key)
            assert whole(turn)
            assert (again.headers["x-turn-id"], again.text) == (turn.id, turn.text)


async def test_identical_message_of_a_client_that_read_everything_is_a_second_turn() -> None:
    async with stage() as on:
        _, key = await on.send(None, "continue", retry=0)
        for retry in (0, 1):  # a count above 0 may be left from a request that never arrived
            await on.send(None, "continue", key=key, retry=retry)
        assert len(await on.history(key)) == 3


@pytest.mark.parametrize(
    ("policy", "kinds"), [("continue", ["completed"]), ("keep", ["interrupted"]), ("discard", [])]
)
async def test_disconnect_while_a_turn_begins_follows_the_policy(policy: str, kinds: list[str]) -> None:
    store = GatedStore(MemoryStore())
    async with stage(store) as on:
        with store.hold(begin) as gate:
            pending = asyncio.create_task(on.send(None, policy))
            await gate.arrived()
            on.proxy.cut()
            await on.served.wait_all_lost(1)
            gate.release()
        _, key = await pending
        assert [turn.kind for turn in await on.history(key)] == kinds
        await on.check_continues(key)


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
    """A server whose model emits one word and waits at the gate."""

    async def sleep(_: float) -> None:
        await gate.pass_through()

    model = DemoModel(sleep=sleep, now=lambda: 0)
    async with run_tcp_server(model) as serving, FaultProxy(serving.port) as proxy:
        yield serving, proxy


async def read_on(port: int, turn: str, after: str) -> list[tuple[str, bytes]]:
    """Follow the events of a turn after this one; return the complete ones."""
    headers = {"Last_Event_ID": after} if after else {}
    response = await exchange(port, request(f"/api/turns/{turn}/events", method="GET", **headers))
    events = response.body.split(b"\n\n")[:-1]
    return [(event.split(b"\n")[0].decode().removeprefix("id: "), event) for event in events]


async def test_event_reader_cut_anywhere_resumes_without_gap_or_duplicate() -> None:
    async with stage() as on:
        response, _ = await on.send(Fault(received=900), "continue")
        turn = response.headers["x-turn-id"]
        whole_story = await read_on(on.served.port, turn, "")
        assert [number for number, _ in whole_story] == [str(n + 1) for n in range(len(whole_story))]
        assert b"turn.finished" in whole_story[-1][1]
        size = len((await exchange(on.served.port, request(f"/api/turns/{turn}/events", method="GET"))).raw)
        for received in range(0, size, STRIDE):
            on.proxy.plan(Fault(received=received))
            first = await read_on(on.proxy.port, turn, "")
            if first != whole_story:  # after the end, the server would only repeat it
                first += await read_on(on.proxy.port, turn, first[-1][0] if first else "")
            assert first == whole_story


async def test_event_reader_of_a_running_turn_resumes_after_a_cut() -> None:
    gate = Gate()
    async with held(gate) as (serving, proxy):
        response = PartialResponse()
        pending = asyncio.create_task(
            exchange(proxy.port, completion("1", X_Conversation_Id="one"), response)
        )
        await response.until(lambda response: bool(response.payloads))
        turn = response.headers["x-turn-id"]
        early = PartialResponse()
        sent = request(f"/api/turns/{turn}/events", method="GET")
        reading = asyncio.create_task(exchange(proxy.port, sent, early))
        await early.until(lambda response: bool(response.payloads))
        proxy.cut()
        await asyncio.gather(pending, reading)
        await serving.wait_all_lost(2)
        assert early.body.count(b"id: ") == 1
        rest = asyncio.create_task(read_on(proxy.port, turn, "1"))
        await serving.wait_connected(3)
        gate.release()
        numbers = [number for number, _ in await rest]
        assert numbers == [str(number + 2) for number in range(len(numbers))]
        assert numbers == [number for number, _ in await read_on(serving.port, turn, "")][1:]
