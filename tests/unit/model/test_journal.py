"""Attempts move by a table of legal moves; the journal tells which calls may have acted."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from msgspec.structs import asdict, replace

from tests.unit.model.shapes import assistant, call, journals, repeatable, result, some_id, user
from turnledger.errors import StoreCorrupt, StoreTooNew
from turnledger.model import codec
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.journal import Journal, finished, started
from turnledger.model.turn import MOVES, Attempt, AttemptBody, AttemptState, Failure, Instructions


def records(journal: Journal) -> list[bytes]:
    written = []
    for place, item in enumerate(journal.items):
        written.append(finished(item))
        if place in journal.started:
            written.append(started(place, read_only=journal.started[place]))
    return written


@repeatable
@given(journals)
def test_a_journal_comes_back_from_its_records(journal: Journal) -> None:
    assert Journal.of(records(journal)) == journal


@repeatable
@given(journals)
def test_a_call_is_answered_by_the_next_result_of_its_id(journal: Journal) -> None:
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
    assert journal.unanswered() == sorted(open_places.values())


@repeatable
@given(journals)
def test_effects_are_started_calls_that_are_not_read_only(journal: Journal) -> None:
    assert journal.has_effects == (False in journal.started.values())


def test_an_empty_journal_has_nothing() -> None:
    journal = Journal.of([])
    assert (journal.items, journal.started, journal.unanswered(), journal.has_effects) == ([], {}, [], False)


def test_an_answer_belongs_to_one_occurrence_of_a_repeated_id() -> None:
    journal = Journal([call(), result(output="first"), call(), assistant()])
    assert journal.answers()[0] == result(output="first")
    assert 2 not in journal.answers()
    assert journal.unanswered() == [2]


def test_items_made_of_emitted_text_are_marked_until_a_retry_takes_them_up() -> None:
    written = [finished(assistant(), emitted=True), finished(call()), finished(assistant(), emitted=True)]
    journal = Journal.of(written)
    assert journal.emitted == {0, 2}
    assert journal.records == written
    assert Journal.taken_up(written).emitted == set()


def test_a_record_is_an_item_or_a_start() -> None:
    assert finished(call()) == b'{"item":' + call().raw + b',"read_only":false,"v":1}'
    assert started(3, read_only=True) == b'{"started":3,"read_only":true,"v":1}'


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{}",
        b'{"v":1}',
        b'{"v":1,"item":5}',
        b'{"v":1,"item":{"type":"message"}}',
        b'{"v":1,"started":"0"}',
    ],
)
def test_a_damaged_record_is_damage(record: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        Journal.of([finished(call()), record])


def test_a_record_from_a_newer_version_is_refused() -> None:
    with pytest.raises(StoreTooNew):
        Journal.of([b'{"v":2,"paused":true}'])


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


def test_every_state_has_its_moves() -> None:
    assert set(MOVES) == set(AttemptState)


def test_the_legal_moves_are_these() -> None:
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
def test_a_move_is_legal_or_raises(before: AttemptState, after: AttemptState) -> None:
    given = attempt(before)
    if after in MOVES[before]:
        assert given.moved(after) == replace(given, state=after)
    else:
        with pytest.raises(ValueError, match=f"from {before} to {after}"):
            given.moved(after)


def test_every_state_can_become_one_that_no_move_leaves() -> None:
    for state in AttemptState:
        reached = {state}
        for _ in AttemptState:
            reached |= {after for before in reached for after in MOVES[before]}
        assert any(not MOVES[each] for each in reached)


def test_nothing_ever_runs_again() -> None:
    assert all(AttemptState.RUNNING not in after for after in MOVES.values())


def test_committed_means_that_there_is_a_turn() -> None:
    assert {state for state in AttemptState if state.is_committed} == {
        AttemptState.COMPLETED,
        AttemptState.KEPT,
        AttemptState.SETTLED,
    }
    assert not any(MOVES[state] for state in AttemptState if state.is_committed)


def test_a_move_changes_state_failure_and_end_only() -> None:
    moved = attempt().moved(AttemptState.FAILED, failure=FAILURE, at=20)
    changed = {name for name, value in asdict(moved).items() if value != asdict(attempt())[name]}
    assert changed == {"state", "failure", "ended_at"}
    assert (moved.failure, moved.ended_at) == (FAILURE, 20)


def test_a_later_move_keeps_the_failure_and_the_end() -> None:
    settled = attempt().moved(AttemptState.FAILED, failure=FAILURE, at=20).moved(AttemptState.SETTLED)
    assert (settled.failure, settled.ended_at) == (FAILURE, 20)


def test_an_attempt_can_end_at_time_zero() -> None:
    assert attempt().moved(AttemptState.FAILED, at=0).ended_at == 0


def test_the_body_holds_input_and_partial_text() -> None:
    body = codec.decode(AttemptBody, attempt().body)
    assert codec.items(body.input) == (user(),)
    assert body.partial == "so f"
    assert body.given is None
    assert b"instruct" not in attempt().body


@pytest.mark.parametrize("items", [(), (message("system", "Be brief."),)])
@pytest.mark.parametrize("is_lasting", [True, False])
def test_the_body_holds_the_instructions_it_was_begun_with(items: tuple[Item, ...], is_lasting: bool) -> None:
    given = Instructions(items, is_lasting)
    body = codec.decode(AttemptBody, replace(attempt(), instructions=given).body)
    assert body.given == given
    assert codec.items(body.input) == (user(),)
