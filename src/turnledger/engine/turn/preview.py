"""Preview: what a model would be shown if a turn began now. It takes no lane and writes nothing.

Effects that wait are shown as the settled turn that the next begin would make of them.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.attempt.effect_copies import Copy, effects_behind, make_copies, missing_effects
from turnledger.engine.attempt.fork import CommitPlace, Divergence, fork_at
from turnledger.engine.attempt.settle import settled_turn
from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.history import line
from turnledger.engine.ports import Tables
from turnledger.engine.process import Process
from turnledger.engine.turn.begin import AcquireRequest, BeginRequest, Begun, new_attempt
from turnledger.engine.turn.parallel import free_branch, line_with
from turnledger.engine.turn.snapshot import Snapshot, snapshot
from turnledger.errors import BranchNotFound, TurnNotFound
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, admit, calls_left_open, open_calls
from turnledger.model.journal import Journal
from turnledger.model.messages.messages import Message, messages_of
from turnledger.model.turn import Fork, Turn, instructions_from


class ChatSnapshot(Struct, frozen=True):
    """What a model would be shown now."""

    items: tuple[Item, ...]
    """Instructions, primer, history and input, in Responses shape."""
    turns: int
    """Turns of the history, shown or not; with those that wait to be settled."""
    tokens: int
    """Of all items, as its context counts them."""
    budget: int | None = None
    """The tokens that its context allows; None for no limit."""

    @property
    def messages(self) -> list[Message]:
        """The items as chat messages."""
        return messages_of(self.items)

    @property
    def left(self) -> int | None:
        """The tokens left of the budget; below 0 if what must be shown exceeds it."""
        return None if self.budget is None else self.budget - self.tokens


class UnwrittenTurn(Struct, frozen=True):
    """What a turn would run on if it began now."""

    conversation: Conversation
    snapshot: Snapshot
    input: tuple[Item, ...]
    turns: int
    """Turns of the history, shown or not."""

    @property
    def items(self) -> tuple[Item, ...]:
        """What its model would be shown."""
        return self.snapshot.shown(self.input, ())


async def preview(process: Process, asked: AcquireRequest) -> ChatSnapshot:
    """Return what the model of this turn would be shown if it began now. Raises what `unwritten` raises."""
    turn = await unwritten(process, asked)
    items = turn.items
    return ChatSnapshot(items, turn.turns, asked.context.count_all(items), asked.context.tokens)


async def unwritten(process: Process, asked: AcquireRequest) -> UnwrittenTurn:
    """Return what this turn would run on if it began now. Raises what begin raises for its input, and
    ConversationNotFound, ConversationDeleted, ConversationExpired and TurnNotFound."""
    begun = await process.store.read(begin_unwritten, asked.begin, asked.begin.target.owner)
    shown = await snapshot(process, begun, asked.context, asked.primer)
    turns = begun.place.length if begun.place is not None else begun.branch.length
    return UnwrittenTurn(begun.conversation, shown, begun.attempt.input, turns)


async def begin_unwritten(tables: Tables, request: BeginRequest) -> Begun:
    """Return what begin would, as if the lane were free; turns that it would add are copies in the place."""
    content, target = request.content, request.target
    assert target.id is not None  # noqa: S101 - it is that of a Chat
    conversation = await live_conversation(tables, target.id, request.round.due)
    current = await tables.branch(conversation.branch)
    if current is None:
        raise BranchNotFound
    branch, place, sources = await _place_of(tables, current, content.after)
    given = content.instructions
    for lane, effects in sources:
        for copy in await make_copies(tables, place.end(lane), effects):
            place = _followed_by(place, copy)
        waiting = await tables.attempt(lane.unsettled) if lane.unsettled else None
        if waiting is None:
            continue
        settled, flags = await settled_turn(tables, lane, waiting, request.round.now)
        if place.head != lane.head:
            [copy] = await make_copies(tables, place.end(lane), [settled], {settled.id: flags})
        else:
            copy = Copy(settled, settled, flags)
            lasting = instructions_from(settled)
            if given is None and lasting is not None and lasting.is_lasting:
                given = lasting  # they, or their end, cannot be read from the store
        place = _followed_by(place, copy)
    input = admit(place.pending, content.input) if content.input else ()
    attempt = new_attempt(conversation, branch, request, input, given)
    elsewhere = place if place.head != branch.head else None
    return Begun(conversation, branch, attempt, Journal(), elsewhere, await tables.flag_version())


def _followed_by(place: CommitPlace, copy: Copy) -> CommitPlace:
    pending = open_calls((*place.pending, *copy.turn.items))
    return replace(place, copies=(*place.copies, copy), pending=pending)


async def _place_of(
    tables: Tables, current: Branch, after: TurnId | None
) -> tuple[Branch, CommitPlace, list[tuple[Branch, list[Turn]]]]:
    """Return the branch whose line the turn continues, its place there, and the branches whose effects it
    carries, with those that are settled."""
    turn = await tables.turn(after) if after is not None else None
    home = await tables.branch(turn.branch) if turn is not None else None
    if turn is None and after is not None:
        raise TurnNotFound
    end = current if turn is None else await free_branch(tables, current, turn, home)
    if turn is None or end is not None:
        end = end or current
        fork = Fork(branch=end.id, base=end.head, number=end.length)
        place = CommitPlace(fork=fork, copies=(), pending=end.pending, instructed=end.instructed)
        return end, place, [(end, [])]
    branch = await line_with(tables, current, home, turn)
    fork = await fork_at(tables, branch, Divergence(branch=branch.id, after=turn.id))
    base = await line.turn_at(tables, branch, fork.number) or turn
    place = CommitPlace(fork=fork, copies=(), pending=calls_left_open(base.items), instructed=base.instructed)
    sources = [(branch, await effects_behind(tables, branch, fork.number))]
    if branch.id != current.id:
        sources.append((current, await missing_effects(tables, current, branch)))
    return branch, place, sources
