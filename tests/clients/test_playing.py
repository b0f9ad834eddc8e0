"""The runner itself: a client that does it wrong is caught."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.drivers.driver import Command, Driver, Refused, Tell
from tests.clients.matching import mismatch, resolved
from tests.clients.places import Place
from tests.clients.playing import NotAsWritten, Play
from tests.clients.scenario import Scenario, Step

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
    """Says what it was told to say."""

    name = "parrot"

    def __init__(self, *replies: Any, events: list[Any] | None = None) -> None:
        self._replies = list(replies)
        self._events = events or []

    async def do(self, command: Command, tell: Tell) -> Any:
        if command.do == "client":
            return None
        for event in self._events:
            tell(event)
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


async def test_what_is_as_written_passes() -> None:
    told = {"events": EVENTS, "answer": ANSWER}
    play = await played(Parrot(told, events=EVENTS), {**SEND, "expect": {"answer": {"turn": {"number": 1}}}})
    assert play.remembered["sent"] == told


async def test_numbers_begin_anew_behind_a_restart() -> None:
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
async def test_a_stream_that_is_not_whole_is_caught(events: list[Any]) -> None:
    with pytest.raises(NotAsWritten):
        await played(Parrot({"events": events, "answer": ANSWER}), SEND)


async def test_events_that_come_otherwise_than_they_are_told_at_the_end_are_caught() -> None:
    with pytest.raises(NotAsWritten, match="as they came"):
        await played(Parrot({"events": EVENTS, "answer": ANSWER}, events=EVENTS[:2]), SEND)


@pytest.mark.parametrize(
    ("reply", "step"),
    [
        ({"id": "a"}, {"do": "chat.info", "expect": {"id": "b"}}),
        ({"id": "a"}, {"do": "chat.info", "error": "some_code"}),
        (Refused({"code": "other", "status": 404}), {"do": "chat.info", "error": "some_code"}),
        (Refused({"code": "some_code", "status": 404}), {"do": "chat.info"}),
        (Refused({"code": "c", "status": 404}), {"do": "chat.info", "error": {"code": "c", "status": 409}}),
        ([{"input": "Hi", "text": "Hello"}], {"history": "chat", "is": []}),
        ("a", {"same": ["$scope", "$unique"]}),
        ("a", {"differ": ["$scope", "b", "$scope"]}),
        ("a", {"do": "chat.info", "expect": "$nobody"}),
    ],
)
async def test_what_is_not_as_written_is_caught(reply: Any, step: Step) -> None:
    with pytest.raises(NotAsWritten):
        await played(Parrot(reply), step)


async def test_who_cannot_play_a_scenario_does_not() -> None:
    await played(Parrot(), SEND, exceptions={"parrot": "it knows no words"})


async def test_what_is_started_is_waited_for() -> None:
    with pytest.raises(NotAsWritten, match="it ended after"):
        await played(Parrot(ANSWER), {"start": SEND, "heard": 3})


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
def test_patterns(pattern: Any, value: Any) -> None:
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
def test_what_matches_no_pattern(pattern: Any, value: Any) -> None:
    assert mismatch(pattern, value) is not None


def test_references_stand_for_what_was_remembered() -> None:
    assert resolved({"a": ["$x.0.id", "plain"]}, {"x": [{"id": "found"}]}) == {"a": ["found", "plain"]}
