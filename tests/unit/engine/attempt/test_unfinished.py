"""A turn that did not end well is told truthfully, and so that a model accepts it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given

from tests.unit.engine.stage import attempt
from tests.unit.model.shapes import (
    assistant,
    call,
    journals,
    journals_not_thinking,
    reasoning,
    repeatable,
    result,
    user,
)
from turnledger.engine.attempt.end import is_well_formed
from turnledger.engine.attempt.unfinished import OUTCOME_UNKNOWN, kept, resumed, settled
from turnledger.model.item import Item, message
from turnledger.model.journal import Journal
from turnledger.model.messages.calls import NOT_STARTED, open_calls
from turnledger.model.turn import Failure
from turnledger.testing.store_contract.stage import answer_to

FAILURE = Failure("boom", "it broke.")
STARTED, READ_ONLY = False, True


def told(call_id: str, output: str) -> Item:
    return result(call_id, output=output)


def calls(items: tuple[Item, ...] | list[Item]) -> list[Item]:
    return [item for item in items if item.is_call]


def results(items: tuple[Item, ...] | list[Item]) -> list[Item]:
    return [item for item in items if item.is_result]


# Kept.


@repeatable
@given(journals)
def test_what_is_kept_is_well_formed_and_leaves_nothing_open(journal: Journal) -> None:
    assert open_calls((user(), *kept(journal, "so f"))) == ()
    assert open_calls((user(), *kept(journal, ""))) == ()


@repeatable
@given(journals)
def test_what_is_kept_is_all_that_was_finished_in_order(journal: Journal) -> None:
    output = kept(journal, "")
    finished = [item for item in journal.items if not item.is_reasoning]
    assert [item for item in output if not item.is_reasoning][: len(finished)] == finished
    assert set(output) >= set(finished)


@repeatable
@given(journals)
def test_what_is_kept_invents_a_result_for_unanswered_calls_only(journal: Journal) -> None:
    invented = Counter(results(kept(journal, ""))) - Counter(results(journal.items))
    assert sorted(item.call_id or "" for item in invented.elements()) == sorted(
        journal.items[place].call_id or "" for place in journal.unanswered()
    )


@repeatable
@given(journals)
def test_keeping_what_was_kept_changes_nothing(journal: Journal) -> None:
    output = kept(journal, "so f")
    assert kept(Journal(list(output), {}), "") == output


def test_an_unanswered_call_is_told_as_not_started_or_of_unknown_outcome() -> None:
    journal = Journal([call("a"), call("b"), call("c")], {0: STARTED, 2: READ_ONLY})
    assert kept(journal, "")[3:] == (
        told("a", OUTCOME_UNKNOWN),
        told("b", NOT_STARTED),
        told("c", OUTCOME_UNKNOWN),
    )


def test_the_words_say_what_is_known_and_never_cancelled() -> None:
    assert NOT_STARTED.startswith("Not started")
    assert "no effect" in NOT_STARTED
    assert OUTCOME_UNKNOWN.startswith("Started, outcome unknown")
    assert "may or may not" in OUTCOME_UNKNOWN
    assert "cancel" not in (NOT_STARTED + OUTCOME_UNKNOWN).lower()


def test_partial_text_comes_last_and_is_marked_incomplete() -> None:
    output = kept(Journal([call("a")]), "so f")
    assert output[-1] == message("assistant", "so f", status="incomplete")


def test_without_partial_text_there_is_no_empty_message() -> None:
    assert kept(Journal(), "") == ()
    assert kept(Journal([assistant()]), "") == (assistant(),)


def test_each_call_of_a_repeated_id_is_judged_by_itself() -> None:
    journal = Journal([call("a"), result("a"), call("a")], {0: STARTED})
    assert kept(journal, "") == (call("a"), result("a"), call("a"), told("a", NOT_STARTED))


def test_results_have_the_type_of_their_call() -> None:
    output = kept(Journal([call("a", "custom_tool_call")]), "")
    assert output[1].type == "custom_tool_call_output"


def test_reasoning_whose_item_never_came_is_dropped() -> None:
    assert kept(Journal([assistant(), reasoning("a"), reasoning("b")]), "") == (assistant(),)


def test_reasoning_is_dropped_when_a_stated_result_comes_between() -> None:
    journal = Journal([call("a"), reasoning()])
    assert kept(journal, "so f")[:2] == (call("a"), told("a", NOT_STARTED))
    assert not any(item.is_reasoning for item in kept(journal, "so f"))


def test_reasoning_stays_with_the_text_it_led_to() -> None:
    assert kept(Journal([reasoning()]), "so f")[0] == reasoning()


# Settled.


@repeatable
@given(journals)
def test_what_is_settled_is_well_formed_and_leaves_nothing_open(journal: Journal) -> None:
    assert open_calls((user(), *settled(journal, FAILURE))) == ()


@repeatable
@given(journals)
def test_what_is_settled_shows_each_call_that_may_have_acted_and_no_other(journal: Journal) -> None:
    acted = [journal.items[place] for place in sorted(journal.started) if not journal.started[place]]
    assert calls(settled(journal, FAILURE)) == acted


@repeatable
@given(journals)
def test_what_is_settled_has_the_recorded_results_and_states_the_others(journal: Journal) -> None:
    acted = [place for place, read_only in journal.started.items() if not read_only]
    answers = [journal.answers().get(place) for place in acted]
    shown = Counter(item.fields["output"] for item in results(settled(journal, FAILURE)))
    assert shown == Counter(item.fields["output"] if item else OUTCOME_UNKNOWN for item in answers)


@repeatable
@given(journals)
def test_what_is_settled_keeps_no_text_of_the_draft(journal: Journal) -> None:
    output = settled(journal, FAILURE)
    assert [item.role for item in output if item.type == "message"] == ["developer"]
    assert output[-1].role == "developer"


@repeatable
@given(journals)
def test_what_is_settled_keeps_reasoning_only_before_a_call_it_shows(journal: Journal) -> None:
    output = settled(journal, FAILURE)
    for item, after in pairwise(output):
        assert not item.is_reasoning or after.is_reasoning or after.is_call


def test_read_only_calls_are_not_settled() -> None:
    items = [call("a"), call("b"), result("a"), result("b")]
    output = settled(Journal(items, {0: READ_ONLY, 1: STARTED}), FAILURE)
    assert output[:-1] == (call("b"), result("b"))


def test_the_note_gives_the_reason() -> None:
    journal = Journal([call("a"), result("a")], {0: STARTED})
    assert "did not finish: it broke. The" in settled(journal, FAILURE)[-1].text
    assert "did not finish: it was stopped. The" in settled(journal, None)[-1].text


def test_the_note_does_not_claim_that_a_call_of_unknown_outcome_ran() -> None:
    output = settled(Journal([call("a")], {0: STARTED}), FAILURE)
    assert output[1] == told("a", OUTCOME_UNKNOWN)
    assert "did run" not in output[-1].text


def test_reasoning_goes_with_the_call_it_led_to() -> None:
    items = [reasoning("a"), call("a"), reasoning("b"), call("b"), result("a"), result("b")]
    assert settled(Journal(items, {1: READ_ONLY, 3: STARTED}), None)[:-1] == (
        reasoning("b"),
        call("b"),
        result("b"),
    )


# Resumed.


@repeatable
@given(journals_not_thinking)
def test_a_resumed_journal_is_well_formed_and_leaves_only_what_was_not_started(journal: Journal) -> None:
    left = open_calls((user(), *journal.items, *resumed(journal)))
    not_started = [place for place in journal.unanswered() if place not in journal.started]
    assert list(left) == [journal.items[place] for place in not_started]


@repeatable
@given(journals)
def test_a_resumed_journal_states_each_started_call_once(journal: Journal) -> None:
    stated = resumed(journal)
    started = [journal.items[place] for place in journal.unanswered() if place in journal.started]
    assert [item.call_id for item in stated] == [item.call_id for item in started]
    assert all(item.fields["output"] == OUTCOME_UNKNOWN for item in stated)
    again = Journal([*journal.items, *stated], journal.started)
    assert resumed(again) == ()


@pytest.mark.parametrize("start", [STARTED, READ_ONLY])
def test_a_journal_that_ends_in_reasoning_can_be_resumed(start: bool) -> None:
    # A tool started while the model went on: the stated result must not stand behind the reasoning.
    journal = Journal.taken_up(Journal([call("a"), reasoning()], {0: start}).records)
    steps = [*journal.items, *resumed(journal)]
    assert open_calls((user(), *steps, assistant())) == ()


def test_attempt_with_a_result_of_no_call_is_not_kept_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranded = attempt(1, input=(answer_to("c1", "42"),))
    assert not is_well_formed((), stranded, Journal())
    assert f"{stranded.id} cannot be kept" in caplog.text
    assert is_well_formed((), attempt(1), Journal())
