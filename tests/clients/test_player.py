"""The scenario runner detects wrong clients: a scripted driver, and clients each broken by one rule of
recovery."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.clients.drivers.driver import ClientError, Command, Driver, OnEvent
from tests.clients.drivers.python import AsyncDriver
from tests.clients.patterns import mismatch, resolve
from tests.clients.places import Place, ServedPlace
from tests.clients.player import Play, ScenarioFailed
from tests.clients.scenario import Scenario, Step, all_scenarios
from turnledger.client.core import exchange, turn_stream
from turnledger.client.core.client import ClientCore
from turnledger.client.core.steps import ConnectionFailure, Request
from turnledger.client.core.turn_stream import TurnFollower

ANSWER = {"text": "Hello", "turn": {"number": 1}}
EVENTS = [
    ["turn.started", 1],
    ["text.delta", 2, "Hel"],
    ["text.delta", 3, "lo"],
    ["turn.finished", 4, "completed"],
]


class Nowhere(Place):
    async def begin(self) -> None:
        pass

    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        pass


class Parrot(Driver):
    """Returns the given replies."""

    name = "parrot"

    def __init__(self, *replies: Any, events: list[Any] | None = None) -> None:
        self._replies = list(replies)
        self._events = events or []

    async def do(self, command: Command, on_event: OnEvent) -> Any:
        if command.do == "client":
            return None
        for event in self._events:
            on_event(event)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def close(self) -> None:
        pass


async def played(driver: Driver, *steps: Step, **options: Any) -> Play:
    play = Play(Scenario("some", list(steps), chat=None, **options), driver, Nowhere())
    await play.run()
    return play


SEND: Step = {"do": "chat.send", "with": {"input": "Hi", "stream": True}, "as": "sent"}


async def test_play_accepts_a_driver_that_follows_the_script() -> None:
    result = {"events": EVENTS, "answer": ANSWER}
    play = await played(
        Parrot(result, events=EVENTS), {**SEND, "expect": {"answer": {"turn": {"number": 1}}}}
    )
    assert play.remembered["sent"] == result


async def test_play_accepts_event_numbers_restarting_after_a_restart() -> None:
    events = [*EVENTS[:2], ["turn.restarted", 0], *EVENTS]
    await played(Parrot({"events": events, "answer": ANSWER}), SEND)


@pytest.mark.parametrize(
    "events",
    [
        [EVENTS[0], EVENTS[1], EVENTS[1], *EVENTS[2:]],
        [EVENTS[0], *EVENTS[2:]],
        EVENTS[1:],
        EVENTS[:3],
        [*EVENTS, ["text.delta", 5, "!"]],
        [*EVENTS[:2], ["turn.restarted", 0], *EVENTS[2:]],
        [EVENTS[0], ["text.delta", 2, "Help"], *EVENTS[2:]],
        [],
    ],
    ids=["twice", "gap", "no start", "no end", "behind the end", "not anew", "other text", "none"],
)
async def test_play_rejects_an_incomplete_stream(events: list[Any]) -> None:
    with pytest.raises(ScenarioFailed):
        await played(Parrot({"events": events, "answer": ANSWER}), SEND)


async def test_play_rejects_events_that_differ_from_those_reported_at_the_end() -> None:
    with pytest.raises(ScenarioFailed, match="events sent"):
        await played(Parrot({"events": EVENTS, "answer": ANSWER}, events=EVENTS[:2]), SEND)


@pytest.mark.parametrize(
    ("reply", "step"),
    [
        ({"id": "a"}, {"do": "chat.info", "expect": {"id": "b"}}),
        ({"id": "a"}, {"do": "chat.info", "error": "some_code"}),
        (ClientError({"code": "other", "status": 404}), {"do": "chat.info", "error": "some_code"}),
        (ClientError({"code": "some_code", "status": 404}), {"do": "chat.info"}),
        (
            ClientError({"code": "c", "status": 404}),
            {"do": "chat.info", "error": {"code": "c", "status": 409}},
        ),
        ([{"input": "Hi", "text": "Hello"}], {"history": "chat", "is": []}),
        ("a", {"same": ["$scope", "$unique"]}),
        ("a", {"differ": ["$scope", "b", "$scope"]}),
        ("a", {"do": "chat.info", "expect": "$nobody"}),
    ],
)
async def test_play_rejects_a_reply_that_differs_from_the_script(reply: Any, step: Step) -> None:
    with pytest.raises(ScenarioFailed):
        await played(Parrot(reply), step)


async def test_play_skips_a_scenario_the_driver_is_excepted_from() -> None:
    await played(Parrot(), SEND, exceptions={"parrot": "it knows no words"})


async def test_play_waits_for_a_started_step() -> None:
    with pytest.raises(ScenarioFailed, match="it ended after"):
        await played(Parrot(ANSWER), {"start": SEND, "after_events": 3})


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1, {"any": True}], [1, "x"]),
        ({"contains": "b"}, "abc"),
        ({"has": [2, {"a": 1}]}, [{"a": 1, "b": 2}, 2]),
        ({"length": 2}, [1, 2]),
        ({"not": 1}, 2),
        ({"at_least": 2}, 3),
        (None, None),
    ],
)
def test_pattern_matches_values_that_fit(pattern: Any, value: Any) -> None:
    assert mismatch(pattern, value) is None


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, None),
        ([1], [1, 2]),
        (1, True),
        (False, 0),
        ({"any": True}, None),
        ({"contains": "b"}, "a"),
        ({"has": [3]}, [1, 2]),
        ({"length": 2}, [1]),
        ({"not": 1}, 1),
        ({"at_least": 2}, 1),
        (None, 0),
    ],
)
def test_pattern_rejects_values_that_do_not_fit(pattern: Any, value: Any) -> None:
    assert mismatch(pattern, value) is not None


def test_references_are_replaced_by_remembered_values() -> None:
    assert resolve({"a": ["$x.0.id", "plain"]}, {"x": [{"id": "found"}]}) == {"a": ["found", "plain"]}


Break = Callable[[pytest.MonkeyPatch], None]


def names_each_try_anew(patch: pytest.MonkeyPatch) -> None:
    whole = TurnFollower._next_request

    def next_request(self: TurnFollower) -> Request:
        request = whole(self)
        if request.method == "GET":
            return request
        return replace(request, headers={**request.headers, "idempotency-key": str(uuid.uuid4())})

    patch.setattr(TurnFollower, "_next_request", next_request)


def reads_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    whole = TurnFollower._next_request

    def next_request(self: TurnFollower) -> Request:
        self._last_number = 0
        return whole(self)

    patch.setattr(TurnFollower, "_next_request", next_request)


def skips_an_event(patch: pytest.MonkeyPatch) -> None:
    whole = TurnFollower._next_request

    def next_request(self: TurnFollower) -> Request:
        self._last_number += bool(self._last_number)
        return whole(self)

    patch.setattr(TurnFollower, "_next_request", next_request)


def takes_an_end_for_the_end(patch: pytest.MonkeyPatch) -> None:
    whole = TurnFollower._read_events

    def listen(self: TurnFollower, opened: object) -> object:
        trouble = yield from whole(self, opened)  # type: ignore[arg-type]
        return None if isinstance(trouble, ConnectionFailure) else trouble

    patch.setattr(TurnFollower, "_read_events", listen)


def retries_a_failed_model(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turn_stream, "PROCESS_CODES", turn_stream.PROCESS_CODES | {"model_unavailable"})


def gives_up_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exchange.RetryCount, "pause", lambda *_: None)


def names_no_fork(patch: pytest.MonkeyPatch) -> None:
    whole = ClientCore.post

    def post(self: ClientCore, *arguments: object, keyed: object = None) -> object:
        return whole(self, *arguments)  # type: ignore[arg-type]

    patch.setattr(ClientCore, "post", post)


BROKEN: list[tuple[Break, str]] = [
    (names_each_try_anew, "wire: an answer that is cut before it begins is requested again"),
    (reads_from_the_beginning, "wire: a stream that is cut continues"),
    (skips_an_event, "wire: a stream that is cut continues"),
    (takes_an_end_for_the_end, "wire: a stream that is reset continues"),
    (retries_a_failed_model, "wire: a failure of the model is not retried"),
    (gives_up_at_once, "wire: a stream that is cut continues"),
    (names_no_fork, "lost-answers: a fork is created once"),
]


@pytest.mark.parametrize(("broken", "name"), BROKEN, ids=[each.__name__ for each, _ in BROKEN])
async def test_play_rejects_a_client_with_a_broken_rule(
    broken: Break, name: str, monkeypatch: pytest.MonkeyPatch, served: ServedPlace
) -> None:
    driver = AsyncDriver()
    try:
        await Play(all_scenarios()[name], driver, served).run()  # whole, it plays this
        broken(monkeypatch)
        with pytest.raises(ScenarioFailed):
            await Play(all_scenarios()[name], driver, served).run()
    finally:
        await driver.close()
