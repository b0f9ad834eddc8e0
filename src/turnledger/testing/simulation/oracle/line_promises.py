"""Check the promises on the lines of all branches against the log of clients, runners and tools.

A turn has one original, on the branch it was committed to. Other branches and forks share it; an edit copies
settled turns, since their effects happened for its branch, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from turnledger.errors import TurnledgerError
from turnledger.model.conversation import Branch, Ticket
from turnledger.model.flags import FlagsByTurn
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.item import NOT_STARTED, Item, calls_left_open, open_calls
from turnledger.model.journal import Journal
from turnledger.model.turn import OnFailure, OnStop, Turn, TurnKind
from turnledger.testing.simulation.world import (
    ANSWER,
    RESULT,
    ClientRequest,
    Effect,
    RequestKind,
    World,
    effect_of,
    effects_in,
    name_of,
)


@dataclass(frozen=True)
class RestingBranch:
    """A branch at rest, with all turns of its line."""

    conversation: ConversationId
    branch: Branch
    is_current: bool
    turns: list[Turn]
    waiting: list[Ticket]
    flags: FlagsByTurn


def check_promises(world: World, lines: list[RestingBranch]) -> Iterator[str]:
    """Check the lines of one conversation."""
    for line in lines:
        yield from _check_rest(line)
        yield from _check_chain(world, line.turns)
        yield from _check_pairs(line)
        yield from _check_effects_of_line(world, line.turns)
    turns = {turn.id: turn for line in lines for turn in line.turns}
    conversation = lines[0].conversation
    yield from _check_fork(world, lines[0])
    yield from _check_answers(world, conversation, turns)
    yield from _check_stops(world, conversation, turns)
    yield from _check_effects(world, conversation, turns)
    yield from _check_shown_effects(world, next(line for line in lines if line.is_current), turns)
    for turn in turns.values():
        yield from _check_branch(world, turn)
        yield from _check_kind(world, turn, turns)
        yield from _check_results(world, turn)
    yield from _check_copies(world, conversation, turns)


def check_requests(world: World, lines: list[RestingBranch]) -> Iterator[str]:
    """Check that a request is at most one turn over all conversations and its answers agree, and that one
    conversation_key is one conversation with one successor."""
    answers: dict[str, set[TurnId]] = {}
    for view in world.client_views:
        if view.answer is not None:
            answers.setdefault(view.request.token, set()).add(view.answer.id)
    for token, ids in answers.items():
        if len(ids) > 1:
            yield f"{token} was answered by {len(ids)} turns"
    made: dict[str, set[TurnId]] = {}
    for turn in (turn for line in lines for turn in line.turns if turn.id in world.requests):
        made.setdefault(world.requests[turn.id].token, set()).add(turn.id)
    for token, ids in made.items():
        if len(ids) > 1:
            yield f"the request {token} is in the history {len(ids)} times"
    for (key_of_conversation, _), conversations in world.opened.items():
        if len(conversations) > 1:
            yield f"one key, two conversations: {key_of_conversation!r} gave {sorted(conversations)}"
    for old, fresh in world.successors.items():
        if len(fresh) > 1:
            yield f"one conversation, reset twice: {old} gave {sorted(fresh)}"
    for attempt, (begun, key) in world.begun_at.items():
        queued = world.waiting_since.get(attempt, begun)
        for earlier, (begun_earlier, earlier_key) in world.begun_at.items():
            if key and key == earlier_key and attempt != earlier and queued < begun_earlier < begun:
                yield f"{attempt} ran although it was waiting when {earlier} of its key began"


def _check_rest(line: RestingBranch) -> Iterator[str]:
    """Check that nothing runs or waits on any branch: on one that is not shown, it would forever."""
    branch = line.branch
    if branch.running is not None:
        yield f"{branch.running} holds the lane of {branch.id} for ever"
    if branch.unsettled is not None:
        yield f"the effects of {branch.unsettled} wait on {branch.id} for ever"
    if line.waiting:
        yield f"{line.waiting[0].attempt} waits on {branch.id} for ever"


def _check_chain(world: World, turns: list[Turn]) -> Iterator[str]:
    """Check that the turns are one chain and each ran on exactly the turns before it."""
    for place, turn in enumerate(turns):
        before = tuple(each.id for each in turns[:place])
        if turn.number != place + 1 or turn.parent != (before[-1] if before else None):
            yield f"the chain is broken at {turn.id}, number {turn.number}"
        run = world.runs.get(turn.id)
        if turn.kind is TurnKind.SETTLED or run is None:
            continue
        if not _has_run_on(run.request, run.history, before):
            yield f"{turn.id} ran on {len(run.history)} turns, but {len(before)} are before it"


def _has_run_on(request: ClientRequest, history: tuple[str, ...], before: tuple[str, ...]) -> bool:
    """Return whether a request saw these turns: all of them, or the last ones within its context."""
    return (
        history == before[-len(history) :][: len(history)]
        if not request.briefing.shows_all
        else history == before
    )


def _check_pairs(line: RestingBranch) -> Iterator[str]:
    """Check that calls have results, in the same turn or the next one."""
    pending: tuple[Item, ...] = ()
    for turn in line.turns:
        try:
            pending = open_calls((*pending, *turn.items))
        except TurnledgerError as problem:
            yield f"pairs are broken in {turn.id}: {problem}"
            return
        if pending != calls_left_open(turn.items):
            yield f"a call before {turn.id} has no result: {pending[0]}"
    if pending != line.branch.pending:
        yield f"{line.branch.id} waits for other results than its head does"
    if pending and line.is_current:
        yield f"a call has no result: {pending}"


def _check_fork(world: World, first: RestingBranch) -> Iterator[str]:
    """Check that a fork keeps its first turns, whatever happened to its source."""
    began_with = world.forks.get(first.conversation, ())
    if tuple(first.turns[: len(began_with)]) != began_with:
        yield f"{first.conversation} has lost a turn that it began with"


def _check_answers(world: World, conversation: ConversationId, turns: dict[TurnId, Turn]) -> Iterator[str]:
    """Check that acknowledged turns exist unchanged, on any branch."""
    for view in world.client_views:
        if view.answer is None or view.conversation != conversation:
            continue
        id = view.answer.id
        if id not in turns or turns[id].body != view.answer.body:
            yield f"{id} was acknowledged and is missing or changed"
        made_for = world.requests.get(id)
        is_there = made_for is None or (made_for.instead_of, made_for.after) == (
            view.request.instead_of,
            view.request.after,
        )
        if not is_there:
            yield f"{id} was the answer to a request for another place"
    states = {"completed": TurnKind.COMPLETED, "kept": TurnKind.INTERRUPTED, "settled": TurnKind.SETTLED}
    for id, state in world.stops:
        if id in turns and states[state] is not turns[id].kind:
            yield f"a stop of {id} returned {state}, but it is {turns[id].kind}"


def _check_stops(world: World, conversation: ConversationId, turns: dict[TurnId, Turn]) -> Iterator[str]:
    """Check that a recorded stop is obeyed, even if the holder died, unless the commit was first."""
    for attempt, policy in world.recorded_stops.items():
        run = world.runs.get(attempt)
        if run is None or run.conversation != conversation:
            continue
        kind = turns[attempt].kind if attempt in turns else None
        if policy is OnStop.KEEP and kind not in (TurnKind.INTERRUPTED, TurnKind.COMPLETED):
            yield f"{attempt} was stopped to be kept, and is {kind}"
        if policy is OnStop.DISCARD and kind is TurnKind.INTERRUPTED:
            yield f"{attempt} was stopped to be discarded, and was kept"
    for attempt in world.stopped_in_queue:
        if attempt in world.runs:
            yield f"{attempt} ran although it was stopped before"


def _check_branch(world: World, turn: Turn) -> Iterator[str]:
    """Check the branch of a turn: its target, or for a settled one the branch whose lane it held."""
    if turn.id in world.places:
        lane, target = world.places[turn.id]
        if turn.branch != (lane if turn.kind is TurnKind.SETTLED else target):
            yield f"{turn.id} is {turn.kind} on {turn.branch}, where it does not belong"


def _check_kind(world: World, turn: Turn, turns: dict[TurnId, Turn]) -> Iterator[str]:
    """Check that only finished runs are completed, and that policies decide about the others."""
    request, run = world.requests.get(turn.id), world.runs.get(turn.id)
    if request is None:
        return
    if turn.kind is TurnKind.COMPLETED and run is not None and not run.is_finished:
        yield f"{turn.id} was committed although its run did not end well"
    if turn.kind is TurnKind.COMPLETED and turn.text.count(ANSWER) > 1:
        yield f"{turn.id} has the text of a run that another process resumed"
    if turn.kind is TurnKind.COMPLETED and request.token in world.reported_failed:
        yield f"{turn.id} was reported as failed and is in the history"
    if turn.kind is TurnKind.SETTLED and turn.id not in world.settled_by_begin:
        yield f"{turn.id} was settled without a turn that follows, or without an effect"
    if turn.details.get("request") != request.token:
        yield f"{turn.id} is {turn.kind} without the details it began with"
    if turn.id in world.stopped_in_queue:
        yield f"{turn.id} was stopped before it ran and is in the history"
    is_stopped = OnStop.KEEP in world.stops_of(turn.id)
    if turn.kind is TurnKind.INTERRUPTED and not is_stopped and request.on_failure is not OnFailure.KEEP:
        yield f"{turn.id} was kept without a policy for it"
    has_text = (RequestKind.TURN, RequestKind.EDIT, RequestKind.APPEND)
    has_token = request.kind in has_text and not request.answers_call
    if has_token and request.text not in map(_text, turn.input):
        yield f"{turn.id} answers another request than {request.token}"
    replaced = (
        turns.get(request.instead_of)
        if request.kind is RequestKind.REGENERATE and request.instead_of
        else None
    )
    if replaced is not None and _messages(turn) != _messages(replaced):
        yield f"{turn.id} answers another message than {replaced.id}"


def _text(item: Item) -> str:
    return item.text


def _messages(turn: Turn) -> list[Item]:
    return [item for item in turn.input if not item.is_result]


def _check_copies(world: World, conversation: ConversationId, turns: dict[TurnId, Turn]) -> Iterator[str]:
    """Check that every turn without a request copies the effects of an incomplete one."""
    shared = {turn.id for turn in world.forks.get(conversation, ())}
    originals: dict[str, Turn] = {}
    for turn in turns.values():
        if turn.kind is not TurnKind.COMPLETED and (turn.id in world.requests or turn.id in shared):
            originals |= dict.fromkeys(effects_in(turn), turn)
    for turn in turns.values():
        if turn.id in world.requests or turn.id in world.probes or turn.id in shared:
            continue
        original = originals.get(name_of(turn))
        if turn.kind is not TurnKind.SETTLED or original is None or not _is_copy(turn, original):
            yield f"{turn.id} is in the history without a request"


def _is_copy(turn: Turn, original: Turn) -> bool:
    if original.kind is TurnKind.SETTLED:
        return turn.output == original.output
    # A copy of an interrupted turn has its effects and a note that the rest was not kept.
    *effects, note = turn.output
    there = iter(original.output)
    return note.role == "developer" and all(item in there for item in effects)


def _check_effects_of_line(world: World, turns: list[Turn]) -> Iterator[str]:
    """Check that a line has each effect once, after the history that led to it."""
    acted = {effect.name for effect in world.effects}
    for name, times in Counter(_all_effects(turns)).items():
        if name in acted and times > 1:
            yield f"the effect {name} is on one line {times} times"
    histories: dict[str, list[Effect]] = {}
    for effect in world.effects:
        histories.setdefault(effect.name, []).append(effect)
    before: tuple[str, ...] = ()
    for turn in turns:
        request = world.requests.get(turn.id)
        # Effects of a failed edit are at the end of the line whose lane it held.
        is_elsewhere = turn.kind is TurnKind.SETTLED and (
            request is None or request.kind is not RequestKind.TURN
        )
        for item in turn.output if not is_elsewhere else ():
            name = str(item.fields.get("output")).removeprefix(RESULT)
            effects = histories.get(name, ())
            if effects and not any(_has_run_on(effect.request, effect.history, before) for effect in effects):
                yield f"the effect {name} came of another history than it stands in"
        before = (*before, name_of(turn))


def _check_effects(world: World, conversation: ConversationId, turns: dict[TurnId, Turn]) -> Iterator[str]:
    """Check that each effect happened once and is recorded once besides copies, unless forgotten."""
    counts = Counter(_all_effects([turn for turn in turns.values() if turn.id in world.requests]))
    times_done = Counter(effect.name for effect in world.effects if not effect.read_only)
    for effect in world.effects:
        is_forgotten = effect.request.on_failure is OnFailure.FORGET
        if effect.read_only or is_forgotten or effect.conversation != conversation:
            continue
        if counts[effect.name] != 1:
            yield f"the effect {effect.name} is in the history {counts[effect.name]} times"
        if times_done[effect.name] != 1:
            yield f"the tool {effect.name} ran {times_done[effect.name]} times"


def _check_shown_effects(world: World, shown: RestingBranch, turns: dict[TurnId, Turn]) -> Iterator[str]:
    """Check that the model of the current branch sees all effects, except forgotten ones and those of
    completed turns that an edit replaced."""
    known = world.forgotten_effects | set(
        _all_effects([turn for turn in turns.values() if turn.kind is TurnKind.COMPLETED])
    )
    acted = {effect for turn in turns.values() for effect in world.unfinished_effects(turn)} - known
    on_line = {effect: turn for turn in shown.turns for effect in effects_in(turn)}
    for effect in sorted(acted):
        if effect not in on_line:
            yield f"the effect {effect} is hidden from the branch that {shown.conversation} shows"
        elif effect not in world.shown_at_rest[shown.conversation] and on_line[effect].id not in shown.flags:
            yield f"the effect {effect} is hidden from the model that {shown.conversation} asks"


def _all_effects(turns: list[Turn]) -> Iterator[str]:
    return (effect for turn in turns for effect in effects_in(turn))


def _check_results(world: World, turn: Turn) -> Iterator[str]:
    """Check that incomplete turns have the known results, no less and no more."""
    acted = {effect.name: effect for effect in world.effects}
    for place, result in Journal(list(turn.output)).answers().items():
        name = effect_of(turn.output[place])
        output = result.fields["output"]
        # With on_failure=forget, they may have happened in an earlier attempt.
        if name in acted and acted[name].request.on_failure is not OnFailure.FORGET:
            if output == NOT_STARTED and not acted[name].read_only:
                yield f"{name} acted, and is recorded as not started"
            if name in world.recorded_results and not output.startswith(RESULT) and not acted[name].read_only:
                yield f"the result of {name} was recorded, and is missing"
    run = world.runs.get(turn.id)
    if run is None:
        return
    if turn.kind is TurnKind.SETTLED:
        if run.request.on_failure is OnFailure.FORGET and turn.id not in world.recorded_stops:
            yield f"{turn.id} was to be forgotten, and was settled"
        shown = [item for item in turn.output if item.role == "assistant" or _is_read_only(item, acted)]
        if shown:
            yield f"{turn.id} was settled with more than its effects: {shown[0]}"
    ended_itself = turn.kind is TurnKind.INTERRUPTED and turn.id not in world.taken_over
    if ended_itself and run.has_emitted and not any(ANSWER in item.text for item in turn.output):
        yield f"{turn.id} was kept without its text"


def _is_read_only(item: Item, acted: dict[str, Effect]) -> bool:
    return item.is_call and effect_of(item) in acted and acted[effect_of(item)].read_only
