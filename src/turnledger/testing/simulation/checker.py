"""The checker: holds what the store says against what clients saw, runners saw and tools did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from turnledger.engine.closing import NOT_STARTED
from turnledger.engine.transaction import RunningTurn
from turnledger.errors import TurnledgerError
from turnledger.ledger import Chat, Ledger
from turnledger.model import codec
from turnledger.model.attempt import AttemptState, OnFailure, OnStop
from turnledger.model.event import TurnFinished
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.model.pairing import NOT_ANSWERED, open_calls
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.simulation.world import ANSWER, RESULT, Effect, World


class Violation(Exception):
    """A promise was broken. `seed` and `store` replay the schedule exactly."""

    def __init__(self, seed: int | None, store: str | None, what: str) -> None:
        super().__init__(f"seed {seed} on {store}: {what}")
        self.seed = seed
        self.store = store
        self.what = what


async def check(world: World, ledger: Ledger, keys: tuple[str, ...]) -> int:
    """Check every promise on a ledger at rest; return how many turns there are."""
    chats = [await ledger.conversation(conversation_key=key) for key in keys]
    for chat in chats:
        await _comes_to_rest(chat)
    count = 0
    for chat in chats:
        turns = await chat.turns(limit=1000)
        count += len(turns)
        for problem in _problems(world, chat, turns):
            raise Violation(None, None, problem)
        for turn in turns:
            await _tells_its_events(world, chat, turn)
    for (key, _), ids in world.opened.items():
        if len(ids) > 1:
            raise Violation(None, None, f"one key, two conversations: {key!r} gave {sorted(ids)}")
    if world.intrusions:
        raise Violation(None, None, world.intrusions[0])
    return count


async def _comes_to_rest(chat: Chat) -> None:
    """No attempt runs any more, and the lane takes one more turn."""
    running = [each for each in await chat.attempts() if each.attempt.state is AttemptState.RUNNING]
    if running:
        raise Violation(None, None, f"a lane is closed for ever by {running[0].attempt.id}")

    async def probe(turn: RunningTurn) -> None:
        turn.emit("here")

    try:
        await chat.run(probe, "are you there?", on_busy="reject")
    except TurnledgerError as problem:
        raise Violation(None, None, f"a lane does not take a turn: {problem!r}") from None


async def _tells_its_events(world: World, chat: Chat, turn: Turn) -> None:
    """What can be read of a turn is numbered without gaps, has an end, and is what was told when it ran."""
    events = [event async for event in chat.events(turn.id)]
    if [event.number for event in events] != list(range(1, len(events) + 1)):
        raise Violation(None, None, f"the events of {turn.id} have gaps")
    if not isinstance(events[-1], TurnFinished):
        raise Violation(None, None, f"the events of {turn.id} have no end")
    told = world.events.get(turn.id, events)
    if [codec.encode(event) for event in told] != [codec.encode(event) for event in events]:
        raise Violation(None, None, f"other events are read of {turn.id} than were told")


def _problems(world: World, chat: Chat, turns: list[Turn]) -> Iterator[str]:
    yield from _chain(world, turns)
    yield from _answers(world, chat, turns)
    yield from _absent(world, turns)
    yield from _once(world, turns)
    yield from _stops(world, chat, turns)
    yield from _told_truly(world, turns)
    yield from _effects(world, chat, turns)
    try:
        left = open_calls([item for turn in turns for item in turn.items])
    except TurnledgerError as problem:
        yield f"pairs are broken: {problem}"
    else:
        if left:
            yield f"a call has no result: {left}"


def _chain(world: World, turns: list[Turn]) -> Iterator[str]:
    """Committed turns are one chain, and each ran on exactly the turns before it."""
    for place, turn in enumerate(turns):
        before = tuple(each.id for each in turns[:place])
        if turn.number != place + 1 or turn.parent != (before[-1] if before else None):
            yield f"the chain is broken at {turn.id}, number {turn.number}"
        run = world.runs.get(turn.id)
        if turn.kind is TurnKind.COMPLETED and run is not None and run.saw != before:
            yield f"{turn.id} ran on {len(run.saw)} turns, but {len(before)} are before it"


def _answers(world: World, chat: Chat, turns: list[Turn]) -> Iterator[str]:
    """What was acknowledged is there, byte for byte."""
    committed = {turn.id: turn.body for turn in turns}
    for seen in world.seen:
        if seen.turn is None or seen.conversation != chat.id:
            continue
        if committed.get(seen.turn) != seen.body:
            yield f"{seen.turn} was acknowledged and is not there as told"
    kinds = {turn.id: turn.kind for turn in turns}
    states = {"completed": TurnKind.COMPLETED, "kept": TurnKind.INTERRUPTED, "settled": TurnKind.SETTLED}
    for turn_id, state in world.stops:
        if turn_id in kinds and states[state] is not kinds[turn_id]:
            yield f"a stop of {turn_id} was told {state}, but it is {kinds[turn_id]}"


def _absent(world: World, turns: list[Turn]) -> Iterator[str]:
    """A turn is completed only if its runner came to a positive end, and shows what policy allows."""
    for turn in turns:
        run = world.runs.get(turn.id)
        if turn.kind is TurnKind.COMPLETED and run is not None and not run.is_finished:
            yield f"{turn.id} was committed although its run did not end well"
        if turn.kind is TurnKind.SETTLED and turn.id not in world.settled_by_begin:
            yield f"{turn.id} was settled without a turn that follows, or without an effect"
        if turn.id in world.stopped_in_queue:
            yield f"{turn.id} was stopped before it ran and is in the history"
        is_stopped = world.recorded_stops.get(turn.id) is OnStop.KEEP
        asked = is_stopped or _token(turn) in world.keepers
        if turn.kind is TurnKind.INTERRUPTED and not asked:
            yield f"{turn.id} was kept although nobody asked for it"
        if turn.kind is TurnKind.COMPLETED and run is not None and run.ask.token in world.told_failed:
            yield f"{turn.id} was told as failed and is in the history"


def _once(world: World, turns: list[Turn]) -> Iterator[str]:
    """One request is one turn at most, and its answers agree."""
    messages = Counter(
        item.text or item.fields.get("output")
        for turn in turns
        for item in turn.input
        if item.fields.get("output") != NOT_ANSWERED
    )
    for text, count in messages.items():
        if count > 1:
            yield f"the message {text} is in the history {count} times"
    answers: dict[str, set[str]] = {}
    for seen in world.seen:
        if seen.turn is not None:
            answers.setdefault(seen.ask.token, set()).add(seen.turn)
    for token, ids in answers.items():
        if len(ids) > 1:
            yield f"{token} was answered by {len(ids)} turns"
    for attempt, (begun, key) in world.begun_at.items():
        queued = world.waiting_since.get(attempt, begun)
        for earlier, (begun_earlier, earlier_key) in world.begun_at.items():
            if key and key == earlier_key and attempt != earlier and queued < begun_earlier < begun:
                yield f"{attempt} ran although it was waiting when {earlier} of its key began"


def _stops(world: World, chat: Chat, turns: list[Turn]) -> Iterator[str]:
    """A recorded stop is obeyed, even if its holder died, unless the commit came first."""
    kinds = {turn.id: turn.kind for turn in turns}
    for attempt, policy in world.recorded_stops.items():
        run = world.runs.get(attempt)
        if run is None or run.conversation != chat.id:
            continue
        kind = kinds.get(attempt)
        if policy is OnStop.KEEP and kind not in (TurnKind.INTERRUPTED, TurnKind.COMPLETED):
            yield f"{attempt} was stopped to be kept, and is {kind}"
        if policy is OnStop.DISCARD and kind is TurnKind.INTERRUPTED:
            yield f"{attempt} was stopped to be discarded, and was kept"
    for attempt in world.stopped_in_queue:
        if attempt in world.runs:
            yield f"{attempt} ran although it was stopped before"


def _effects(world: World, chat: Chat, turns: list[Turn]) -> Iterator[str]:
    """What tools did is told, once, and was done once; but for those told to forget."""
    times_told = Counter(_name(item) for turn in turns for item in turn.output if item.is_call)
    times_done = Counter(effect.name for effect in world.effects if not effect.read_only)
    for effect in world.effects:
        if effect.read_only or effect.ask.on_failure is OnFailure.FORGET or effect.conversation != chat.id:
            continue
        if times_told[effect.name] != 1:
            yield f"the effect {effect.name} is in the history {times_told[effect.name]} times"
        if times_done[effect.name] != 1:
            yield f"the tool {effect.name} ran {times_done[effect.name]} times"
    histories: dict[str, list[tuple[TurnId, ...]]] = {}
    for effect in world.effects:
        histories.setdefault(effect.name, []).append(effect.saw)
    for turn in turns:
        before = tuple(each.id for each in turns[: turn.number - 1])
        for item in turn.output:
            name = str(item.fields.get("output")).removeprefix(RESULT)
            if name in histories and before not in histories[name]:
                yield f"the effect {name} came of another history than it stands in"


def _told_truly(world: World, turns: list[Turn]) -> Iterator[str]:
    """Turns that did not end well tell what is known, no less and no more."""
    acted = {effect.name: effect for effect in world.effects}
    for turn in turns:
        results = Journal(list(turn.output)).answers()
        for place, result in results.items():
            name = _name(turn.output[place])
            output = result.fields["output"]
            # Those told to forget may have run before, in an attempt that nobody knows of any more.
            if name in acted and acted[name].ask.on_failure is not OnFailure.FORGET:
                if output == NOT_STARTED and not acted[name].read_only:
                    yield f"{name} acted, and is told as not started"
                if name in world.recorded and not output.startswith(RESULT) and not acted[name].read_only:
                    yield f"the result of {name} was recorded, and is not told"
        run = world.runs.get(turn.id)
        if run is None:
            continue
        if turn.kind is TurnKind.SETTLED:
            if run.ask.on_failure is OnFailure.FORGET and turn.id not in world.recorded_stops:
                yield f"{turn.id} was to be forgotten, and was settled"
            shown = [item for item in turn.output if item.role == "assistant" or _is_read_only(item, acted)]
            if shown:
                yield f"{turn.id} was settled with more than its effects: {shown[0]}"
        ended_itself = turn.kind is TurnKind.INTERRUPTED and turn.id not in world.taken_over
        if ended_itself and run.has_emitted and not any(ANSWER in item.text for item in turn.output):
            yield f"{turn.id} was kept without its text"


def _is_read_only(item: Item, acted: dict[str, Effect]) -> bool:
    return item.is_call and _name(item) in acted and acted[_name(item)].read_only


def _name(call: Item) -> str:
    return str(call.fields["arguments"]).strip('"')


def _token(turn: Turn) -> str:
    """The request that a turn answers."""
    last = turn.input[-1]
    return last.text or str(last.fields.get("output"))
