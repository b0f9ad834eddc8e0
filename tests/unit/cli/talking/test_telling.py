"""A turn on the screen: how it is followed, stopped and left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.cli.talking.paper import Paper
from turnledger.cli.talking.interrupts import Presses
from turnledger.cli.talking.place import Heard, Restarted
from turnledger.cli.talking.telling import Telling, Told
from turnledger.errors import ModelUnavailable, ServerUnavailable, TurnledgerError
from turnledger.model.attempt import AttemptState, Failure
from turnledger.model.event import ItemDone, TextDelta, TurnFinished, TurnStarted
from turnledger.model.item import Item, message

pytestmark = pytest.mark.anyio


class Scripted:
    """A turn that tells what a test has it tell."""

    def __init__(self, *told: Heard | TurnledgerError, turn: str | None = "turn_1") -> None:
        self._told = told
        self.turn = turn
        self.is_asked = turn is not None
        self.stops = 0
        self.is_left = False
        self.cannot_stop: TurnledgerError | None = None
        self.heard = asyncio.Event()
        self._goes_on: asyncio.Queue[Heard] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[Heard]:
        for each in self._told:
            if isinstance(each, TurnledgerError):
                raise each
            yield each
        if self._told and isinstance(self._told[-1], TurnFinished):
            return
        self.heard.set()
        yield await self._goes_on.get()

    async def stop(self) -> None:
        self.stops += 1
        if self.cannot_stop is not None:
            raise self.cannot_stop
        self._goes_on.put_nowait(TurnFinished(9, AttemptState.KEPT))

    async def leave(self) -> bool:
        self.is_left = True
        return True


async def follow(answering: Scripted, paper: Paper, *, press: int = 0) -> Told:
    presses = Presses()
    following = asyncio.ensure_future(Telling(paper.screen).follow(answering, presses))
    for pressed in range(1, press + 1):
        await answering.heard.wait()
        while answering.stops < pressed and not following.done():
            presses.note()
            await asyncio.sleep(0)
    return await following


def said(*texts: str) -> list[Heard]:
    deltas = [TextDelta(number, text) for number, text in enumerate(texts, 2)]
    return [TurnStarted(1), *deltas]


async def test_text_calls_and_what_was_not_told_by_its_text() -> None:
    paper = Paper()
    call = Item.of({"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "\x1b"}'})
    told = await follow(
        Scripted(
            *said("Some ", "**text**"),
            ItemDone(4, message("assistant", "Some **text**").raw),
            ItemDone(5, call.raw),
            ItemDone(6, Item.of({"type": "function_call_output", "call_id": "c", "output": "a\nb"}).raw),
            ItemDone(7, message("assistant", "A refusal.").raw),
            TurnFinished(8, AttemptState.COMPLETED),
        ),
        paper,
    )
    assert told.is_there
    assert paper.lines == ["Some text", '⚙ look({"at": "\\x1b"})', "→ a b", "", "A refusal."]


async def test_ctrl_c_stops_it() -> None:
    paper, answering = Paper(), Scripted(*said("As far"))
    told = await follow(answering, paper, press=1)
    assert (told.state, told.is_there, answering.is_left) == (AttemptState.KEPT, True, False)
    assert paper.lines == ["As far"]


async def test_one_that_does_not_stop_is_left_at_the_second_press() -> None:
    paper, answering = Paper(), Scripted(*said("On and on"))
    answering.cannot_stop = ServerUnavailable("It is not there.")
    presses = Presses()
    following = asyncio.ensure_future(Telling(paper.screen).follow(answering, presses))
    await answering.heard.wait()
    while not following.done():
        presses.note()
        await asyncio.sleep(0)
    told = following.result()
    assert answering.stops == 1
    assert answering.is_left
    assert (told.state, told.may_go_on, told.is_there) == (None, True, False)


async def test_one_that_was_not_asked_for_is_left_at_once() -> None:
    paper, answering = Paper(), Scripted(turn=None)
    presses = Presses()
    following = asyncio.ensure_future(Telling(paper.screen).follow(answering, presses))
    await answering.heard.wait()
    while not following.done():
        presses.note()
        await asyncio.sleep(0)
    assert (answering.stops, answering.is_left, following.result().may_go_on) == (0, True, True)


async def test_what_went_wrong_is_told_with_what_was_said() -> None:
    paper = Paper()
    failed = TurnFinished(3, AttemptState.FAILED, Failure("model_unavailable", "It is gone."))
    told = await follow(Scripted(*said("Half a"), failed), paper)
    assert (told.is_there, told.failure) == (False, Failure("model_unavailable", "It is gone."))
    told = await follow(Scripted(*said("Half a"), ModelUnavailable("It is gone.")), paper)
    assert isinstance(told.problem, ModelUnavailable)
    assert paper.lines == ["Half a", "", "Half a"]


async def test_an_answer_that_begins_anew_says_so() -> None:
    paper = Paper()
    told = await follow(
        Scripted(*said("Half a"), Restarted(), *said("A whole."), TurnFinished(3, AttemptState.COMPLETED)),
        paper,
    )
    assert told.is_there
    assert paper.lines == ["Half a", "The answer begins anew:", "", "A whole."]
