"""An outcome can be told however late somebody asks for it.

Where a turn stands: each of its stations, told at once.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.engine.stage import CONVERSATION, attempt, branch, conversation, drive
from tests.unit.model.shapes import some_id
from turnledger import Ledger
from turnledger.engine.attempt.end import DELETED, Ended
from turnledger.engine.attempt.outcome import OutcomeRequest, Running, committed, outcome
from turnledger.errors import ConversationDeleted, ConversationExpired, Superseded, TurnFailed, TurnNotFound
from turnledger.model.attempt import QUEUED, AttemptState, Failure
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import TurnId
from turnledger.model.turn import TurnKind
from turnledger.stores.memory import Database, MemoryTables

REQUEST = OutcomeRequest("ann", some_id(TurnId, 1), CONVERSATION)


def tables(state: ConversationState = ConversationState.LIVE) -> MemoryTables:
    made = MemoryTables(Database())
    drive(made.add_conversation(conversation(state=state)))
    drive(made.add_branch(branch()))
    return made


def test_what_runs_names_who_runs_it() -> None:
    made = tables()
    drive(made.add_attempt(attempt(1)))
    found = drive(outcome(made, REQUEST))
    assert isinstance(found, Running)
    assert found.left.attempt == REQUEST.attempt


def test_what_failed_tells_why() -> None:
    made, failure = tables(), Failure("boom", "it broke")
    drive(made.add_attempt(attempt(1, AttemptState.FAILED, failure=failure)))
    assert drive(outcome(made, REQUEST)) == Ended(AttemptState.FAILED, failure=failure)


def test_an_attempt_that_was_removed_with_its_conversation_was_deleted() -> None:
    for gone in (tables(ConversationState.DELETED), MemoryTables(Database())):
        assert drive(outcome(gone, REQUEST)) == Ended(AttemptState.FAILED, failure=DELETED)


def test_an_attempt_that_was_removed_with_its_conversation_may_have_expired() -> None:
    with pytest.raises(ConversationExpired):
        drive(outcome(tables(ConversationState.EXPIRED), REQUEST))


def test_who_waited_for_it_is_told_as_who_ran_it() -> None:
    with pytest.raises(ConversationDeleted):
        committed(Ended(AttemptState.FAILED, failure=DELETED))
    with pytest.raises(TurnFailed, match="it broke"):
        committed(Ended(AttemptState.FAILED, failure=Failure("boom", "it broke")))


def test_of_a_live_conversation_nobody_can_tell() -> None:
    with pytest.raises(Superseded):
        drive(outcome(tables(), REQUEST))


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
