"""Check the messages shown to models: the instructions in force, the requested part of the history, no hidden
items. The expectation is derived from the requests alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from turnledger.model.ids import TurnId
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.simulation.clients.briefing_options import Briefing
from turnledger.testing.simulation.clients.flags import brings_flags
from turnledger.testing.simulation.oracle.agreement import agrees
from turnledger.testing.simulation.oracle.line_promises import RestingBranch
from turnledger.testing.simulation.world import ClientRequest, ModelView, World

Given = tuple[str, bool]
"""Instructions, and whether they last."""
Entry = tuple[tuple[str | None, str], bool]
"""Role and text of a message, and whether it is optional."""


def check_model_views(world: World, lines: Sequence[RestingBranch]) -> Iterator[str]:
    """Compare the views of models with the expected ones, on all lines."""
    for id in world.wrong_json:
        yield f"{id} was shown other messages as JSON than as a list"
    everything = {turn.id: turn for line in lines for turn in line.turns}
    for line in lines:
        for place, turn in enumerate(line.turns):
            run = world.runs.get(turn.id)
            is_here = turn.branch == line.branch.id and turn.kind is not TurnKind.SETTLED
            if not is_here or run is None or run.view is None:
                continue
            before = line.turns[:place]
            yield from _instructions(world, everything, before, turn, run.view)
            yield from _history(world, before, turn, run.view, run.request)


def _instructions(
    world: World, everything: Mapping[TurnId, Turn], before: Sequence[Turn], turn: Turn, view: ModelView
) -> Iterator[str]:
    """Expect the turn's own instructions, or lasting ones of the last committed turn that set some."""
    in_force = ""
    try:
        for each in before:
            given = _given(world, everything, each)
            if given is not None and given[1]:
                in_force = given[0]
        own = _given(world, everything, turn)
    except KeyError:
        return  # a replaced turn is gone, with its instructions
    expected = [own[0] if own is not None else in_force]
    shown = [text for role, text in view.messages if role == "system"]
    if shown != [text for text in expected if text]:
        yield f"{turn.id} was instructed by {shown}, and {expected} were in force"


def _given(world: World, everything: Mapping[TurnId, Turn], turn: Turn) -> Given | None:
    """Return the instructions of a turn: of its request, or of the turn it replaced. A turn settled on
    another branch than requested has none."""
    request = world.requests.get(turn.id)
    if request is None:
        return None
    lane, target = world.places[turn.id]
    if turn.kind is TurnKind.SETTLED and lane != target:
        return None
    if request.briefing.instructions is not None:
        return request.briefing.instructions, True
    if request.briefing.once is not None:
        return request.briefing.once, False
    replaced = world.replaces.get(turn.id)
    return _given(world, everything, everything[replaced]) if replaced is not None else None


def _history(
    world: World, before: Sequence[Turn], turn: Turn, view: ModelView, request: ClientRequest
) -> Iterator[str]:
    """Expect the primer, the requested last turns without hidden items, and the input. A client that resends
    its copy may have trimmed it: then expect no less than that."""
    briefing, resent = request.briefing, request.resent
    shown = [(role, text) for role, text in view.messages if role != "system"]
    may_begin_late = resent is not None and resent.sent is None
    if resent is not None and not view.hidden:
        texts = {text for _, text in shown}
        for message in resent.meant[resent.cut :]:
            if message["role"] == "user" and message["content"] not in texts:
                yield f"{turn.id} was not shown {message['content']!r}, which its client sent"
    around: list[Entry] = [(("user", briefing.primer), False)] if briefing.primer else []
    is_optional = brings_flags(world, turn)
    input: list[Entry] = [
        ((item.role, item.text), is_optional) for item in turn.input if item.type == "message"
    ]
    entries = [_entries(world, each, turn.id, view) for each in before]
    for first in _first_turns(before, turn, view, briefing):
        history = [entry for each in entries[first:] for entry in each]
        if first and briefing.turns is not None:
            # The turn before is shown, too, if the next one answers its calls.
            history = [(message, True) for message, _ in entries[first - 1]] + history
        if agrees(shown, [*around, *history, *input], may_begin_late=may_begin_late):
            return
    yield f"{turn.id} was shown {shown}, which is not the expected history"


def _first_turns(before: Sequence[Turn], turn: Turn, view: ModelView, briefing: Briefing) -> Sequence[int]:
    if briefing.turns is not None:
        return (max(0, len(before) - briefing.turns),)
    if briefing.budget is None:
        return (0,)
    everything = sum(len(each.items) for each in before) + len(turn.input) + 2
    if everything <= briefing.budget:
        return (0,)
    if view.items > briefing.budget:
        # Only the turn whose calls the input answers may exceed the budget.
        return range(max(0, len(before) - 1), len(before) + 1)
    return range(len(before) + 1)


def _entries(world: World, turn: Turn, shown_to: TurnId, view: ModelView) -> list[Entry]:
    """List the messages of a turn; those flagged while the other turn began, and settled ones, whose flags
    are copied, are optional."""
    at_begin = world.hidden_at_begin[shown_to]
    entries: list[Entry] = []
    repeated = len(turn.input) if brings_flags(world, turn) else 0
    for place, item in enumerate(turn.items):
        hidden = {(turn.id, place) in at_begin, (turn.id, place) in view.hidden}
        if place < repeated:
            hidden = {True, False}
        if item.type == "message" and (False in hidden or turn.kind is TurnKind.SETTLED):
            entries.append(((item.role, item.text), True in hidden or turn.kind is TurnKind.SETTLED))
    return entries
