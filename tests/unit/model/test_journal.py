"""The journal of an attempt, and the table of its legal moves."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from msgspec.structs import asdict, replace

from tests.unit.model.shapes import assistant, call, journals, repeatable, result, some_id, user
from turnledger.errors import StoreCorrupt, StoreTooNew
from turnledger.model import codec
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item, message, stored_items
from turnledger.model.journal import Journal, item_record, start_record
from turnledger.model.turn import MOVES, Attempt, AttemptBody, AttemptState, Failure, Instructions


def records(journal: Journal) -> list[bytes]:
    written = []
    for place, item in enumerate(journal.items):
        written.append(item_record(item))
        if place in journal.started:
            written.append(start_record(place, read_only=journal.started[place]))
    return written


@repeatable
@given(journals)
def test_journal_survives_a_round_trip_through_its_records(journal: Journal) -> None:
    assert Journal.of(records(journal)) == journal


@repeatable
@given(journals)
def test_journal_pairs_a_call_with_the_next_result_of_its_id(journal: Journal) -> None:
    open_places: dict[str | None, int] = {}
    answers = {}
    for place, item in enumerate(journal.items):
        if item.is_call:
            open_places[item.call_id] = place
        elif item.is_result:
            answers[open_places.pop(item.call_id)] = item
    places = [place for place, item in enumerate(journal.items) if item.is_call]
    assert {place: journal.answers().get(place) for place in places} == {
        place: answers.get(place) for place in places
    }
    assert journal.unanswered_calls() == sorted(open_places.values())


@repeatable
@given(journals)
def test_journal_has_effects_if_a_started_call_is_not_read_only(journal: Journal) -> None:
    assert journal.has_effects == (False in journal.started.values())


def test_journal_pairs_results_of_a_repeated_id_per_occurrence() -> None:
    journal = Journal([call(), result(output="first"), call(), assistant()])
    assert journal.answers()[0] == result(output="first")
    assert 2 not in journal.answers()
    assert journal.unanswered_calls() == [2]


def test_journal_marks_items_of_emitted_text_until_a_retry_resumes_it() -> None:
    written = [
        item_record(assistant(), emitted=True),
        item_record(call()),
        item_record(assistant(), emitted=True),
    ]
    journal = Journal.of(written)
    assert journal.emitted == {0, 2}
    assert journal.records == written
    assert Journal.for_retry(written).emitted == set()


def test_journal_record_holds_an_item_or_a_start() -> None:
    assert item_record(call()) == b'{"item":' + call().raw + b',"read_only":false,"v":1}'
    assert start_record(3, read_only=True) == b'{"started":3,"read_only":true,"v":1}'


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (b"", StoreCorrupt),
        (b"{}", StoreCorrupt),
        (b'{"v":1}', StoreCorrupt),
        (b'{"v":1,"item":5}', StoreCorrupt),
        (b'{"v":1,"item":{"type":"message"}}', StoreCorrupt),
        (b'{"v":1,"started":"0"}', StoreCorrupt),
        (b'{"v":2,"paused":true}', StoreTooNew),
    ],
)
def test_damaged_or_newer_journal_record_is_refused(record: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        Journal.of([item_record(call()), record])


FAILURE = Failure("boom", "it broke")


def attempt(state: AttemptState = AttemptState.RUNNING) -> Attempt:
    return Attempt(
        id=some_id(TurnId, 1),
        owner="ann",
        conversation=some_id(ConversationId, 1),
        branch=some_id(BranchId, 1),
        lease=some_id(LeaseId, 1),
        fence=3,
        state=state,
        base=None,
        input=(user(),),
        partial="so f",
        created_at=10,
    )


def test_attempt_moves_are_exactly_the_documented_ones() -> None:
    assert set(MOVES) == set(AttemptState)
    drawn = {f"{before} → {after}" for before in MOVES for after in MOVES[before]}
    assert drawn == {
        "running → completed",
        "running → kept",
        "running → failed",
        "running → discarded",
        "failed → settled",
        "failed → resumed",
        "discarded → settled",
    }


@pytest.mark.parametrize(("before", "after"), [*product(AttemptState, AttemptState)])
def test_illegal_attempt_move_reports_a_damaged_row(before: AttemptState, after: AttemptState) -> None:
    given = attempt(before)
    if after in MOVES[before]:
        assert given.with_state(after) == replace(given, state=after)
    else:
        with pytest.raises(StoreCorrupt):
            given.with_state(after)


def test_turn_is_in_the_history_after_these_attempt_states() -> None:
    assert {state for state in AttemptState if state.is_committed} == {
        AttemptState.COMPLETED,
        AttemptState.KEPT,
        AttemptState.SETTLED,
    }


def test_attempt_move_changes_only_state_failure_and_end() -> None:
    moved = attempt().with_state(AttemptState.FAILED, failure=FAILURE, at=0)
    changed = {name for name, value in asdict(moved).items() if value != asdict(attempt())[name]}
    assert changed == {"state", "failure", "ended_at"}
    assert (moved.failure, moved.ended_at) == (FAILURE, 0)
    assert moved.with_state(AttemptState.SETTLED) == replace(moved, state=AttemptState.SETTLED)


def test_attempt_body_holds_input_and_partial_text() -> None:
    body = codec.decode(AttemptBody, attempt().body)
    assert stored_items(body.input) == (user(),)
    assert body.partial == "so f"
    assert body.given_instructions is None
    assert b"instruct" not in attempt().body


@pytest.mark.parametrize("items", [(), (message("system", "Be brief."),)])
@pytest.mark.parametrize("is_lasting", [True, False])
def test_attempt_body_holds_its_instructions(items: tuple[Item, ...], is_lasting: bool) -> None:
    given = Instructions(items, is_lasting)
    body = codec.decode(AttemptBody, replace(attempt(), instructions=given).body)
    assert body.given_instructions == given
    assert stored_items(body.input) == (user(),)
