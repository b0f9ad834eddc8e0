"""Meaning: what a client meant by the history that it sent, held against the line that its turn stands on.

A client means all of its own copy, however much of it it sends: nothing of it may be lost, nothing doubled,
and nothing that it does not know may come in between, but for what did not end well and what is hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from turnledger.engine.resend.match import Sent
from turnledger.engine.turn.resend import OnDivergence
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.simulation.clients.transcript import (
    Message,
    SentHistory,
    Word,
    answer_messages,
    input_messages,
    messages_of,
    words_of,
    words_of_item,
)
from turnledger.testing.simulation.oracle.agreement import agrees, begins_with
from turnledger.testing.simulation.oracle.promises import RestingBranch
from turnledger.testing.simulation.world import Hidden, World

Entry = tuple[Word, bool]


def check_resent(world: World, lines: Sequence[RestingBranch]) -> Iterator[str]:
    """The turns whose line is not what the client meant that asked for them."""
    by_branch = {line.branch.id: line for line in lines}
    for line in lines:
        for place, turn in enumerate(line.turns):
            ask = world.requests.get(turn.id)
            is_here = turn.branch == line.branch.id and turn.kind is not TurnKind.SETTLED
            if ask is None or ask.resent is None or not is_here:
                continue
            unseen = world.unseen_at_begin.get(turn.id, frozenset())
            before = _entries(line.turns[:place], unseen)
            told = [*before, *((word, False) for word in words_of(input_messages(turn)))]
            began_on = _line_at_begin(world, by_branch, turn.id)
            yield from _check_turn(turn, ask.resent, told, began_on, unseen)
            if ask.resent.note is not None and ask.resent.note[1]["content"] not in map(_said, turn.input):
                yield f"{turn.id} was not told the note that its client inserted"
            if place and _answers_twice(line.turns[place - 1], turn, ask.resent):
                yield f"{turn.id} begins with another answer than {line.turns[place - 1].id} has"
            lane, target = world.places[turn.id]
            may_branch = ask.resent.on_divergence is OnDivergence.BRANCH
            if lane != target and not may_branch and not _is_question(ask.resent, began_on, unseen):
                yield f"{turn.id} is on a branch of its own, and was not to be"


def _said(item: Item) -> str:
    return item.text


def _answers_twice(before: Turn, turn: Turn, resent: SentHistory) -> bool:
    """Whether a client's answer to an interrupted turn stands behind the one that the turn has itself."""
    sent = resent.meant[resent.cut :]
    is_answered = before.kind is TurnKind.INTERRUPTED and any(
        each["content"] for each in answer_messages(before)
    )
    first = next(iter(input_messages(turn)), None)
    if not is_answered or first is None or first["role"] != "assistant" or first not in sent[1:]:
        return False
    return sent[sent.index(first, 1) - 1] == input_messages(before)[-1]


def _check_turn(
    turn: Turn, resent: SentHistory, told: Sequence[Entry], began_on: Sequence[Turn], unseen: Hidden
) -> Iterator[str]:
    meant, sent = words_of(resent.meant), words_of(resent.meant[resent.cut :])
    stands_on = [word for word, _ in told]
    is_sure = resent.sent is Sent.FULL or not _may_begin_elsewhere(resent, began_on)
    if is_sure and resent.is_whole and (not resent.cut or _is_recognisable(resent, began_on, unseen)):
        if not agrees(meant, told):
            yield f"{turn.id} stands on '{_text(stands_on)}', and its client meant '{_text(meant)}'"
    elif not agrees(sent, told, may_begin_late=True):
        yield f"{turn.id} stands on '{_text(stands_on)}', and its client sent '{_text(sent)}'"


def _is_recognisable(resent: SentHistory, began_on: Sequence[Turn], unseen: Hidden) -> bool:
    """Whether a trimmed history shows where it stands: an answer is left in it, and the turn that it begins
    in stands there to its end, behind all that was left out."""
    if not any(message["role"] == "assistant" for message in resent.meant[resent.cut :]):
        return False
    ends = range(resent.cut + 1, len(resent.meant) + 1)
    return any(
        agrees(words_of(resent.meant[:end]), _entries(began_on[:count], unseen))
        for end in ends
        for count in range(1, len(began_on) + 1)
    )


def _may_begin_elsewhere(resent: SentHistory, began_on: Sequence[Turn]) -> bool:
    """Whether the first message that was sent stands at another place of the line, too, as when a question is
    asked again: nobody can tell a copy that begins there from one that was trimmed."""
    first = _told(resent.meant[resent.cut])
    line = [(message, turn.kind) for turn in began_on for message in messages_of(turn)]
    places = [place for place, (message, _) in enumerate(line) if _told(message) == first]
    is_first = bool(places) and all(kind is not TurnKind.COMPLETED for _, kind in line[: places[0]])
    return len(places) > (1 if resent.cut or is_first else 0)


def _told(message: Message) -> list[Word]:
    return words_of([message])


def _is_question(resent: SentHistory, began_on: Sequence[Turn], unseen: Hidden) -> bool:
    """Whether the history ends with an earlier question: that asks for another answer, and is no edit."""
    return begins_with(words_of(resent.meant), _entries(began_on, unseen)) or resent.cut > 0


def _line_at_begin(world: World, by_branch: Mapping[BranchId, RestingBranch], turn: TurnId) -> list[Turn]:
    """The line on whose lane the turn began, as it was then."""
    lane, head = world.places[turn][0], world.heads[turn]
    turns = by_branch[lane].turns if lane in by_branch else []
    end = next((place + 1 for place, each in enumerate(turns) if each.id == head), 0)
    return turns[:end]


def _entries(turns: Iterable[Turn], unseen: Hidden) -> list[Entry]:
    """What these turns say; of one that did not end well, a client may hold any part or nothing, and so of
    what was hidden from users: it goes along unseen."""
    return [
        (word, turn.kind is not TurnKind.COMPLETED or (turn.id, place) in unseen)
        for turn in turns
        for place, item in enumerate(turn.items)
        for word in words_of_item(item)
    ]


def _text(words: Iterable[Word]) -> str:
    return " ".join(text for _, text in words)
