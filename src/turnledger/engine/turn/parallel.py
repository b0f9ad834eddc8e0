"""Turns after any turn, in parallel: where they run, and when their branches are removed.

A turn that follows the end of the current branch, or of a side branch, takes the lane there if it is free.
Any other one gets a side branch of its own, made by its begin, so that none waits for another. A side branch
never becomes the current one by itself; a switch to it makes it an ordinary branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.attempt.effect_copies import carry_effects, missing_effects
from turnledger.engine.attempt.fork import CommitPlace, Divergence, fork_at, make_branch
from turnledger.engine.attempt.settle import settle
from turnledger.engine.conversations.list_entry import preview_at
from turnledger.engine.history import line
from turnledger.engine.ports import Tables, WholeStore
from turnledger.engine.tables.maintenance import UnusedBranch
from turnledger.errors import TurnNotFound
from turnledger.model.conversation import Branch, ConversationState, branch_bytes
from turnledger.model.ids import BranchId, TurnId, derive_id, time_of
from turnledger.model.item import calls_left_open
from turnledger.model.turn import Attempt, Fork, Turn


def side_branch_of(attempt: TurnId) -> BranchId:
    """Return the id of the branch that an attempt makes, the same whenever its begin is repeated."""
    return derive_id(BranchId, time_of(attempt), attempt)


async def branch_after(
    tables: Tables,
    current: Branch,
    after: TurnId,
    attempt: TurnId,
    now: int,
    *,
    earlier: Attempt | None,
    demand_disk: Callable[[], None],
) -> Branch | None:
    """Return the branch on which an attempt after a turn runs; its lane is free. `earlier` is the failed one
    that it retries, on the same branch. If that has moved on, effects of `earlier` are settled there and
    None is returned: a retry must not act again. Calls `demand_disk` before it settles or copies effects,
    which others may read. Raises TurnNotFound."""
    turn = await tables.turn(after)
    if turn is None:
        raise TurnNotFound
    home = current if turn.branch == current.id else await tables.branch(turn.branch)
    tried = await tables.branch(earlier.branch) if earlier is not None else None
    free = await free_branch(tables, current, turn, tried, home)
    if free is not None:
        return free
    if earlier is not None and tried is not None and tried.unsettled == earlier.id:
        demand_disk()
        await tables.save_branch(await settle(tables, tried, earlier, now))
        return None
    source = await line_with(tables, current, home, turn)
    sources = [source] if source.id == current.id else [source, current]
    for place, branch in enumerate(sources):
        waiting = await tables.attempt(branch.unsettled) if branch.unsettled else None
        if waiting is not None:
            demand_disk()
            sources[place] = await settle(tables, branch, waiting, now)
            await tables.save_branch(sources[place])
    return await _make_side_branch(tables, sources, turn, side_branch_of(attempt), now, demand_disk)


async def free_branch(tables: Tables, current: Branch, turn: Turn, *others: Branch | None) -> Branch | None:
    """Return the first of these branches, the current one last, that a turn after this one may continue."""
    for branch in (*others, current):
        if branch is not None and await _can_follow(tables, current, branch, turn):
            return branch
    return None


async def _can_follow(tables: Tables, current: Branch, branch: Branch, turn: Turn) -> bool:
    """Return whether the branch ends with the turn, and its lane is free. A branch that was left by a switch
    or an edit stays as it was left."""
    is_open = branch.id == current.id or (branch.is_side and branch.conversation == current.conversation)
    if not is_open or branch.running is not None or not await _ends_with(tables, branch, turn):
        return False
    return not (branch.last_ticket and await tables.tickets(branch.id))


async def _ends_with(tables: Tables, branch: Branch, turn: Turn) -> bool:
    """Return whether a line ends with a turn, or with settled turns directly behind it."""
    if branch.length == turn.number:
        return branch.head == turn.id
    if branch.settled < branch.length or branch.length < turn.number:
        return False
    try:
        end = await fork_at(tables, branch, Divergence(branch=branch.id, after=turn.id))
    except TurnNotFound:
        return False
    return end.number == branch.length


async def line_with(tables: Tables, current: Branch, home: Branch | None, turn: Turn) -> Branch:
    """Return a branch of the conversation whose line has the turn: if possible the current one, whose line
    has no effects that an undo forgot. Turns from before a fork are on its first branch."""
    if turn.branch == current.id:
        return current
    if home is None or home.conversation != current.conversation:
        home = await tables.first_branch(current.conversation)
    for branch in (current, home):
        if branch is not None and await _has_turn(tables, branch, turn):
            return branch
    raise TurnNotFound


async def _has_turn(tables: Tables, branch: Branch, turn: Turn) -> bool:
    try:
        await line.line_through(tables, branch, turn)
    except TurnNotFound:
        return False
    return True


async def _make_side_branch(
    tables: Tables,
    sources: list[Branch],
    turn: Turn,
    id: BranchId,
    now: int,
    demand_disk: Callable[[], None],
) -> Branch:
    """Make the branch from the first of these lines, with the settled turns directly behind the turn and the
    effects of all of them."""
    source = sources[0]
    fork, base = Fork(branch=id, base=turn.id, number=turn.number), turn
    if source.settled > turn.number:
        fork = await fork_at(tables, source, Divergence(branch=id, after=turn.id))
        base = await line.turn_at(tables, source, fork.number) or turn
    place = CommitPlace(fork=fork, copies=(), pending=calls_left_open(base.items), instructed=base.instructed)
    made = await make_branch(tables, source, place, source.conversation, now, base)
    for each in sources:
        missing = await missing_effects(tables, each, made)
        if missing:
            demand_disk()
            made = await carry_effects(tables, made, missing)
    return made


@dataclass(frozen=True)
class FindUnusedRequest:
    used_by: int
    limit: int


async def find_unused(whole: WholeStore, request: FindUnusedRequest) -> list[UnusedBranch]:
    return await whole.unused_side_branches(request.used_by, request.limit)


@dataclass(frozen=True)
class RemoveRequest:
    branch: BranchId
    used_by: int
    limit: int


async def remove_side_branch(tables: Tables, request: RemoveRequest) -> int:
    """Remove up to `limit` of the last turns of a side branch that was not used since, and with the first one
    the branch itself; return the number of rows. What is left is a whole branch."""
    branch = await tables.branch(request.branch)
    if branch is None or not await _is_unused(tables, branch, request.used_by):
        return 0
    left = max(branch.start, branch.length - request.limit)
    last = await line.turn_at(tables, branch, left) if left > branch.start else None
    stored = branch.bytes - await tables.drop_turns(branch.id, left)
    await tables.count_bytes(branch_bytes(stored) - branch_bytes(branch.bytes))
    trimmed = replace(branch, length=left, settled=min(branch.settled, left), bytes=stored)
    if last is not None:
        trimmed = replace(
            trimmed,
            head=last.id,
            pending=calls_left_open(last.items),
            instructed=last.instructed,
            preview=await preview_at(tables, last),
        )
    await tables.save_branch(trimmed)
    if left == branch.start:
        await tables.drop_branch(branch.id)
    return branch.length - left + 1


async def _is_unused(tables: Tables, branch: Branch, used_by: int) -> bool:
    """Decide again, in the transaction that removes it: it may have been used or shown since."""
    if branch.used_at is None or branch.used_at > used_by or branch.running is not None:
        return False
    if branch.last_ticket and await tables.tickets(branch.id):
        return False  # durable work waits there
    found = await tables.conversation(branch.conversation)
    is_live = found is not None and found.state is ConversationState.LIVE and found.branch != branch.id
    return is_live and not await tables.has_offshoots(branch.id)
