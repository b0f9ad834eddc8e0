"""Clients that are broken on purpose, each by one of the rules that healing stands on: the scenario that is
there for the rule finds each out."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.clients.drivers.python import AsyncDriver
from tests.clients.places import ServedPlace
from tests.clients.playing import NotAsWritten, Play
from tests.clients.scenario import all_scenarios
from turnledger.client.core import exchange, turn_stream
from turnledger.client.core.client import ClientCore
from turnledger.client.core.steps import Broken, Request
from turnledger.client.core.turn_stream import TurnFollower

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
        self._last = 0
        return whole(self)

    patch.setattr(TurnFollower, "_next_request", next_request)


def skips_an_event(patch: pytest.MonkeyPatch) -> None:
    whole = TurnFollower._next_request

    def next_request(self: TurnFollower) -> Request:
        self._last += bool(self._last)
        return whole(self)

    patch.setattr(TurnFollower, "_next_request", next_request)


def takes_an_end_for_the_end(patch: pytest.MonkeyPatch) -> None:
    whole = TurnFollower._listen

    def listen(self: TurnFollower, opened: object) -> object:
        trouble = yield from whole(self, opened)  # type: ignore[arg-type]
        return None if isinstance(trouble, Broken) else trouble

    patch.setattr(TurnFollower, "_listen", listen)


def asks_a_model_again_that_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turn_stream, "OF_THE_PROCESS", turn_stream.OF_THE_PROCESS | {"model_unavailable"})


def gives_up_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exchange.RetryCount, "pause", lambda *_: None)


def names_no_fork(patch: pytest.MonkeyPatch) -> None:
    whole = ClientCore.post

    def post(self: ClientCore, *arguments: object, keyed: object = None) -> object:
        return whole(self, *arguments)  # type: ignore[arg-type]

    patch.setattr(ClientCore, "post", post)


BROKEN: list[tuple[Break, str]] = [
    (names_each_try_anew, "wire: an answer that is cut before it begins"),
    (reads_from_the_beginning, "wire: a stream that is cut goes on"),
    (skips_an_event, "wire: a stream that is cut goes on"),
    (takes_an_end_for_the_end, "wire: a stream that is reset goes on"),
    (asks_a_model_again_that_failed, "wire: a failure that is the model's is not tried again"),
    (gives_up_at_once, "wire: a stream that is cut goes on"),
    (names_no_fork, "lost: a fork is made once"),
]


@pytest.mark.parametrize(("broken", "name"), BROKEN, ids=[each.__name__ for each, _ in BROKEN])
async def test_it_is_found_out(
    broken: Break, name: str, monkeypatch: pytest.MonkeyPatch, served: ServedPlace
) -> None:
    driver = AsyncDriver()
    try:
        await Play(all_scenarios()[name], driver, served).run()  # whole, it plays this
        broken(monkeypatch)
        with pytest.raises(NotAsWritten):
            await Play(all_scenarios()[name], driver, served).run()
    finally:
        await driver.close()
