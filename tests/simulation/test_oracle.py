"""The oracle of the simulator accepts correct and rejects incorrect transcripts and event streams."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from turnledger.model.conversation import Branch
from turnledger.model.event import Event, TextDelta, TurnFinished, TurnStarted
from turnledger.model.ids import BranchId, ConversationId, IdSource, TurnId
from turnledger.model.item import Item, closing_results, message, result_of
from turnledger.model.turn import AttemptState, Turn, TurnKind
from turnledger.testing.simulation.clients.readers import Listener
from turnledger.testing.simulation.clients.resend_check import check_resent
from turnledger.testing.simulation.clients.transcript import Message, SentHistory, messages_of, words_of
from turnledger.testing.simulation.oracle.agreement import agrees, begins_with
from turnledger.testing.simulation.oracle.line_promises import RestingBranch
from turnledger.testing.simulation.world import ClientRequest, Hidden, RequestKind, World

IDS = IdSource(lambda: 0, Random(0).getrandbits)
CONVERSATION, BRANCH = IDS.new(ConversationId), IDS.new(BranchId)
QUESTION, ANSWER = 0, 1


def line_of(*tokens: str) -> list[Turn]:
    turns: list[Turn] = []
    for number, token in enumerate(tokens, 1):
        turn = Turn.of(
            id=IDS.new(TurnId),
            branch=BRANCH,
            number=number,
            parent=turns[-1].id if turns else None,
            kind=TurnKind.COMPLETED,
            created_at=0,
            committed_at=0,
            input=(message("user", token),),
            output=(message("assistant", f"answer to {token}"),),
        )
        turns.append(turn)
    return turns


def broken_by(turns: list[Turn], copy: list[Message], unseen: Hidden) -> list[str]:
    """Return the violations of the last turn, sent with this copy while `unseen` was hidden."""
    *before, last = turns
    question = {"role": "user", "content": last.input[0].text}
    resent = SentHistory(instructions=(), meant=(*copy, question), cut=0, is_whole=True, old=len(copy))
    world = World()
    drawn = ClientRequest.draw(Random(0), "c", ("alpha",))
    world.requests[last.id] = replace(drawn, kind=RequestKind.RESEND, resent=resent)
    world.places[last.id] = (BRANCH, BRANCH)
    world.heads[last.id] = before[-1].id
    world.unseen_at_begin[last.id] = unseen
    branch = Branch(id=BRANCH, conversation=CONVERSATION)
    return list(check_resent(world, [RestingBranch(CONVERSATION, branch, True, turns, [], {})]))


def test_oracle_accepts_an_unsent_turn_only_while_it_is_hidden_from_users() -> None:
    turns = line_of("a", "b", "c")
    hidden = frozenset({(turns[1].id, QUESTION), (turns[1].id, ANSWER)})
    assert not broken_by(turns, messages_of(turns[0]), hidden)
    assert broken_by(turns, messages_of(turns[0]), frozenset())


@pytest.mark.parametrize("place", [QUESTION, ANSWER])
def test_oracle_requires_the_visible_part_of_a_partly_hidden_turn_to_be_sent(place: int) -> None:
    turns = line_of("a", "b", "c")
    hidden = frozenset({(turns[1].id, place)})
    sent = messages_of(turns[1])
    assert not broken_by(turns, [*messages_of(turns[0]), sent[1 - place]], hidden)
    assert broken_by(turns, messages_of(turns[0]), hidden)


def test_oracle_accepts_a_hidden_turn_that_the_client_still_holds() -> None:
    turns = line_of("a", "b", "c")
    hidden = frozenset({(turns[0].id, QUESTION), (turns[0].id, ANSWER)})
    assert not broken_by(turns, [*messages_of(turns[0]), *messages_of(turns[1])], hidden)
    assert not broken_by(turns, messages_of(turns[1]), hidden)
    assert broken_by(turns, messages_of(turns[0]), hidden)


SAME = [("a", False), ("b", True), ("c", False)]


@pytest.mark.parametrize("received", ["abc", "ac"])
def test_transcript_without_its_optional_messages_agrees(received: str) -> None:
    assert agrees(received, SAME)


@pytest.mark.parametrize("received", ["", "ab", "bc", "abbc", "acc", "cab", "abcd"])
def test_transcript_with_lost_doubled_or_moved_messages_disagrees(received: str) -> None:
    assert not agrees(received, SAME)


def test_transcript_with_one_of_two_equal_messages_agrees_only_if_one_is_optional() -> None:
    assert agrees("aq", [("a", False), ("q", True), ("q", False)])
    assert not agrees("aq", [("a", False), ("q", False), ("q", False)])


def test_transcript_without_its_beginning_agrees_if_it_may_begin_late() -> None:
    assert agrees("c", SAME, may_begin_late=True)
    assert not agrees("a", SAME, may_begin_late=True)


def test_transcript_cut_at_its_end_is_accepted_as_a_beginning() -> None:
    assert begins_with("a", SAME)
    assert begins_with("ac", SAME)
    assert not begins_with("c", SAME)


END = TurnFinished(number=4, state=AttemptState.COMPLETED)
EVENTS: list[Event] = [
    TurnStarted(number=1),
    TextDelta(number=2, text="a"),
    TextDelta(number=3, text="b"),
    END,
]


def listener(*events: Event, in_own_process: bool = False, was_taken_over: bool = False) -> Listener:
    made = Listener(IDS.new(ConversationId), IDS.new(TurnId), was_taken_over=was_taken_over)
    for event in events:
        made.receive(event, in_own_process=in_own_process)
    return made


def test_listener_that_received_every_event_breaks_no_rule() -> None:
    assert list(listener(*EVENTS).problems(EVENTS)) == []


@pytest.mark.parametrize(
    ("events", "what"),
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
def test_listener_with_missing_doubled_or_changed_events_breaks_a_rule(
    events: list[Event], what: str
) -> None:
    assert any(what in problem for problem in listener(*events).problems(EVENTS))


def test_listener_in_a_crashed_process_may_have_received_unstored_events() -> None:
    left: list[Event] = [EVENTS[0], TurnFinished(number=2, state=AttemptState.FAILED)]
    events = [*EVENTS[:3], left[1]]
    assert list(listener(*events, in_own_process=True, was_taken_over=True).problems(left)) == []
    assert list(listener(*events, in_own_process=True).problems(left)) != []
    assert list(listener(*events, was_taken_over=True).problems(left)) != []


def test_listener_dismissed_by_a_chat_deletion_may_miss_the_end() -> None:
    dismissed = listener(*EVENTS[:3])
    dismissed.was_refused = True
    assert list(dismissed.problems(EVENTS)) == []


def turn(input: list[Item], output: list[Item]) -> Turn:
    return Turn.of(
        id=IDS.new(TurnId),
        branch=IDS.new(BranchId),
        number=1,
        parent=None,
        kind=TurnKind.COMPLETED,
        created_at=0,
        committed_at=0,
        input=tuple(input),
        output=tuple(output),
    )


def call(call_id: str) -> Item:
    return Item.of({"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"})


def test_displayed_transcript_omits_tool_calls_with_their_results() -> None:
    done = call("c")
    output = [
        message("assistant", "Let me see. "),
        done,
        result_of(done, "found"),
        message("assistant", "Yes."),
    ]
    assert messages_of(turn([message("user", "q")], output)) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "Let me see. Yes."},
    ]


def test_displayed_transcript_includes_an_open_call_and_omits_closing_results() -> None:
    left = call("c")
    shown: list[dict[str, Any]] = messages_of(turn([*closing_results([left]), message("user", "q")], [left]))
    assert [each["role"] for each in shown] == ["user", "assistant"]
    assert [each["id"] for each in shown[1]["tool_calls"]] == ["c"]


def test_transcript_words_ignore_message_boundaries_and_tool_results() -> None:
    whole = [{"role": "user", "content": " a b "}, {"role": "assistant", "content": "c d"}]
    pieces = [
        {"role": "user", "content": "a b"},
        {"role": "assistant", "content": "c "},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "assistant", "content": "d"},
    ]
    assert words_of(whole) == words_of(pieces) == [("user", "a b"), ("assistant", "c"), ("assistant", "d")]
