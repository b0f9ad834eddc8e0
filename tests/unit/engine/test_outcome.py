"""An outcome can be told however late somebody asks for it."""

from __future__ import annotations

import pytest

from tests.unit.engine.stage import CONVERSATION, attempt, branch, conversation, drive
from tests.unit.model.shapes import some_id
from turnledger.engine.ending import DELETED, Ended
from turnledger.engine.outcome import OutcomeRequest, Running, committed, outcome
from turnledger.errors import ConversationDeleted, ConversationExpired, Superseded, TurnFailed
from turnledger.model.attempt import AttemptState, Failure
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import TurnId
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
