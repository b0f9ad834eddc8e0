"""Several workers act as one server: each can follow, stop, replay and recover the turns of another."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from tests.crash.several_workers import Line, SeveralWorkers, several_workers
from tests.crash.tcp_server import PartialResponse, completion, request
from turnledger import Ledger
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ScriptedUpstream
from turnledger.types import AttemptState


class Streaming:
    """A turn in the middle of its answer on one worker, and a line to another."""

    def __init__(self, server: SeveralWorkers, upstream: ScriptedUpstream, here: Line, there: Line) -> None:
        self.server = server
        self.upstream = upstream
        self.here = here
        self.there = there
        self.response = PartialResponse()
        self.sent = b""
        self.pending: asyncio.Task[PartialResponse]

    async def begin(self, **headers: str) -> None:
        self._before = len(self.server.events)
        self.sent = completion("Hi", **{"X_Conversation_Id": "one", **headers})
        self.pending = asyncio.create_task(self.here.exchange(self.sent, self.response))
        await self.response.until(lambda response: response.text == "Hel")

    async def leave(self) -> None:
        """Disconnect the client, and wait until its worker has noticed."""
        witness = await self.server.line(lambda worker: worker == self.here.worker)
        self.here.close()
        await self.pending
        for name in ("after", "long after"):
            await witness.greet(name.replace(" ", "-"))

    async def answered(self) -> None:
        """Wait until the request has ended, at its worker."""
        path = "/v1/chat/completions"
        await self.server.event("request", after=self._before, worker=self.here.worker, path=path)

    def follow(self, line: Line) -> tuple[PartialResponse, asyncio.Task[PartialResponse]]:
        """Read the turn's events."""
        response = PartialResponse()
        sent = request(f"/api/turns/{self.response.headers['x-turn-id']}/events", method="GET")
        return response, asyncio.create_task(line.exchange(sent, response))

    async def stop_another(self) -> None:
        """Stop a turn of another chat on the same worker, through the other one."""
        self.upstream.scripts.append(["Hel", Gate()])
        line = await self.server.line(lambda worker: worker == self.here.worker)
        response = PartialResponse()
        pending = asyncio.create_task(line.exchange(completion("Hi", X_Conversation_Id="other"), response))
        await response.until(lambda response: response.text == "Hel")
        there = await self.server.line(lambda worker: worker == self.there.worker)
        await there.exchange(request(f"/api/turns/{response.headers['x-turn-id']}/stop", {}))
        await pending

    async def attempts(self) -> list[str]:
        """How the attempts stand that are not in the history."""
        return [attempt["state"] for attempt in (await self.chat())["attempts"]]

    async def turns(self) -> list[str]:
        """What was answered in the turns of the history."""
        items = [item for turn in (await self.chat())["turns"] for item in turn["output"]]
        return ["".join(part["text"] for part in item["content"]) for item in items]

    async def chat(self) -> dict[str, Any]:
        shown = await self.server.get(f"/api/chats/{self.response.headers['x-conversation-id']}")
        decoded: dict[str, Any] = msgspec.json.decode(shown.body)
        return decoded


@asynccontextmanager
async def streaming(folder: Path, gate: Gate, *flags: str, **headers: str) -> AsyncIterator[Streaming]:
    async with (
        ScriptedUpstream(["Hel", gate, "lo"], otherwise=["Again"]) as upstream,
        several_workers(folder, upstream.url, *flags) as server,
    ):
        turn = Streaming(server, upstream, *await server.two_lines())
        await turn.begin(**headers)
        yield turn


class Begin(Protocol):
    async def __call__(self, gate: Gate, **headers: str) -> Streaming: ...


@pytest.fixture(scope="module")
async def begin(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Begin]:
    """Begin a turn in a chat of its own, on a server that several tests share: a worker that a test kills has
    been replaced when it ends."""
    numbers = count()
    async with (
        ScriptedUpstream(otherwise=["Again"]) as upstream,
        several_workers(tmp_path_factory.mktemp("shared"), upstream.url) as server,
    ):

        async def begin(gate: Gate, **headers: str) -> Streaming:
            upstream.scripts.append(["Hel", gate, "lo"])
            turn = Streaming(server, upstream, *await server.two_lines())
            await turn.begin(X_Conversation_Id=f"chat-{next(numbers)}", **headers)
            return turn

        yield begin


async def test_turn_of_a_killed_worker_fails_at_once_and_its_retry_completes_elsewhere(begin: Begin) -> None:
    turn = await begin(Gate(), Idempotency_Key="killed")
    server, dead, before = turn.server, turn.here.worker, len(turn.server.events)
    os.kill(server.pids()[dead], signal.SIGKILL)
    await turn.pending
    assert not turn.response.is_whole
    # No request waits for the lane: the other workers were notified of the death.
    await server.event("recovered", before, worker=turn.there.worker)
    assert (await turn.attempts(), await turn.turns()) == (["failed"], [])
    again = await turn.there.exchange(turn.sent)
    assert (again.status, again.text, again.payloads[-1]) == (200, "Again", b"[DONE]")
    await server.event("worker_started", before, worker=dead)
    await server.line(lambda worker: worker == dead)
    assert await turn.turns() == ["Again"]


async def test_turn_is_stopped_through_another_worker(begin: Begin) -> None:
    turn = await begin(Gate())
    stop = request(f"/api/turns/{turn.response.headers['x-turn-id']}/stop", {})
    ended = msgspec.json.decode((await turn.there.exchange(stop)).body)
    assert (ended["state"], ended["committed"]) == ("kept", True)
    await turn.pending
    assert await turn.turns() == ["Hel"]


async def test_turn_is_followed_attached_and_replayed_through_another_worker(begin: Begin) -> None:
    gate = Gate()
    turn = await begin(gate, Idempotency_Key="once")
    server, requests = turn.server, len(turn.upstream.received)
    events, following = turn.follow(turn.there)
    await events.until(lambda response: b"Hel" in response.body)
    beside = await server.line(lambda worker: worker == turn.there.worker)
    attached = PartialResponse()
    attaching = asyncio.create_task(beside.exchange(turn.sent, attached))
    await attached.until(lambda response: response.text == "Hel")
    gate.release()
    await asyncio.gather(turn.pending, following, attaching)
    assert (turn.response.text, attached.text, attached.is_whole) == ("Hello", "Hello", True)
    assert attached.headers["x-turn-id"] == turn.response.headers["x-turn-id"]
    assert b"turn.finished" in events.body
    replayed = await (await server.line(lambda worker: worker == turn.there.worker)).exchange(turn.sent)
    assert (replayed.text, replayed.headers["idempotency-replayed"]) == ("Hello", "true")
    assert len(turn.upstream.received) == requests


async def test_turn_continues_while_a_reader_at_another_worker_is_connected(begin: Begin) -> None:
    gate = Gate()
    turn = await begin(gate, X_Turn_On_Disconnect="discard")
    events, following = turn.follow(turn.there)
    await events.until(lambda response: b"Hel" in response.body)
    await turn.leave()
    gate.release()
    await following
    assert b'"completed"' in events.body
    assert await turn.turns() == ["Hello"]


async def test_turn_ends_by_policy_when_its_last_reader_leaves_another_worker(begin: Begin) -> None:
    turn = await begin(Gate(), X_Turn_On_Disconnect="discard")
    events, following = turn.follow(turn.there)
    await events.until(lambda response: b"Hel" in response.body)
    await turn.leave()
    assert await turn.attempts() == ["running"]
    turn.there.close()
    await following
    await turn.answered()
    assert (await turn.attempts(), await turn.turns()) == (["discarded"], [])


async def test_turn_ends_by_policy_when_the_worker_of_its_last_reader_dies(begin: Begin) -> None:
    turn = await begin(Gate(), X_Turn_On_Disconnect="keep")
    events, following = turn.follow(turn.there)
    await events.until(lambda response: b"Hel" in response.body)
    await turn.leave()
    before = len(turn.server.events)
    os.kill(turn.server.pids()[turn.there.worker], signal.SIGKILL)
    await following
    await turn.answered()
    assert await turn.turns() == ["Hel"]
    await turn.server.event("worker_started", before, worker=turn.there.worker)


async def test_next_message_at_another_worker_does_not_wait_for_an_answer_whose_client_left(
    begin: Begin,
) -> None:
    turn = await begin(Gate())
    await turn.leave()
    chat = turn.response.headers["x-conversation-id"]
    following = await turn.there.exchange(completion("And now?", X_Conversation_Id=chat))
    assert (following.status, following.text) == (200, "Again")
    assert await turn.turns() == ["Hel", "Again"]


async def test_next_message_waits_for_an_answer_that_another_worker_reads(begin: Begin) -> None:
    gate = Gate()
    turn = await begin(gate)
    events, reading = turn.follow(turn.there)
    await events.until(lambda response: b"Hel" in response.body)
    await turn.leave()
    beside = await turn.server.line(lambda worker: worker == turn.there.worker)
    body = {"chat": turn.response.headers["x-conversation-id"], "input": "And now?", "stream": True}
    response = PartialResponse()
    waiting = asyncio.create_task(beside.exchange(request("/api/turns", {"model": "m", **body}), response))
    await response.until(lambda response: response.raw != b"")  # it begins when it is queued
    for _ in range(2):  # when the holder looks at a second stop, it has looked at this lane
        await turn.stop_another()
    gate.release()
    await asyncio.gather(reading, waiting)
    assert b'"completed"' in events.body
    assert await turn.turns() == ["Hello", "Again"]


async def test_workers_without_a_supervisor_complete_their_turns_and_end(tmp_path: Path) -> None:
    gate = Gate()
    async with streaming(tmp_path, gate) as turn:
        assert [name for name in os.listdir(tmp_path) if name.startswith("turnledger-")]
        turn.server.signal(signal.SIGKILL)
        for worker in turn.server.pids():
            await turn.server.event("supervisor_gone", worker=worker)
        gate.release()
        await turn.pending
        assert (turn.response.text, turn.response.is_whole) == ("Hello", True)
        assert await turn.server.wait_ended() == -signal.SIGKILL
        assert not [name for name in os.listdir(tmp_path) if name.startswith("turnledger-")]
        async with await Ledger.open(turn.server.store) as ledger:
            chat = await ledger.conversation(conversation_key="one")
            assert [each.text for each in await chat.turns()] == ["Hello"]


async def test_sigint_lets_turns_of_all_workers_complete_within_the_grace_period(tmp_path: Path) -> None:
    gate = Gate()
    async with streaming(tmp_path, gate) as turn:
        await begin_shutdown(turn, signal.SIGINT)
        gate.release()
        await turn.pending
        assert (turn.response.text, turn.response.is_whole) == ("Hello", True)
        assert await turn.server.wait_ended() == 0
        assert turn.server.other_lines == []


async def begin_shutdown(turn: Streaming, number: signal.Signals) -> None:
    """Signal each process; the supervisor also signals each worker, which counts as one signal."""
    turn.server.signal_all(number)
    await turn.server.event("shutting_down", worker=turn.here.worker)
    await turn.server.event("worker_ended", worker=turn.there.worker)
    assert not turn.pending.done()


async def test_second_sigterm_ends_all_workers_immediately_and_fails_the_turn(tmp_path: Path) -> None:
    async with streaming(tmp_path, Gate()) as turn:
        await begin_shutdown(turn, signal.SIGTERM)
        turn.server.signal(signal.SIGTERM)
        await turn.pending
        assert msgspec.json.decode(turn.response.payloads[-1])["error"]["code"] == "shutting_down"
        assert await turn.server.wait_ended() == 0
        assert turn.server.other_lines == []
        async with await Ledger.open(turn.server.store) as ledger:
            chat = await ledger.conversation(conversation_key="one")
            assert await chat.turns() == []
            assert [each.attempt.state for each in await chat.attempts()] == [AttemptState.FAILED]
