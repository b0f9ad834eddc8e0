"""Claims of an idempotency_key, by the state of the attempt they name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.stage import (
    attempt,
    conversation,
    drive,
    generated,
    lane_tables,
    ticket,
)
from tests.unit.model.shapes import any_items, call, some_id, turn, user
from turnledger.engine.attempt.idempotency import (
    IdempotencyKey,
    NewAttempt,
    began_while_waiting,
    claim_name,
    claim_restriction,
    fingerprint,
    look_up,
)
from turnledger.engine.conversations.resolve import Target
from turnledger.errors import ConversationDeleted, ConversationExpired, IdempotencyMismatch
from turnledger.model.conversation import Claim, ConversationState, Ticket, Within
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.turn import Attempt, Instructions
from turnledger.stores.memory import MemoryTables

PRINT = fingerprint([user()])
ANN, BOB = Target("ann", conversation().id), Target("bob", conversation().id)
KEY = IdempotencyKey("order-1", PRINT)
ID = some_id(TurnId, 1)
CLAIM = Claim(
    owner="ann", idempotency_key="order-1", fingerprint=PRINT, conversation=conversation().id, attempt=ID
)
requests = st.lists(any_items, max_size=3)


def claimed(row: Attempt | None = None) -> MemoryTables:
    tables = lane_tables()
    drive(tables.save_claim(CLAIM))
    if row is not None:
        drive(tables.add_attempt(row))
    return tables


@generated
@given(requests, requests)
def test_fingerprints_are_equal_for_equal_requests_only(
    one: tuple[str, list[Item]], other: tuple[str, list[Item]]
) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)


def test_fingerprint_depends_on_order_and_item_boundaries() -> None:
    prints = [
        fingerprint([user("a"), user("b")]),
        fingerprint([user("b"), user("a")]),
        fingerprint([user("ab")]),
        fingerprint([]),
    ]
    assert len(set(prints)) == len(prints)


def test_fingerprint_equals_the_one_that_earlier_versions_have_stored() -> None:
    instructions, primer = Instructions((message("system", "Be brief."),)), [user("Hi")]
    stored = fingerprint([user("Hello")], "after", instructions=instructions, primer=primer)
    assert stored.hex() == "85617fc102ba40fc8632f186d4615a601eee07c498838d61fdeca06587f2d79e"


def test_claim_whose_failed_attempt_is_gone_is_begun_afresh() -> None:
    assert drive(look_up(claimed(), ANN, KEY, None)) == NewAttempt(CLAIM)


@pytest.mark.parametrize(
    ("waiting", "began"),
    [
        (None, False),
        (ticket(2), True),
        (ticket(2, claimed=some_id(TurnId, 9)), True),
        (ticket(2, claimed=ID), False),
    ],
)
def test_attempt_counts_as_begun_while_waiting_if_its_ticket_did_not_name_it(
    waiting: Ticket | None, began: bool
) -> None:
    assert began_while_waiting(waiting, CLAIM) is began


@pytest.mark.parametrize(
    ("answers", "is_next"), [(["a", "b"], True), (["a"], False), (["a", "b", "c"], False), ([], False)]
)
def test_another_request_under_the_key_of_a_turn_is_its_next_step_only_if_it_answers_all_its_calls(
    answers: list[str], is_next: bool
) -> None:
    tables = claimed()
    drive(tables.add_turn(turn(1, id=1, output=(call("a"), call("b")))))
    other = IdempotencyKey(KEY.text, fingerprint([user("other")]), frozenset(answers))
    if is_next:
        assert drive(look_up(tables, ANN, other, None)) == NewAttempt()
    else:
        with pytest.raises(IdempotencyMismatch):
            drive(look_up(tables, ANN, other, None))


def test_claim_in_an_unknown_conversation_raises_conversation_deleted() -> None:
    tables = claimed()
    drive(tables.save_claim(replace(CLAIM, conversation=some_id(ConversationId, 9))))
    with pytest.raises(ConversationDeleted):
        drive(look_up(tables, ANN, KEY, None))


def test_claim_in_an_expired_conversation_raises_conversation_expired() -> None:
    tables = claimed(attempt(1))
    drive(tables.save_conversation(replace(conversation(), state=ConversationState.EXPIRED)))
    with pytest.raises(ConversationExpired):
        drive(look_up(tables, ANN, KEY, None))


def test_claim_names_of_different_scopes_are_distinct() -> None:
    assert claim_name("i", Within()) == "i"
    names = {
        claim_name("i", Within()),
        claim_name("i", Within("")),
        claim_name("i", Within("shop")),
        claim_name("hopi", Within("s")),
    }
    assert len(names) == 4


@pytest.mark.parametrize(
    "within", [Within(), Within(""), Within("shop"), Within(chat=some_id(ConversationId, 9))]
)
def test_claim_name_leads_back_to_its_scope(within: Within) -> None:
    assert claim_restriction(claim_name("i", within)) == within
    assert claim_restriction(claim_name("a\x02b", within)) == within
