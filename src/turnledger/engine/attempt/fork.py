"""Forks: the place on a line from which a turn or a chat continues elsewhere, and the branch made there.

An edit holds the lane of the current branch and leaves that branch unchanged. Its commit makes the new branch
and moves the conversation to it in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.attempt.effect_copies import Copy, add_copies, make_copies, move_flags
from turnledger.engine.conversations.list_entry import preview_at
from turnledger.engine.history import line
from turnledger.engine.ports import Tables
from turnledger.errors import InvalidInput, Superseded, TurnNotFound
from turnledger.model.conversation import Branch, Origin
from turnledger.model.flags import Flags, FlagsByTurn
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item, admit, calls_left_open, without_answers
from turnledger.model.turn import Fork, Turn, TurnKind


class Divergence(Struct, frozen=True, kw_only=True):
    """Asks to continue from an earlier turn of the current branch, on a new branch."""

    branch: BranchId
    """The id of the new branch, chosen by the caller so that begin can be repeated."""
    after: TurnId | None = None
    """The turn to continue from; None for the beginning."""
    replaces: TurnId | None = None
    """The turn to replace, instead of `after`."""
    regenerates: bool = False
    """Whether to reuse the input of the replaced turn: by default the last turn that was not settled."""
    forget: bool = False
    """Whether the effects of later turns are left behind, too."""

    def may_replace(self, last: TurnId) -> bool:
        """Return whether it replaces this turn, if that is the last one."""
        return self.replaces == last or (self.replaces is None and self.regenerates)


async def last_turn(tables: Tables, lane: Branch) -> Turn:
    """Return the last turn that was not settled, which a user sees as the last. Raises TurnNotFound."""
    number = lane.length
    while number:
        turn = await line.turn_at(tables, lane, number)
        if turn is not None and turn.kind is not TurnKind.SETTLED:
            return turn
        number -= 1
    raise TurnNotFound("This chat has no turns yet. Send a message first.")


async def find_replaced(tables: Tables, lane: Branch, divergence: Divergence) -> Turn | None:
    """Return the turn to replace, if any. Raises TurnNotFound if it is not on the line, and InvalidInput if
    it cannot be run again."""
    if divergence.replaces is None:
        return await last_turn(tables, lane) if divergence.regenerates else None
    turn = await turn_on(tables, lane, divergence.replaces)
    if divergence.regenerates and turn.kind is TurnKind.SETTLED:
        raise InvalidInput(
            "A settled turn records what tools did and cannot run again. Send a new message instead."
        )
    return turn


async def turn_on(tables: Tables, lane: Branch, id: TurnId) -> Turn:
    """Return the turn with this id, if it is on the line; raise TurnNotFound if not."""
    turn = await tables.turn(id)
    if turn is None:
        raise TurnNotFound
    await line.line_through(tables, lane, turn)
    return turn


class CommitPlace(Struct, frozen=True, kw_only=True):
    """Where a turn goes that does not follow the head: a fork, and copies of the turns carried over."""

    fork: Fork
    copies: tuple[Copy, ...]
    pending: tuple[Item, ...]
    """The open calls that the turn's input must answer."""
    instructed: int = 0
    """Number of the turn whose instructions are in force here."""
    input_flags: Mapping[int, Flags] = {}
    """The flags of the input, if the input of another turn is reused."""

    @property
    def carried(self) -> tuple[Turn, ...]:
        return tuple(copy.turn for copy in self.copies)

    @property
    def head(self) -> TurnId | None:
        return self.copies[-1].turn.id if self.copies else self.fork.base

    @property
    def length(self) -> int:
        return self.fork.number + len(self.copies)

    @property
    def flags(self) -> FlagsByTurn:
        return {copy.turn.id: copy.flags for copy in self.copies if copy.flags}

    def end(self, lane: Branch) -> Branch:
        """Return a branch of the conversation of this lane that ends here. It is not stored."""
        return Branch(
            id=self.fork.branch,
            conversation=lane.conversation,
            head=self.head,
            length=self.length,
            pending=self.pending,
            instructed=self.instructed,
        )


async def fork_at(tables: Tables, lane: Branch, divergence: Divergence, replaced: Turn | None = None) -> Fork:
    """Find the turn to fork from: the one before the replaced turn, or the requested one followed by any
    settled turns directly behind it. Raises TurnNotFound if it is not on the line."""
    base, number = divergence.after, 0
    if replaced is not None:
        base, number = replaced.parent, replaced.number - 1
    elif base is not None:
        number = (await turn_on(tables, lane, base)).number
    if not divergence.forget:
        while number < lane.settled:
            follower = await line.turn_at(tables, lane, number + 1)
            if follower is None or follower.kind is not TurnKind.SETTLED:
                break
            base, number = follower.id, follower.number
    repeats = replaced.id if replaced is not None and divergence.regenerates else None
    if replaced is not None and replaced.number <= number:  # settled, so it stays
        replaced = await line.turn_at(tables, lane, number + 1)
    return Fork(
        branch=divergence.branch,
        base=base,
        number=number,
        forget=divergence.forget,
        repeats=repeats,
        replaces=replaced.id if replaced is not None else None,
    )


async def place_of(tables: Tables, lane: Branch, fork: Fork) -> CommitPlace:
    """Return the place where a turn on this fork runs. Depends only on branch and head, except for the flags,
    which may change at any time."""
    base = await tables.turn(fork.base) if fork.base is not None else None
    pending = calls_left_open(base.items) if base is not None else ()
    instructed = base.instructed if base is not None else 0
    place = CommitPlace(fork=fork, copies=(), pending=pending, instructed=instructed)
    originals = [] if fork.forget else await line.effects_of(tables, lane, fork.number)
    if originals:
        copies = await make_copies(tables, place.end(lane), originals)
        place = replace(place, copies=copies, pending=())
    return place if fork.repeats is None else await _with_flags_of(tables, place, fork.repeats)


async def _with_flags_of(tables: Tables, place: CommitPlace, repeats: TurnId) -> CommitPlace:
    flags = (await tables.flags((repeats,))).get(repeats)
    turn = await tables.turn(repeats) if flags else None
    if not flags or turn is None:
        return place
    input = admit(place.pending, reuse_input(place, turn))
    return replace(place, input_flags=move_flags(flags, turn.items, input))


def reuse_input(place: CommitPlace, turn: Turn) -> tuple[Item, ...]:
    """Return the input of a turn, for reuse at another place. Settled turns in between have closed the calls
    that its results answered, so those results are dropped."""
    input = without_answers(turn.input) if place.copies else turn.input
    if not input:
        raise InvalidInput("That turn has no question to answer again. Send a new message instead.")
    return input


async def make_branch(
    tables: Tables,
    lane: Branch,
    place: CommitPlace,
    conversation: ConversationId,
    used_at: int | None = None,
    base: Turn | None = None,
) -> Branch:
    """Make the branch of a fork of this line, with the turns carried over; with `used_at`, a side branch.
    `base` is the turn it is made from, if it was read."""
    fork = place.fork
    if base is None and fork.base is not None:
        base = await tables.turn(fork.base)
    shared = await line.line_through(tables, lane, base) if base is not None else ()
    made = Branch(
        id=fork.branch,
        conversation=conversation,
        head=fork.base,
        length=fork.number,
        start=fork.number,
        settled=min(lane.settled, fork.number),
        pending=place.pending,
        instructed=place.instructed,
        preview=await preview_at(tables, base),
        used_at=used_at,
    )
    await tables.add_branch(made)
    await tables.add_origin(Origin(branch=made.id, conversation=conversation, base=fork.base, line=shared))
    if place.copies:
        made = await add_copies(tables, made, place.copies)
        await tables.save_branch(made)
    return made


async def open_branch(tables: Tables, lane: Branch, place: CommitPlace) -> Branch:
    """Make the branch of a fork, and make it the current one. The caller holds the lane, and saves both
    branches after adding its turn."""
    made = await make_branch(tables, lane, place, lane.conversation)
    if not await tables.move_conversation(lane.conversation, lane.id, made.id):
        raise Superseded
    if lane.last_ticket:
        await tables.move_tickets(lane.id, made.id)
        # Read again: the branch must show that tickets wait there.
        made = await tables.branch(made.id) or made
    return made
