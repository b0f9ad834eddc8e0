"""The checker: compares every line of turns of a ledger at rest with the log of the world."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from turnledger.chat import Chat
from turnledger.engine.conversations.search import index_texts
from turnledger.engine.ports import Inspection
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import ConversationDeleted, ConversationExpired, TurnledgerError
from turnledger.hosting import Host
from turnledger.ledger import OWNER, Ledger
from turnledger.model import codec
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.event import Event, ItemDone, RefusalDelta, TextDelta, TurnFinished, TurnResumed
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import AttemptState, Turn, TurnKind
from turnledger.testing.change_audit import find_mismatches, load_all
from turnledger.testing.simulation.clients.durable_work import check_work
from turnledger.testing.simulation.clients.flags import check_flags
from turnledger.testing.simulation.clients.keyless_clients import check_keyless
from turnledger.testing.simulation.clients.readers import Listener
from turnledger.testing.simulation.clients.resend_check import check_resent
from turnledger.testing.simulation.oracle.catalogue import check_list, check_search
from turnledger.testing.simulation.oracle.line_promises import RestingBranch, check_promises, check_requests
from turnledger.testing.simulation.oracle.model_views import check_model_views
from turnledger.testing.simulation.oracle.pointer import turns_on
from turnledger.testing.simulation.world import RequestKind, World, effect_of

ALL = 1_000


class Violation(Exception):
    """A promise was broken. `seed` and `store` replay the schedule exactly."""

    def __init__(self, seed: int | None, store: str | None, what: str, *others: str) -> None:
        super().__init__(f"seed {seed} on {store}: {what}")
        self.seed = seed
        self.store = store
        self.what = what
        self.others = others
        """Further broken promises."""

    def __reduce__(self) -> tuple[type[Violation], tuple[int | str | None, ...]]:
        return type(self), (self.seed, self.store, self.what, *self.others)  # pickled in another process


async def check(world: World, ledger: Ledger, keys: tuple[str, ...]) -> int:
    """Check every promise on all branches of all conversations; return the number of turns shown."""
    for key in keys:
        try:
            await ledger.conversation(conversation_key=key)
        except ConversationExpired:
            await ledger.reset(key)
    live = await ledger._process.store.inspect(_live_conversations, (Host(ledger).clock.due_ms(), ALL))
    chats = [await ledger.conversation(id) for id in live]
    lost = [problem for chat in chats async for problem in _show_side_branches(world, chat)]
    for chat in chats:
        world.probes.add(await _probe_lane(world, chat))
    conversations = await ledger._process.store.inspect(_all_lines, [await chat.info() for chat in chats])
    everything = [line for lines in conversations for line in lines]
    problems = lost + [problem for lines in conversations for problem in check_promises(world, lines)]
    problems += check_requests(world, everything)
    problems += [problem for line in everything for problem in check_flags(world, line)]
    problems += check_model_views(world, everything)
    problems += check_resent(world, everything)
    problems += check_keyless(world)
    problems += [problem async for problem in check_work(world, ledger)]
    problems += [
        problem for listener in world.listeners async for problem in _check_listener(listener, ledger)
    ]
    for chat, lines in zip(chats, conversations, strict=True):
        problems += check_list(await chat.info(), lines)
        turns = {turn.id: turn for line in lines for turn in line.turns}
        problems += [problem for turn in turns.values() async for problem in _check_events(world, chat, turn)]
    await index_texts(ledger._process.store, ALL)
    problems += await ledger._process.store.read(check_search, everything, OWNER)
    problems += world.violations
    stored = await ledger._process.store.inspect(load_all, OWNER)
    stored.appended = {id for id, each in world.requests.items() if each.kind is RequestKind.APPEND}
    problems += find_mismatches(stored)
    problems += [f"the store is not sound: {finding}" for finding in await ledger.check(at_rest=True)]
    if problems:
        raise Violation(None, None, *problems)
    return sum(len(line.turns) for line in everything if line.is_current)


async def _show_side_branches(world: World, chat: Chat) -> AsyncIterator[str]:
    """Find side branches that are gone, although a schedule takes minutes. Show the others and run a turn on
    each, so that their effects are settled and carried on to the branch that the chat shows."""
    found = {each.branch.id: each.branch for each in await chat.branches(limit=ALL)}
    for attempt, (lane, _) in world.places.items():
        if world.begun_in[attempt] == chat.id and lane not in found:
            yield f"{lane}, on which {attempt} began, was removed before its time"
    side, shown = [branch for branch in found.values() if branch.is_side], (await chat.info()).branch
    for branch in side:
        if branch.running is not None:
            raise Violation(None, None, f"{branch.running} holds the lane of {branch.id} for ever")
        await chat.switch(branch.id)
        world.probes.add(await _probe_lane(world, chat))
    if side:
        await chat.switch(shown)


async def _probe_lane(world: World, chat: Chat) -> TurnId:
    """Check that no attempt runs and that the lane takes another turn; return its id. Records the effects
    that its model is shown."""
    running = [each for each in await chat.attempts(limit=ALL) if each.attempt.state is AttemptState.RUNNING]
    if running:
        raise Violation(None, None, f"a lane is closed for ever by {running[0].attempt.id}")

    question = "are you there?"
    previewed = (await chat.snapshot(question)).items

    async def probe(turn: RunningTurn) -> None:
        shown = turn.items
        if shown != previewed:
            world.violations.append(f"{chat.id} showed its model other items than its snapshot")
        world.shown_at_rest[chat.id] = frozenset(effect_of(item) for item in shown if item.is_call)
        turn.emit("here")

    try:
        return (await chat.run(probe, question, on_busy="reject")).id
    except TurnledgerError as problem:
        raise Violation(None, None, f"a lane does not take a turn: {problem!r}") from None


async def _check_events(world: World, chat: Chat, turn: Turn) -> AsyncIterator[str]:
    """Check that stored events have no gaps, have an end, equal those emitted, and have deltas that add up to
    the answer."""
    events = [event async for event in chat.events(turn.id)]
    if [event.number for event in events] != list(range(1, len(events) + 1)):
        yield f"the events of {turn.id} have gaps"
    if not events or not isinstance(events[-1], TurnFinished):
        yield f"the events of {turn.id} have no end"
    emitted = world.events.get(turn.id, events)
    if [codec.encode(event) for event in emitted] != [codec.encode(event) for event in events]:
        yield f"the stored events of {turn.id} are not those emitted"
    if turn.kind is TurnKind.COMPLETED and turn.id in world.events and _added_up(events) != turn.text:
        yield f"the deltas of {turn.id} do not add up to its text"


def _added_up(events: Sequence[Event]) -> str:
    text = finished = ""
    for event in events:
        if isinstance(event, TextDelta | RefusalDelta):
            text += event.text
        elif isinstance(event, ItemDone):
            finished = text
        elif isinstance(event, TurnResumed):
            text = finished
    return text


async def _check_listener(listener: Listener, ledger: Ledger) -> AsyncIterator[str]:
    """Check that the events a listener received are the stored ones."""
    if not listener.received:
        return
    try:
        chat = await ledger.conversation(listener.conversation)
        events = [event async for event in chat.events(listener.turn)]
    except (ConversationDeleted, ConversationExpired):
        return
    for problem in listener.problems(events):
        yield problem


async def _live_conversations(whole: Inspection, bounds: tuple[int, int]) -> list[ConversationId]:
    now, limit = bounds
    tables = whole.of(OWNER)
    found = [await tables.conversation(each.row) for each in await whole.all_conversations(None, limit)]
    live = [each for each in found if each is not None and each.state is ConversationState.LIVE]
    return [each.id for each in live if not each.is_expired(now)]


async def _all_lines(whole: Inspection, conversations: list[Conversation]) -> list[list[RestingBranch]]:
    """Read the lines of all branches, in order of creation."""
    lines: dict[ConversationId, list[RestingBranch]] = {each.id: [] for each in conversations}
    shown = {each.branch for each in conversations}
    tables = whole.of(OWNER)
    for each in await whole.all_branches(None, ALL):
        id = each.row
        branch = await tables.branch(id)
        if branch is not None and branch.conversation in lines:
            turns, waiting = await turns_on(tables, branch), await tables.tickets(id)
            flags = await tables.flags([turn.id for turn in turns])
            line = RestingBranch(branch.conversation, branch, id in shown, turns, waiting, flags)
            lines[branch.conversation].append(line)
    return list(lines.values())
