"""What a try of a request finds of an earlier one, by how that fares and what is known of its answer."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import CONVERSATION, attempt, branch, conversation, drive
from tests.unit.model.shapes import some_id, turn
from turnledger import Ledger, Retry
from turnledger.engine.attempt.client_retries import DERIVED, check_retry, claim_for, look_up, retry_within
from turnledger.engine.attempt.end import CLAIM_KEPT_MS, DIED, Ended
from turnledger.engine.attempt.idempotency import Fresh, SharedOutcome
from turnledger.engine.conversations.resolve import Target
from turnledger.errors import InvalidInput
from turnledger.model.conversation import Claim, ConversationState, Within
from turnledger.model.ids import TurnId
from turnledger.model.turn import Attempt, AttemptState, Failure
from turnledger.stores.memory import Database, MemoryTables

ANN = Target("ann", CONVERSATION)
FIRST, SECOND = Retry(b"digest"), Retry(b"digest", 1)
ID, SENDER = some_id(TurnId, 1), some_id(TurnId, 2)
CLAIM = claim_for(FIRST, attempt(1))
FAILURE = Failure("boom", "it broke")


def claimed(row: Attempt | None = None, **changes: Any) -> MemoryTables:
    tables = MemoryTables(Database())
    drive(tables.add_conversation(conversation()))
    drive(tables.add_branch(branch()))
    drive(tables.save_claim(replace(CLAIM, **changes)))
    if row is not None:
        drive(tables.add_attempt(row))
    return tables


def claim_in(tables: MemoryTables) -> Claim:
    found = drive(tables.claim("ann", FIRST.name))
    assert found is not None
    return found


def test_a_claim_names_its_try_and_is_forgotten_in_time_by_itself() -> None:
    assert (CLAIM.idempotency_key, CLAIM.retries, CLAIM.is_lost) == (DERIVED + b"digest".hex(), 0, False)
    assert (CLAIM.attempt, CLAIM.sender, CLAIM.expires_at) == (ID, ID, 1 + CLAIM_KEPT_MS)


def test_nothing_there_is_a_fresh_start() -> None:
    assert drive(look_up(MemoryTables(Database()), ANN, SECOND, SENDER, 0)) == Fresh()


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_first_try_finds_nothing(is_lost: bool) -> None:
    tables = claimed(attempt(1), is_lost=is_lost)
    assert drive(look_up(tables, ANN, FIRST, SENDER, 0)) == Fresh()


def test_what_runs_and_is_lost_is_shared_from_now_on() -> None:
    tables = claimed(attempt(1), is_lost=True)
    for _ in range(2):  # and decided the same again, for the same request
        assert drive(look_up(tables, ANN, SECOND, SENDER, 0)) == SharedOutcome(ID, None, CONVERSATION)
        found = claim_in(tables)
        assert (found.retries, found.is_lost, found.sender) == (1, False, SENDER)
    assert drive(look_up(tables, ANN, SECOND, some_id(TurnId, 3), 0)) == Fresh()


def test_what_runs_and_is_heard_is_not_shared() -> None:
    tables = claimed(attempt(1))
    assert drive(look_up(tables, ANN, SECOND, SENDER, 0)) == Fresh()
    assert claim_in(tables) == CLAIM


@pytest.mark.parametrize(
    ("is_lost", "is_last", "is_shared"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_a_committed_answer_is_shared_if_it_was_lost_and_nothing_followed(
    is_lost: bool, is_last: bool, is_shared: bool
) -> None:
    tables = claimed(is_lost=is_lost)
    committed = replace(turn(1), id=ID)
    drive(tables.add_turn(committed))
    drive(tables.save_branch(replace(branch(), head=ID if is_last else SENDER, length=1)))
    share = SharedOutcome(ID, Ended(AttemptState.COMPLETED, committed), CONVERSATION)
    assert drive(look_up(tables, ANN, SECOND, SENDER, 0)) == (share if is_shared else Fresh())
    assert claim_in(tables).sender == (SENDER if is_shared else ID)


@pytest.mark.parametrize(
    ("state", "failure", "is_lost", "is_taken_up"),
    [
        (AttemptState.FAILED, DIED, False, True),
        (AttemptState.FAILED, FAILURE, True, True),
        (AttemptState.FAILED, FAILURE, False, False),
        (AttemptState.DISCARDED, None, True, False),
        (AttemptState.RESUMED, FAILURE, True, False),
    ],
)
def test_what_did_not_commit_is_taken_up_if_it_failed_and_nobody_was_told(
    state: AttemptState, failure: Failure | None, is_lost: bool, is_taken_up: bool
) -> None:
    row = attempt(1, state, failure=failure)
    tables = claimed(row, is_lost=is_lost)
    before = claim_in(tables)
    found = drive(look_up(tables, ANN, SECOND, SENDER, 0))
    assert found == (Fresh(before, row) if is_taken_up else Fresh())
    assert claim_in(tables) == before


def test_what_is_not_known_any_more_is_begun_again() -> None:
    assert drive(look_up(claimed(is_lost=True), ANN, SECOND, SENDER, 0)) == Fresh()


@pytest.mark.parametrize("state", [ConversationState.DELETED, ConversationState.EXPIRED])
def test_a_try_finds_nothing_in_a_conversation_that_is_gone(state: ConversationState) -> None:
    tables = claimed(attempt(1), is_lost=True)
    drive(tables.save_conversation(replace(conversation(), state=state)))
    assert drive(look_up(tables, ANN, SECOND, SENDER, 0)) == Fresh()


@pytest.mark.parametrize(("key", "is_found"), [("now", True), ("before", False), (None, True)])
def test_a_try_finds_what_its_conversation_key_names_now(key: str | None, is_found: bool) -> None:
    tables = claimed(attempt(1), is_lost=True)
    named = replace(conversation(), conversation_key="now", former_conversation_key="before")
    drive(tables.save_conversation(named))
    found = drive(look_up(tables, Target("ann", conversation_key=key), SECOND, SENDER, 0))
    assert isinstance(found, SharedOutcome) is is_found


def test_another_conversation_is_another_request() -> None:
    elsewhere = Target("ann", conversation_key="another")
    assert drive(look_up(claimed(attempt(1), is_lost=True), elsewhere, SECOND, SENDER, 0)) == Fresh()


@pytest.mark.parametrize(
    "retry", [Retry(b""), Retry(b"x" * 65), Retry(b"x", -1), Retry(b"x", 2**31), (b"x", 1), 5]
)
def test_what_is_no_count_of_a_request_is_refused(retry: Any) -> None:
    with pytest.raises(InvalidInput, match="retry is"):
        check_retry(retry)


async def test_no_idempotency_key_can_be_taken_for_a_request() -> None:
    async with await Ledger.open() as ledger:
        with pytest.raises(InvalidInput, match="control character"):
            ledger.turn("q", idempotency_key=FIRST.name)


def test_who_sees_one_scope_only_finds_tries_of_their_own() -> None:
    assert retry_within(SECOND, Within()) is SECOND
    tries = [retry_within(SECOND, Within(within)) for within in (None, "", "shop", "shop ")]
    assert len({each.name for each in tries}) == 4
    assert {each.count for each in tries} == {1}
    assert retry_within(Retry(b" digest"), Within("shop")).name != retry_within(FIRST, Within("shop ")).name
    assert [check_retry(each) for each in tries] == tries
