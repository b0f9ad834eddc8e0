"""However much of its beginning a client has trimmed, and whatever it edits: the beginning stays."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.engine.copies import (
    ALL,
    ANSWERED,
    INTERRUPTED,
    LINE,
    SETTLED,
    asked,
    chat,
    id,
    plain,
    tool_call,
    turn,
)
from tests.unit.model.shapes import call, result
from turnledger.engine.resend.match import Continuation, MatchedEdit, Regeneration, decide
from turnledger.model.item import message
from turnledger.model.turn import Turn


def test_a_trimmed_request_with_an_edit_keeps_the_beginning() -> None:
    assert decide(LINE, chat("q2", "a2", "other")) == MatchedEdit(id(2), 2)
    assert decide(LINE, chat("q2", "other", "q3")) == MatchedEdit(id(1), 0)
    assert decide(LINE, [*ALL[3:4], asked("other")]) == MatchedEdit(id(2), 1)


def test_a_trimmed_request_whose_first_question_was_edited_keeps_the_beginning() -> None:
    assert decide(LINE, chat("other", "a2", "q3", "a3", "q4")) == MatchedEdit(id(1), 0)


def test_a_trimmed_request_with_two_edits_keeps_the_beginning() -> None:
    line = plain("q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4")
    assert decide(line, chat("other", "a2", "q3", "a3", "edited")) == MatchedEdit(id(1), 0)
    assert decide(line, chat("-", "other", "q3", "a3", "edited")[1:]) == MatchedEdit(
        id(1), 0, kept=line[1].input
    )
    assert decide(line, chat("-", "other", "q3", "a3", "q4", "a4", "q5")[1:]) == MatchedEdit(
        id(1), 0, kept=line[1].input
    )


def test_a_request_that_shares_one_answer_by_chance_is_a_history_of_its_own() -> None:
    assert decide(LINE, chat("other", "a3", "more", "and", "more")) == MatchedEdit(None, 0)


CUT = plain("q1", "The first answer", "q2", "The second answer", "q3", "a3", "q4", "a4")


@pytest.mark.parametrize("cut", ["cond answer", "The second ans"])
def test_an_answer_that_was_cut_by_letters_may_begin_a_trimmed_request(cut: str) -> None:
    begin = chat("-", cut)[1:]
    assert decide(CUT, [*begin, *chat("q3", "a3", "other")]) == MatchedEdit(id(3), 3)
    assert decide(CUT, [*begin, asked("other")]) == MatchedEdit(id(2), 1)
    assert decide(CUT, [*begin, *chat("q3", "a3", "q4")]) == Regeneration(id(4))
    assert decide(CUT, [*begin, *chat("q3", "a3", "q4", "a4", "q5")]) == Continuation(5)


def test_what_follows_a_cut_answer_says_which_one_it_is() -> None:
    begin = chat("-", "answer")[1:]
    assert decide(CUT, [*begin, *chat("q2", "The second answer", "other")]) == MatchedEdit(id(2), 3)
    assert decide(CUT, [*begin, *chat("q3", "a3", "other")]) == MatchedEdit(id(3), 3)


# Turns of several exchanges


def several(number: int, *texts: str) -> Turn:
    """A turn whose input holds exchanges that its client has brought along."""
    *input, answer = chat(*texts)
    return turn(
        number,
        [message(each["role"], each["content"]) for each in input],
        [message("assistant", answer["content"])],
    )


LONG = "A rather long answer to it"
BROUGHT = several(1, "q1", "a1", "q2", "a2", "q3", "a3")
LATER = [*plain("x", "y"), several(2, "q1", "a1", "q2", "a2", "q3", "a3"), *plain(*"----", "q4", "a4")[2:]]


@pytest.mark.parametrize("line", [[BROUGHT], LATER])
@pytest.mark.parametrize("begin", range(5))
def test_an_edit_within_such_a_turn_keeps_what_was_trimmed_of_it(line: list[Turn], begin: int) -> None:
    before, brought = (line[0].id, line[1]) if line is LATER else (None, BROUGHT)
    edited = [*ALL[:4], asked("other")]
    kept = brought.items[: begin if begin < 4 else 0]
    if begin < 4:
        assert decide(line, edited[begin:]) == MatchedEdit(before, 0, kept=kept)
    assert decide(line, [*edited[begin:], *chat("-", "a3", "q4")[1:]]) == MatchedEdit(
        before, 0, kept=brought.items[:begin]
    )


def test_its_questions_asked_again_keep_what_was_trimmed_of_it() -> None:
    assert decide([BROUGHT], ALL[1:3]) == MatchedEdit(None, 0, kept=BROUGHT.items[:1])
    assert decide([BROUGHT], ALL[3:5]) == Regeneration(BROUGHT.id)


def test_an_edited_answer_or_a_deleted_exchange_keeps_what_was_trimmed_before_it() -> None:
    edited = [{"role": "assistant", "content": "other"}, *ALL[4:], asked("q4")]
    assert decide([BROUGHT], edited) == MatchedEdit(None, 0, kept=BROUGHT.items[:3])
    deleted = [*ALL[1:2], *ALL[4:], asked("q4")]
    assert decide([BROUGHT], deleted) == MatchedEdit(None, 0, kept=BROUGHT.items[:1])


def test_an_answer_cut_by_letters_within_such_a_turn_stays_whole() -> None:
    line = [*plain("x", "y"), several(2, "q1", LONG, "q2", "a2")]
    cut = [{"role": "assistant", "content": "rather long answer to it"}, asked("other")]
    assert decide(line, cut) == MatchedEdit(id(1), 1, kept=line[1].items[:2])
    chance = [{"role": "assistant", "content": "it"}, asked("other")]
    assert decide(line, chance) == MatchedEdit(None, 0)


def test_a_cut_answer_without_the_calls_behind_it_is_another_one() -> None:
    line = [*plain("x", "y"), turn(2, [message("user", "q")], [message("assistant", LONG), call("a")])]
    cut = [{"role": "assistant", "content": LONG[2:]}, asked("other")]
    assert decide(line, cut) == MatchedEdit(id(1), 0, kept=line[1].input)


def test_within_a_turn_what_agrees_counts_more_than_a_question_that_was_settled() -> None:
    failed = turn(1, [message("user", "q2")], [message("developer", "It did not finish.")], SETTLED)
    line = [failed, several(2, "q1", "a1", "q2", "a2", "q3", "a3")]
    sent = [*ALL[2:4], asked("other")]
    assert decide(line, sent) == MatchedEdit(id(1), 0, kept=line[1].items[:2])


def test_calls_behind_a_text_may_begin_a_trimmed_request() -> None:
    tools = [message("user", "q1"), message("assistant", "Let me see."), call("a"), result("a", output="1")]
    line = [
        turn(1, [*tools, message("assistant", "a1"), message("user", "q2")], [message("assistant", "a2")])
    ]
    asks = {"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}
    found = {"role": "tool", "tool_call_id": "a", "content": "1"}
    sent = [asks, found, *chat("-", "a1", "other")[1:]]
    assert decide(line, sent) == MatchedEdit(None, 0, kept=tuple(tools[:2]))
    assert decide(line, [asks, found, *chat("-", "a1", "q2")[1:]]) == Regeneration(id(1))


# Edits at the edge


def test_an_edited_answer_at_the_edge_keeps_its_question() -> None:
    edited = [{"role": "assistant", "content": "other"}, *ALL[4:], asked("q4")]
    assert decide(LINE, edited) == MatchedEdit(id(1), 0, kept=LINE[1].input)


def test_of_messages_in_a_row_only_the_edited_ones_are_replaced() -> None:
    row = turn(2, [message("user", "one"), message("user", "two")], [message("assistant", "a2")])
    line = [*plain("q1", "a1"), row, *plain(*"----", "q3", "a3")[2:]]
    behind = chat("-", "a2", "q3", "a3", "q4")[1:]
    assert decide(line, [asked("2"), *behind]) == MatchedEdit(id(1), 0, kept=row.items[:1])
    assert decide(line, [asked("1"), asked("two"), *behind]) == MatchedEdit(id(1), 0)
    assert decide(line, [asked("1"), asked("2"), *behind]) == MatchedEdit(id(1), 0)


def test_answers_in_a_row_that_a_client_told_are_replaced_one_by_one() -> None:
    answers = [message("assistant", "one"), message("assistant", "two")]
    behind = chat("q2", "a2", "q3")
    told = turn(2, [message("user", "q1"), *answers, message("user", "q2")], [message("assistant", "a2")])
    edited = [{"role": "assistant", "content": "other"}, *behind]
    assert decide([*plain("x", "y"), told], edited) == MatchedEdit(id(1), 0, kept=told.items[:2])
    here = [turn(1, [message("user", "q1")], answers), *plain("-", "-", "q2", "a2")[1:]]
    assert decide(here, edited) == MatchedEdit(None, 0, kept=here[0].items[:1])


def test_an_edited_result_at_the_edge_keeps_those_before_it() -> None:
    line = [*ANSWERED, *plain(*"----", "q2", "a2")[2:]]
    sent = [{"role": "tool", "tool_call_id": "b", "content": "other"}, *chat("-", "3", "q2", "a2", "q3")[1:]]
    assert decide(line, sent) == MatchedEdit(id(1), 0, kept=line[1].items[:1])


def test_edits_of_every_question_are_placed_by_the_answers_between_them() -> None:
    line = plain("[Monday] q1", "a1", "[Monday] q2", "a2", "[Monday] q3", "a3")
    assert decide(line, chat("q2", "a2", "q3", "a3", "[Tuesday] q4")) == MatchedEdit(id(1), 0)


def test_edits_around_a_single_answer_are_placed_by_it_if_it_says_enough() -> None:
    line = plain("q1", "a1", "q2", "An answer of some length", "q3", "a3")
    assert decide(line, chat("other", "An answer of some length", "edited")) == MatchedEdit(id(1), 0)
    call_it = [turn(3, [message("user", "q3")], [call("c", name="look", arguments='{"city": "Paris"}')])]
    asks = {"id": "z", "type": "function", "function": {"name": "look", "arguments": '{"city":"Paris"}'}}
    sent = [asked("other"), {"role": "assistant", "tool_calls": [asks]}, asked("edited")]
    assert decide([*line[:2], *call_it], sent) == MatchedEdit(id(2), 0)


def test_an_answer_may_stand_behind_another_because_what_was_between_was_deleted() -> None:
    assert decide(LINE, [ALL[1], *ALL[3:], asked("q4")]) == MatchedEdit(id(1), 1)
    brought = several(1, "q1", "a1", "q2", "a2", "q3", "a3")
    assert decide([brought], [ALL[1], *ALL[3:], asked("q4")]) == MatchedEdit(None, 0, kept=brought.items[:1])
    greeted = turn(1, [message("assistant", "Hello."), *brought.items[:3]], [message("assistant", "a2")])
    sent = [{"role": "assistant", "content": "Hello."}, ALL[1], *ALL[2:4], asked("q4")]
    assert decide([greeted], sent) == MatchedEdit(None, 0)


def test_an_edit_at_the_edge_of_a_stopped_turn_takes_its_place() -> None:
    told = several(1, "q1", "a1", "q2", "a2")
    line = [
        turn(1, told.input, told.output, INTERRUPTED),
        turn(2, [message("user", "pay")], [call("s"), result("s")], SETTLED),
        *plain(*"----", "q3", "a3")[2:],
    ]
    edited = [{"role": "assistant", "content": "other"}, *chat("q2", "a2", "q3", "a3", "q4")]
    assert decide(line, edited) == MatchedEdit(None, 0, kept=told.items[:1])
    assert decide(line, [asked("other"), *ALL[1:], asked("q4")]) == MatchedEdit(None, 0)
    assert decide(line[:1], [*edited[:3], asked("q3")]) == MatchedEdit(None, 0, kept=told.items[:1])


def test_what_a_client_need_not_know_of_does_not_hide_what_was_edited() -> None:
    stopped = turn(2, [message("user", "stopped")], [], INTERRUPTED)
    line = [*plain("q1", "a1"), stopped, *plain(*"----", "q3", "a3")[2:]]
    edited = [{"role": "assistant", "content": "other"}, *chat("q3", "a3", "q4")]
    assert decide(line, edited) == MatchedEdit(None, 0, kept=line[0].input)


def test_an_edit_before_what_was_seen_of_an_answer_is_placed_by_it() -> None:
    stopped = turn(
        2, [message("user", "q2")], [message("assistant", "Let me see what there is")], INTERRUPTED
    )
    line = [*plain("q1", "a1"), stopped, *plain(*"----", "q3", "a3", "q4", "a4")[2:]]
    seen = chat("other", "Let me see what", "q3", "a3", "edited")
    assert decide(line, seen) == MatchedEdit(id(1), 0)


def test_an_edit_before_the_end_of_an_answer_is_placed_by_it() -> None:
    two = turn(2, [message("user", "q2")], [message("assistant", text) for text in ("One.", "Two.")])
    line = [*plain("q1", "a1"), two, *plain(*"----", "q3", "a3")[2:]]
    assert decide(line, chat("other", "Two.", "q3", "a3", "q4")) == MatchedEdit(id(1), 0)


PARTS = [message("assistant", text) for text in ("One is here.", "Two is there.", "Three is nowhere.")]


@pytest.mark.parametrize("behind", [[], plain("-", "-", "q2", "a2")[1:]], ids=["last", "earlier"])
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize(
    "texts",
    [
        ["One is here.", "Two is there.Three is nowhere."],
        ["One is here.", "Two is there.", "Three is nowhere."],
        ["One is here.Two is there.", "Three is nowhere."],
    ],
)
def test_a_question_between_the_parts_of_an_answer_is_an_edit_though_the_front_is_trimmed(
    behind: list[Turn], tools: bool, texts: list[str]
) -> None:
    output = [PARTS[0], *([call("s"), result("s")] if tools else []), *PARTS[1:]]
    asking = message("user", "q1")
    line = [turn(1, [asking], output), *behind]
    inserted = [each for text in texts for each in (asked("inserted"), chat("-", text)[1])][1:]
    tail = chat("q2", "a2", "new") if behind else [asked("new")]
    assert decide(line, [asked("q1"), *inserted, *tail]) == MatchedEdit(None, 0)
    assert decide(line, [*inserted, *tail]) == MatchedEdit(None, 0, kept=(asking,))


# Long lines


def test_more_absent_turns_than_are_looked_at_first_do_not_hide_the_window() -> None:
    stopped = [
        turn(number, [message("user", f"stopped {number}")], [], INTERRUPTED) for number in range(3, 100)
    ]
    line = [*plain("q1", "a1", "q2", "a2"), *stopped]
    assert decide(line, chat("q1", "a1", "q2", "a2", "new")) == Continuation(4)
    assert decide(line, chat("q2", "a2", "new")) == Continuation(2)


class Looked(Sequence[Turn]):
    """Turns that note which of them were looked at."""

    def __init__(self, turns: list[Turn]) -> None:
        self.turns = turns
        self.at: set[int] = set()

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, at: Any) -> Any:
        places = range(len(self.turns))[at]
        self.at |= set(places) if isinstance(at, slice) else {places}  # type: ignore[call-overload]
        return self.turns[at]


def test_a_short_request_looks_at_the_end_of_a_long_line_only() -> None:
    line = Looked(plain(*(f"{number}" for number in range(2_000))))
    assert decide(line, [*chat("1996", "1997", "1998", "1999"), asked("new")]) == Continuation(4)
    assert len(line.at) < 100
