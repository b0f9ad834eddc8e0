"""The journal tells which calls were started, which were answered, and whether a tool may have acted."""

import pytest
from hypothesis import given

from tests.unit.model.shapes import assistant, call, journals, repeatable, result
from turnledger.errors import StoreCorrupt, StoreTooNew
from turnledger.model.journal import Journal, finished, started


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
