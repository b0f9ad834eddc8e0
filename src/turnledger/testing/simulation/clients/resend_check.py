"""Compare the history that a client meant with the line that its turn was added to.

A client means its whole copy, however much it sends: none of it may be lost or doubled, and only failed or
hidden turns that it does not know may come in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.resent_request import OnDivergence
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
from turnledger.testing.simulation.oracle.line_promises import RestingBranch
from turnledger.testing.simulation.world import Hidden, World

Entry = tuple[Word, bool]


def check_resent(world: World, lines: Sequence[RestingBranch]) -> Iterator[str]:
    """Find turns whose line is not the one their client meant."""
    by_branch = {line.branch.id: line for line in lines}
    for line in lines:
        for place, turn in enumerate(line.turns):
            request = world.requests.get(turn.id)
            is_here = turn.branch == line.branch.id and turn.kind is not TurnKind.SETTLED
            if request is None or request.resent is None or not is_here:
                continue
            unseen = world.unseen_at_begin.get(turn.id, frozenset())
            before = _entries(line.turns[:place], unseen)
            entries = [*before, *((word, False) for word in words_of(input_messages(turn)))]
            began_on = _line_at_begin(world, by_branch, turn.id)
            yield from _check_turn(turn, request.resent, entries, began_on, unseen)
            if request.resent.note is not None and request.resent.note[1]["content"] not in map(
                _item_text, turn.input
            ):
                yield f"{turn.id} lacks the note that its client inserted"
            if place and _answers_twice(line.turns[place - 1], turn, request.resent):
                yield f"{turn.id} begins with another answer than {line.turns[place - 1].id} has"
            lane, target = world.places[turn.id]
            may_branch = request.resent.on_divergence is OnDivergence.BRANCH
            if lane != target and not may_branch and not _is_question(request.resent, began_on, unseen):
                yield f"{turn.id} is on a branch of its own, against its policy"


def _item_text(item: Item) -> str:
    return item.text


def _answers_twice(before: Turn, turn: Turn, resent: SentHistory) -> bool:
    """Return whether a client's answer to an interrupted turn follows the stored one."""
    sent = resent.meant[resent.cut :]
    is_answered = before.kind is TurnKind.INTERRUPTED and any(
        each["content"] for each in answer_messages(before)
    )
    first = next(iter(input_messages(turn)), None)
    if not is_answered or first is None or first["role"] != "assistant" or first not in sent[1:]:
        return False
    return sent[sent.index(first, 1) - 1] == input_messages(before)[-1]


def _check_turn(
    turn: Turn, resent: SentHistory, entries: Sequence[Entry], began_on: Sequence[Turn], unseen: Hidden
) -> Iterator[str]:
    meant, sent = words_of(resent.meant), words_of(resent.meant[resent.cut :])
    stands_on = [word for word, _ in entries]
    is_sure = resent.sent is SentMessages.FULL or not _may_begin_elsewhere(resent, began_on)
    if is_sure and resent.is_whole and (not resent.cut or _is_recognisable(resent, began_on, unseen)):
        if not agrees(meant, entries):
            yield f"{turn.id} stands on '{_text(stands_on)}', and its client meant '{_text(meant)}'"
    elif not agrees(sent, entries, may_begin_late=True):
        yield f"{turn.id} stands on '{_text(stands_on)}', and its client sent '{_text(sent)}'"


def _is_recognisable(resent: SentHistory, began_on: Sequence[Turn], unseen: Hidden) -> bool:
    """Return whether a trimmed history shows its place: it has an answer, and the turn it begins in is stored
    whole behind all that was left out."""
    if not any(message["role"] == "assistant" for message in resent.meant[resent.cut :]):
        return False
    ends = range(resent.cut + 1, len(resent.meant) + 1)
    return any(
        agrees(words_of(resent.meant[:end]), _entries(began_on[:count], unseen))
        for end in ends
        for count in range(1, len(began_on) + 1)
    )


def _may_begin_elsewhere(resent: SentHistory, began_on: Sequence[Turn]) -> bool:
    """Return whether the first message sent also occurs elsewhere on the line, as a repeated question does.
    Then a copy that begins there looks like a trimmed one."""
    first = _words(resent.meant[resent.cut])
    line = [(message, turn.kind) for turn in began_on for message in messages_of(turn)]
    places = [place for place, (message, _) in enumerate(line) if _words(message) == first]
    is_first = bool(places) and all(kind is not TurnKind.COMPLETED for _, kind in line[: places[0]])
    return len(places) > (1 if resent.cut or is_first else 0)


def _words(message: Message) -> list[Word]:
    return words_of([message])


def _is_question(resent: SentHistory, began_on: Sequence[Turn], unseen: Hidden) -> bool:
    """Return whether the history ends with an earlier question, which asks for another answer."""
    return begins_with(words_of(resent.meant), _entries(began_on, unseen)) or resent.cut > 0


def _line_at_begin(world: World, by_branch: Mapping[BranchId, RestingBranch], turn: TurnId) -> list[Turn]:
    """Return the line whose lane the turn held, as of its begin."""
    lane, head = world.places[turn][0], world.heads[turn]
    turns = by_branch[lane].turns if lane in by_branch else []
    end = next((place + 1 for place, each in enumerate(turns) if each.id == head), 0)
    return turns[:end]


def _entries(turns: Iterable[Turn], unseen: Hidden) -> list[Entry]:
    """List the words of these turns. Those of incomplete turns and of hidden items are optional: a client may
    hold any part of them."""
    return [
        (word, turn.kind is not TurnKind.COMPLETED or (turn.id, place) in unseen)
        for turn in turns
        for place, item in enumerate(turn.items)
        for word in words_of_item(item)
    ]


def _text(words: Iterable[Word]) -> str:
    return " ".join(text for _, text in words)
