"""What a client meant is all of its copy, with nothing in between but what it could not know of."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from turnledger.model.conversation import Branch
from turnledger.model.ids import BranchId, ConversationId, IdSource, TurnId
from turnledger.model.item import message
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.simulation.clients.meaning import broken_by_resent
from turnledger.testing.simulation.clients.transcript import Message, SentHistory, shown_as
from turnledger.testing.simulation.oracle.promises import RestingBranch
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
    """What is said of the last turn, asked for with this copy while that was hidden from its user."""
    *before, last = turns
    asked = {"role": "user", "content": last.input[0].text}
    resent = SentHistory(instructions=(), meant=(*copy, asked), cut=0, is_whole=True, old=len(copy))
    world = World()
    drawn = ClientRequest.draw(Random(0), "c", ("alpha",))
    world.asked[last.id] = replace(drawn, kind=RequestKind.RESEND, resent=resent)
    world.places[last.id] = (BRANCH, BRANCH)
    world.heads[last.id] = before[-1].id
    world.unseen_at_begin[last.id] = unseen
    branch = Branch(id=BRANCH, conversation=CONVERSATION)
    return list(broken_by_resent(world, [RestingBranch(CONVERSATION, branch, True, turns, [], {})]))


def test_a_turn_that_its_client_did_not_send_may_stand_there_only_while_it_is_hidden_from_users() -> None:
    turns = line_of("a", "b", "c")
    hidden = frozenset({(turns[1].id, QUESTION), (turns[1].id, ANSWER)})
    assert not broken_by(turns, shown_as(turns[0]), hidden)
    assert broken_by(turns, shown_as(turns[0]), frozenset())


@pytest.mark.parametrize("place", [QUESTION, ANSWER])
def test_what_is_not_hidden_of_a_turn_has_to_be_sent(place: int) -> None:
    turns = line_of("a", "b", "c")
    hidden = frozenset({(turns[1].id, place)})
    sent = shown_as(turns[1])
    assert not broken_by(turns, [*shown_as(turns[0]), sent[1 - place]], hidden)
    assert broken_by(turns, shown_as(turns[0]), hidden)


def test_what_is_hidden_may_still_be_held_from_before() -> None:
    turns = line_of("a", "b", "c")
    hidden = frozenset({(turns[0].id, QUESTION), (turns[0].id, ANSWER)})
    assert not broken_by(turns, [*shown_as(turns[0]), *shown_as(turns[1])], hidden)
    assert not broken_by(turns, shown_as(turns[1]), hidden)
    assert broken_by(turns, shown_as(turns[0]), hidden)
