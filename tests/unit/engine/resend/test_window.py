"""Where a request could begin in a line, what its client has trimmed there, and how it reads along a turn."""

from typing import Any

import pytest

from tests.unit.engine.copies import ALL, INTERRUPTED, LINE, asked, chat, plain, tool_call, turn
from tests.unit.model.shapes import call, reasoning, result
from turnledger.engine.resend.transcript import BACKWARDS, FORWARDS, ClientTranscript
from turnledger.engine.resend.window import (
    MessageLine,
    Spot,
    common_lengths,
    find,
    is_telling,
    windows,
    words_of_request,
)
from turnledger.model.item import message
from turnledger.model.messages.projection import ClientForm, Said
from turnledger.model.turn import Turn, TurnKind

BROUGHT = [
    turn(1, [message(each["role"], each["content"]) for each in ALL[:5]], [message("assistant", "a3")])
]


def spot(turn: int, place: int, piece: int = 0, form: ClientForm = ClientForm.SEEN) -> Spot:
    return Spot(turn, form, place, piece)


def test_the_longest_window_is_where_most_stands_in_a_row() -> None:
    found = {window.spot: window.length for window in windows(LINE, ClientTranscript(ALL[2:5]))}
    assert found == {spot(0, 0): 0, spot(1, 0): 3}


def test_what_stands_at_the_beginning_is_no_other_window() -> None:
    assert [window.length for window in windows(LINE, ClientTranscript(ALL))] == [6]


def test_a_window_may_begin_in_the_middle_of_an_answer() -> None:
    rows = [*plain("q1", "a1"), turn(2, [], [message("assistant", text) for text in ("One.", "Two.")])]
    found = [window.spot for window in windows(rows, ClientTranscript([*chat("-", "Two.")[1:], asked("q")]))]
    assert spot(1, 0, 1) in found
    first = [
        window.spot for window in windows(rows[1:], ClientTranscript([*chat("-", "Two.")[1:], asked("q")]))
    ]
    assert first == [spot(0, 0), spot(0, 0, 1)]


def test_a_window_may_begin_with_the_calls_behind_a_text() -> None:
    line = [turn(1, [message("user", "q")], [message("assistant", "Let me see."), call("a")])]
    asks = {"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}
    found = [window.spot for window in windows(line, ClientTranscript([asks]))]
    assert spot(0, 1, 1) in found
    assert spot(0, 1, 1).before(line) == line[0].items[:2]


def test_answers_in_a_row_are_tried_as_one_and_apart() -> None:
    sent = ClientTranscript([ALL[1], ALL[3], *ALL[4:]])
    assert {window.spot for window in windows(LINE, sent) if window.length} == {spot(0, 1)}
    assert find(LINE, sent, 0) == spot(0, 1)


@pytest.mark.parametrize(("place", "kept"), [(0, 0), (1, 1), (4, 4), (5, 5)])
def test_what_was_trimmed_of_a_turn_is_what_stands_before_the_spot(place: int, kept: int) -> None:
    assert spot(0, place).before(BROUGHT) == BROUGHT[0].items[:kept]


def test_reasoning_is_not_kept_without_what_it_led_to() -> None:
    line = [turn(1, [message("user", "q")], [reasoning(), message("assistant", "a")])]
    assert spot(0, 1).before(line) == line[0].items[:1]


def test_the_results_of_hidden_calls_keep_these_if_the_client_holds_them() -> None:
    items = [message("user", "q"), call("a"), result("a"), message("assistant", "a"), message("user", "r")]
    line = [turn(1, items, [message("assistant", "b")]).hiding(frozenset({1, 2}))]
    assert spot(0, 2, form=ClientForm.HELD).before(line) == tuple(items[:2])
    assert spot(0, 1, form=ClientForm.SEEN).before(line) == tuple(items[:1])


def test_what_is_left_of_a_turn_begins_with_the_spot() -> None:
    cut = spot(0, 3).cut(BROUGHT)
    assert [entry.pieces for entry in cut.input] == [("a2",), ("q3",)]
    assert [entry.pieces for entry in cut.output] == [("a3",)]
    (left,) = spot(0, 5).cut(BROUGHT, ("3",)).output
    assert left.pieces == ("3",)


def test_a_message_is_found_by_what_agrees_at_the_same_distance() -> None:
    assert find(LINE, ClientTranscript(chat("-", "a1", "x", "a2", "y")[1:]), None) == spot(0, 1)
    assert find(LINE, ClientTranscript(chat("-", "a1", "x", "y", "z")[1:]), None) is None
    assert find(LINE, ClientTranscript(chat("-", "a1", "x", "y", "z")[1:]), 0) == spot(0, 1)
    assert find(LINE, ClientTranscript(chat("-", "a1", "x", "y", "z")[1:]), 1) is None


def test_of_several_places_the_first_is_found() -> None:
    line = plain("q1", "yes", "q2", "no", "q1", "yes", "q2", "no")
    assert find(line, ClientTranscript(chat("-", "yes", "q2")[1:]), None) == spot(0, 1)


def test_a_message_that_says_enough_is_no_chance() -> None:
    assert is_telling(ClientTranscript([asked("sixteen letters, or more")]))
    assert not is_telling(ClientTranscript([asked("a few letters.")]))
    assert not is_telling(ClientTranscript([]))
    calls = [tool_call("a", '{"city": "Paris"}')]
    assert is_telling(ClientTranscript([{"role": "assistant", "tool_calls": calls}]))


def test_what_is_hidden_is_found_as_it_was_and_as_it_is() -> None:
    line = [LINE[0].hiding(frozenset({1})), *LINE[1:]]
    assert [words[1] for words in MessageLine.of(line).words][:2] == ["q1", "q2"]
    assert MessageLine.of(line, ClientForm.HELD).words == MessageLine.of(LINE).words
    assert find(line, ClientTranscript(ALL[1:3]), None) == spot(0, 1, form=ClientForm.HELD)


def test_lengths_are_counted_for_each_place() -> None:
    sent = words_of_request(ClientTranscript(chat("x", "y")))
    line = words_of_request(ClientTranscript(chat("x", "y", "x", "z", "x", "y")))
    assert common_lengths(sent, line) == [2, 0, 1, 0, 2, 0]


SYSTEM = {"role": "system", "content": "Be kind."}
(TURN,) = plain("q", "a")


def through(request: ClientTranscript, turn: Turn, place: int, step: int) -> set[int]:
    return request.through(turn.kind, turn.shown, place, step)


def test_it_begins_behind_its_instructions() -> None:
    request = ClientTranscript([SYSTEM, SYSTEM, *chat("q", "a"), SYSTEM])
    assert request.first == 2
    assert request.is_over(2, BACKWARDS)
    assert not request.is_over(3, BACKWARDS)
    assert request.is_over(4, FORWARDS)
    assert not request.is_over(3, FORWARDS)


def test_what_says_nothing_is_passed_over() -> None:
    request = ClientTranscript([asked("q"), SYSTEM, asked(" "), asked("r")])
    assert request.next(1, FORWARDS) == (Said("user", "r"), 4)
    assert request.next(3, BACKWARDS) == (Said("user", "q"), 0)
    assert request.is_behind_something(1)
    assert not request.is_behind_something(2)


@pytest.mark.parametrize(
    "sent", [chat("q", "a"), chat(" q", "a "), [asked("q"), SYSTEM, *chat("-", "a")[1:]]]
)
def test_a_turn_leads_from_one_end_to_the_other(sent: list[dict[str, Any]]) -> None:
    request = ClientTranscript(sent)
    assert through(request, TURN, 0, FORWARDS) == {len(sent)}
    assert through(request, TURN, len(sent), BACKWARDS) == {0}


def test_what_says_something_else_leads_nowhere() -> None:
    for sent in (chat("q", "b"), chat("r", "a"), chat("q", "a")[::-1], [asked("q"), asked("a")]):
        assert through(ClientTranscript(sent), TURN, 0, FORWARDS) == set()


def test_only_backwards_may_a_request_begin_within_a_turn() -> None:
    request = ClientTranscript(chat("q", "a")[1:])
    assert through(request, TURN, 1, BACKWARDS) == {0}
    assert through(request, TURN, 0, FORWARDS) == set()


def test_a_turn_that_did_not_end_well_leads_to_all_that_may_be_held_of_it() -> None:
    cut = turn(
        1, [message("user", "q"), message("user", "r")], [message("assistant", "It left the")], INTERRUPTED
    )
    request = ClientTranscript([asked("q"), asked("r"), *chat("-", "It left")[1:]])
    assert through(request, cut, 0, FORWARDS) == {0, 1, 2, 3}
    assert through(request, cut, 3, BACKWARDS) == {3, 2, 1, 0}
    assert through(ClientTranscript(chat("other", "text")), cut, 0, FORWARDS) == {0}


def test_results_are_read_from_the_middle_only_at_the_edge() -> None:
    results = turn(1, [result("a", output="1"), result("b", output="2")], [message("assistant", "3")])
    two = {"role": "tool", "tool_call_id": "x", "content": "2"}
    three = {"role": "assistant", "content": "3"}
    assert through(ClientTranscript([two, three]), results, 2, BACKWARDS) == {0}
    assert through(ClientTranscript([asked("q"), two, three]), results, 3, BACKWARDS) == set()


def test_echoes_are_read_back_as_far_as_they_go() -> None:
    line = plain("q1", "a1", "q2", "a2", "q3", "a3")
    assert ClientTranscript(chat("q1", "a1", "q2", "a2")).past_echoes(line, 2, 4) == (0, 0)
    assert ClientTranscript(chat("q1", "b1", " q2", "a2")).past_echoes(line, 2, 4) == (1, 2)
    assert ClientTranscript([SYSTEM, *chat("-", "a1", "q2", "a2")[1:]]).past_echoes(line, 2, 4) == (1, 2)
    assert ClientTranscript(chat("q1", "a1")).past_echoes([turn(1, [], [], TurnKind.SETTLED)], 1, 2) == (1, 2)
