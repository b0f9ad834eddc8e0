"""Reading a request along a turn, either way, leads to where that turn ends in it."""

from typing import Any

import pytest

from tests.unit.engine.copies import INTERRUPTED, asked, chat, plain, turn
from tests.unit.model.shapes import result
from turnledger.engine.resend.transcript import BACKWARDS, FORWARDS, ClientTranscript
from turnledger.model.item import message
from turnledger.model.messages.projection import Said
from turnledger.model.turn import Turn, TurnKind

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
