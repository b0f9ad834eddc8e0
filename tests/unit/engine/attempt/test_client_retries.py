"""What a try of a request finds of an earlier one, by how that fares and what is known of its answer."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import CONVERSATION, attempt, branch, conversation, drive
from tests.unit.model.shapes import some_id
from turnledger import Ledger, Retry
from turnledger.engine.attempt.client_retries import DERIVED, check_retry, claim_for, look_up, retry_within
from turnledger.engine.attempt.end import CLAIM_KEPT_MS, DIED
from turnledger.engine.attempt.idempotency import Fresh
from turnledger.engine.conversations.resolve import Target
from turnledger.errors import InvalidInput
from turnledger.model.attempt import Attempt, AttemptState, Failure
from turnledger.model.conversation import Claim, Within
from turnledger.model.ids import TurnId
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
