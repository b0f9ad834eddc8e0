"""A listener knows what is wrong with what it heard."""

from __future__ import annotations

import pytest

from turnledger.model.attempt import AttemptState
from turnledger.model.event import Event, TextDelta, TurnFinished, TurnStarted
from turnledger.model.ids import ConversationId, IdSource, TurnId
from turnledger.testing.simulation.clients.reader import Listener

IDS = IdSource(lambda: 0, lambda bits: 1)
END = TurnFinished(number=4, state=AttemptState.COMPLETED)
EVENTS: list[Event] = [
    TurnStarted(number=1),
    TextDelta(number=2, text="a"),
    TextDelta(number=3, text="b"),
    END,
]


def listener(*heard: Event, in_its_process: bool = False, was_taken_over: bool = False) -> Listener:
    made = Listener(IDS.new(ConversationId), IDS.new(TurnId), was_taken_over=was_taken_over)
    for event in heard:
        made.hear(event, in_its_process=in_its_process)
    return made


def test_all_of_it_is_well() -> None:
    assert list(listener(*EVENTS).broken_by(EVENTS)) == []


@pytest.mark.parametrize(
    ("heard", "what"),
    [
        (EVENTS[:1] + EVENTS[2:], "gaps"),
        (EVENTS[:2] + EVENTS[1:], "gaps"),
        (EVENTS[1:], "gaps"),
        (EVENTS[:3], "end"),
        ([*EVENTS, END], "after its end"),
        ([EVENTS[0], TextDelta(number=2, text="x"), *EVENTS[2:]], "otherwise"),
        ([*EVENTS[:3], TurnFinished(number=4, state=AttemptState.FAILED)], "otherwise"),
    ],
)
def test_anything_else_is_told(heard: list[Event], what: str) -> None:
    assert any(what in problem for problem in listener(*heard).broken_by(EVENTS))


def test_what_died_with_its_process_may_have_been_heard_there() -> None:
    left: list[Event] = [EVENTS[0], TurnFinished(number=2, state=AttemptState.FAILED)]
    heard = [*EVENTS[:3], left[1]]
    assert list(listener(*heard, in_its_process=True, was_taken_over=True).broken_by(left)) == []
    assert list(listener(*heard, in_its_process=True).broken_by(left)) != []
    assert list(listener(*heard, was_taken_over=True).broken_by(left)) != []


def test_who_was_sent_away_since_the_chat_was_deleted_need_not_hear_the_end() -> None:
    heard = listener(*EVENTS[:3])
    heard.was_sent_away = True
    assert list(heard.broken_by(EVENTS)) == []
