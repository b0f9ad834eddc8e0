"""Where a turn stands: each of its stations, told at once."""

from __future__ import annotations

import asyncio

import pytest

from turnledger import Ledger
from turnledger.engine.standing import QUEUED
from turnledger.errors import TurnNotFound
from turnledger.model.attempt import AttemptState
from turnledger.model.ids import TurnId
from turnledger.model.turn import TurnKind


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_committed_turn_comes_with_its_chat_as_it_is_then() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        async with chat.turn("Hello") as turn:
            turn.emit("Hi.")
        async with chat.turn("More") as later:
            later.emit("Yes.")
        found = await chat.standing(turn.id)
        assert found.turn is not None
        assert (found.state, found.turn.id, found.chat.turns) == (AttemptState.COMPLETED, turn.id, 2)


async def test_one_that_runs_and_one_that_waits_have_no_turn_yet() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        async with chat.turn("Hello") as turn:
            queued = chat.turn("Next")

            async def wait() -> None:
                async with queued as other:
                    other.emit("Now.")

            waiting = asyncio.create_task(wait())
            while not ledger.at_work().waiting:
                await asyncio.sleep(0)
            first, second = await chat.standing(turn.id), await chat.standing(queued.id)
            turn.emit("Hi.")
        await waiting
        assert (first.state, first.turn, first.chat.is_running) == (AttemptState.RUNNING, None, True)
        assert (second.state, second.turn) == (QUEUED, None)


async def test_one_that_failed_says_why_and_one_that_was_discarded_does_not() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        with pytest.raises(ZeroDivisionError):
            async with chat.turn("Hello") as failed:
                raise ZeroDivisionError
        async with chat.turn("Hello") as stopped:
            stopped.stop("discard")
        one, other = await chat.standing(failed.id), await chat.standing(stopped.id)
        assert one.failure is not None
        assert (one.state, one.turn) == (AttemptState.FAILED, None)
        assert (other.state, other.turn, other.failure) == (AttemptState.DISCARDED, None, None)


async def test_one_that_was_kept_is_a_turn() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        async with chat.turn("Hello") as turn:
            turn.emit("Hi th")
            turn.stop()
        found = await chat.standing(turn.id)
        assert found.turn is not None
        assert (found.state, found.turn.kind) == (AttemptState.KEPT, TurnKind.INTERRUPTED)


async def test_a_turn_of_another_chat_is_not_there() -> None:
    async with await Ledger.open() as ledger:
        chat, other = await ledger.conversation(), await ledger.conversation()
        async with other.turn("Hello") as turn:
            turn.emit("Hi.")
        for unknown in (turn.id, TurnId("turn_01890000000070008000000000000000")):
            with pytest.raises(TurnNotFound):
                await chat.standing(unknown)
