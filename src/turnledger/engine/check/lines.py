"""Checks of a branch's line: its turns, their calls, the instructions in force, and its origin. Also of what
is stored beside a turn: its event log, and the flags of its items.

Each branch is checked for its own turns, and for its link to the right turn of the branch it was made from.
If all branches pass, all lines are whole, and no turn was read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from turnledger.engine.attempt.sent_log import load_attempt_log
from turnledger.engine.attempt.stored_events import EndedTurnLog, turn_log_of
from turnledger.engine.check.audit import PAGE, UNREADABLE, Audit, Location
from turnledger.engine.history import line
from turnledger.errors import MalformedItems, StoreCorrupt, StoreError
from turnledger.model import codec, event_log
from turnledger.model.check import Rule
from turnledger.model.conversation import Branch, Origin, Stretch
from turnledger.model.flags import WHOLE
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, calls_left_open, checked_items, object_of, open_calls
from turnledger.model.turn import Attempt, AttemptState, Turn, TurnBody


async def check_log_and_flags(audit: Audit, place: Location, turn: Turn) -> None:
    """Check the event log and the flags of a turn whose items can be read."""
    place = replace(place, turn=turn.id)
    try:
        kept = await audit.tables.turn_log(turn.id)
        if kept:
            _rebuild(turn_log_of(turn, kept))
            if event_log.decode_whole(kept) is None:
                _check_item_count(turn, kept)
    except UNREADABLE as problem:
        audit.report_unreadable(place, "Its event log", problem)
    try:
        flags = (await audit.tables.flags((turn.id,))).get(turn.id, {})
    except UNREADABLE as problem:
        audit.report_unreadable(place, "Its flags", problem)
        return
    astray = [at for at in flags if not WHOLE <= at < len(turn.items)]
    if astray:
        audit.report(
            Rule.ORPHAN,
            place,
            f"Item {astray[0]} is flagged, but the turn has {len(turn.items)} items, counted from 0; hidden "
            "items may be shown.",
        )


async def check_set_aside(audit: Audit, place: Location, attempt: Attempt) -> None:
    if attempt.state is AttemptState.RUNNING:
        return
    try:
        _rebuild(EndedTurnLog.of(await load_attempt_log(audit.tables, attempt)))
    except UNREADABLE as problem:
        audit.report_unreadable(place, "Its event log", problem)


def _rebuild(over: EndedTurnLog) -> None:
    """Rebuild all events, as for a reader, and decode the items that only the log holds."""
    for _ in over.events():
        continue
    for code, _, raw, _ in event_log.entries(over.log):
        if code == event_log.INLINE:
            checked_items((msgspec.Raw(raw),))


def _check_item_count(turn: Turn, kept: bytes) -> None:
    count = event_log.count_items(event_log.decode_log(kept, turn.output))
    if count != len(turn.output):
        raise StoreCorrupt(f"The log has {count} items, the output {len(turn.output)}.")


@dataclass
class _Walk:
    """How far the turns of a branch were followed. None: unknown because of damage."""

    place: Location
    number: int
    """The number of the last turn seen."""
    before: TurnId | None = None
    is_sure: bool = True
    """Whether `before` is the turn with that number."""
    pending: tuple[Item, ...] | None = ()
    instructed: int | None = 0
    """Number of the turn whose instructions are in force after the last turn seen."""
    settled: list[int] = field(default_factory=list)


async def check_line(audit: Audit, place: Location, branch: Branch, *, whole: bool) -> None:
    """Check the turns of a branch, and its origin. If its conversation is not whole, only the turns that
    branches elsewhere need must be there."""
    walk = await _from_origin(audit, place, branch, whole=whole)
    through = branch.length if whole else await audit.whole.needed_through(branch.id)
    await _follow(audit, walk, branch, through, whole=whole)
    if whole:
        _check_head(audit, walk, branch)
        late = [number for number in walk.settled if number > branch.settled]
        if late:
            audit.report(
                Rule.SETTLED,
                place,
                f"Turn {late[0]} has tool effects, but the branch records none after turn {branch.settled}; "
                "an edit could hide them.",
            )
    if branch.settled or walk.settled:
        audit.remember_settled(branch.id, tuple(walk.settled))


async def _from_origin(audit: Audit, place: Location, branch: Branch, *, whole: bool) -> _Walk:
    """Start the walk behind the turn that the branch was made from."""
    unknown = _Walk(place, branch.start, is_sure=False, pending=None, instructed=None)
    origin: Origin | None = None
    try:
        origin = await audit.tables.origin(branch.id)
    except UNREADABLE as problem:
        audit.report_unreadable(place, "Its origin", problem)
        return unknown
    if origin is None and branch.start and whole:
        audit.report(
            Rule.CHAIN,
            place,
            f"The branch starts after turn {branch.start} of another, but has no origin; its beginning is "
            "lost.",
        )
    if origin is None:
        return _Walk(place, 0) if branch.start == 0 else unknown
    if origin.conversation != branch.conversation:
        audit.report(
            Rule.ORPHAN,
            place,
            f"The origin belongs to {origin.conversation}; siblings do not list this branch.",
        )
    base: Turn | None = None
    if origin.base is not None:
        try:
            base = await audit.tables.turn(origin.base)
        except UNREADABLE:
            return unknown  # recorded at that turn's own branch
    wrong = await _origin_problem(audit, branch, origin, base)
    if wrong is not None:
        audit.report(Rule.CHAIN, place, wrong)
    if base is None:
        return unknown if origin.base is not None else _Walk(place, 0)
    return await _start_after(audit, place, base)


async def _origin_problem(audit: Audit, branch: Branch, origin: Origin, base: Turn | None) -> str | None:
    """Return what is wrong with an origin: it must lead to its base, and on as the base's branch does."""
    if origin.base is not None and base is None:
        return f"The branch was made from {origin.base}, which is missing; its beginning is lost."
    number = base.number if base is not None else 0
    if branch.start != number:
        return f"The branch starts after turn {branch.start}, but was made from turn {number}."
    expected: tuple[Stretch, ...] = ()
    if base is not None:
        with audit.skipping_unreadable():
            source = await audit.tables.branch(base.branch)
            if source is None:
                return f"The branch was made from {base.id}, whose branch is missing; its beginning is lost."
            before = await audit.tables.origin(base.branch)
            first = Stretch(base.branch, source.start, base.number)
            expected = (first, *(before.line if before else ()))[: line.STRETCHES_KEPT]
    if origin.line != expected and (expected or base is None):
        return "The origin does not lead from its base to the first turn; the branch reads other turns."
    return None


async def _start_after(audit: Audit, place: Location, base: Turn) -> _Walk:
    """Start the walk behind a base, with the calls that it leaves open and the settled turns up to it."""
    walk = _Walk(place, base.number, base.id, pending=None, instructed=None)
    with audit.skipping_unreadable():
        walk.pending = calls_left_open(items_of(base))
        walk.instructed = base.instructed
    with audit.skipping_unreadable(StoreError):  # a stretch may name a missing branch
        source = await audit.tables.branch(base.branch)
        if source is not None:
            settled = await _settled_on(audit, source)
            walk.settled = [number for number in settled if number <= base.number]
    return walk


async def _settled_on(audit: Audit, branch: Branch) -> tuple[int, ...]:
    """Return the numbers of the settled turns of a line, from the cache if it still has them."""
    if branch.settled == 0:
        return ()
    known = audit.settled_on(branch.id)
    if known is not None:
        return known
    found: list[int] = []
    for after in range(0, branch.length, PAGE):
        page = await line.turns_of(audit.tables, branch, after, after + PAGE, PAGE)
        found += [turn.number for turn in page if turn.is_carried]
    audit.remember_settled(branch.id, tuple(found))
    return tuple(found)


async def _follow(audit: Audit, walk: _Walk, branch: Branch, through: int, *, whole: bool) -> None:
    while True:
        page = await _page(audit, walk, branch)
        for turn in page:
            if turn is None:
                walk.number += 1
                walk.is_sure, walk.pending, walk.instructed = False, None, None
                continue
            if turn.number > through:
                if whole:
                    _report_beyond(audit, walk, branch, turn)
                return
            if _check_turn(audit, walk, turn):
                await check_log_and_flags(audit, walk.place, turn)
        if walk.number >= through and len(page) < PAGE:
            return
        if not page:
            _report_gap(audit, walk, through + 1)
            return


async def _page(audit: Audit, walk: _Walk, branch: Branch) -> Sequence[Turn | None]:
    """Return the next turns, with None for each that cannot be read."""
    after = walk.number
    try:
        return await audit.tables.turns(branch.id, after, after + PAGE, PAGE)
    except UNREADABLE:
        found: list[Turn | None] = []
    for number in range(after + 1, min(after + PAGE, branch.length) + 1):
        try:
            found += await audit.tables.turns(branch.id, number - 1, number, 1)
        except UNREADABLE as problem:
            audit.report_unreadable(walk.place, f"Turn {number}", problem)
            found.append(None)
    return found


def _check_turn(audit: Audit, walk: _Walk, turn: Turn) -> bool:
    """Advance to this turn; return whether its items can be read."""
    audit.turns += 1
    place = replace(walk.place, turn=turn.id)
    if turn.number != walk.number + 1:
        _report_gap(audit, walk, turn.number)
    elif walk.is_sure and turn.parent != walk.before:
        audit.report(
            Rule.CHAIN,
            place,
            f"Turn {turn.number} has the parent {turn.parent}, but follows {walk.before}.",
        )
    walk.number, walk.before, walk.is_sure = turn.number, turn.id, True
    try:
        items = items_of(turn)
    except UNREADABLE as problem:
        audit.report_unreadable(place, "It", problem)
        walk.pending = walk.instructed = None
        return False
    if turn.is_carried:
        walk.settled.append(turn.number)
    _check_pairs(audit, place, walk.pending, items)
    _check_instructed(audit, place, walk.instructed, turn)
    walk.pending, walk.instructed = calls_left_open(items), turn.instructed
    return True


def _check_instructed(audit: Audit, place: Location, before: int | None, turn: Turn) -> None:
    """Check that the instructions in force behind a turn were so before it, or came with it."""
    given, stated = turn.instructions, turn.instructed
    is_new = given is not None and stated == (turn.number if given else 0)
    if before is not None and stated != before and not is_new:
        audit.report(
            Rule.INSTRUCTIONS,
            place,
            f"The turn keeps the instructions of turn {stated}, but those of turn {before} were in force (0: "
            "none).",
        )


NO_DETAILS = msgspec.Raw(b"{}")


def items_of(turn: Turn) -> tuple[Item, ...]:
    """Decode the items of a turn, with all parts that a reader would defer or trust."""
    body = codec.decode(TurnBody, turn.body)
    items = checked_items(body.items)
    checked_items(body.instructions or ())
    object_of(body.details or NO_DETAILS)
    if not 0 <= body.input <= len(items):
        raise StoreCorrupt(f"The turn has {len(items)} items, but counts {body.input} as input.")
    return items


def _check_pairs(
    audit: Audit, place: Location, pending: tuple[Item, ...] | None, items: tuple[Item, ...]
) -> None:
    if pending is None:
        return  # what came before cannot be read, so its open calls are unknown
    try:
        left = open_calls((*pending, *items))
    except MalformedItems as problem:
        audit.report(Rule.PAIRS, place, f"{problem} Models refuse such a history.")
        return
    own = calls_left_open(items)
    for call in left:
        if call not in own:
            audit.report(
                Rule.PAIRS,
                place,
                f"The call {call.call_id} of the previous turn has no result. Models refuse such a history.",
            )


def _report_gap(audit: Audit, walk: _Walk, until: int) -> None:
    first, last = walk.number + 1, until - 1
    which = f"Turn {first} is" if first == last else f"Turns {first} to {last} are"
    audit.report(Rule.CHAIN, walk.place, f"{which} missing.")
    walk.is_sure, walk.pending, walk.instructed = False, None, None


def _report_beyond(audit: Audit, walk: _Walk, branch: Branch, turn: Turn) -> None:
    audit.report(
        Rule.CHAIN,
        replace(walk.place, turn=turn.id),
        f"Turn {turn.number} follows the head, which is turn {branch.length}; the next commit fails.",
    )


def _check_head(audit: Audit, walk: _Walk, branch: Branch) -> None:
    if branch.length < branch.start:
        audit.report(
            Rule.CHAIN,
            walk.place,
            f"The branch has {branch.length} turns, but shares {branch.start} with another branch.",
        )
    elif walk.is_sure and walk.number == branch.length and walk.before != branch.head:
        audit.report(
            Rule.CHAIN,
            walk.place,
            f"The head is {branch.head}, but the last turn is {walk.before}; no turn can be committed.",
        )
    elif walk.pending is not None and walk.number == branch.length and walk.pending != branch.pending:
        waiting = ", ".join(str(call.call_id) for call in branch.pending) or "no call"
        audit.report(
            Rule.PAIRS,
            walk.place,
            f"The branch waits for {waiting}, but its head leaves other calls open; it refuses valid input.",
        )
    if walk.instructed is not None and walk.number == branch.length and walk.instructed != branch.instructed:
        audit.report(
            Rule.INSTRUCTIONS,
            walk.place,
            f"The branch records the instructions of turn {branch.instructed}, but its head those of turn "
            f"{walk.instructed} (0: none).",
        )
