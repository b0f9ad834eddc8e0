"""Plan an import: make a well-formed tree of turns from the lines of a chat, and report every change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

import msgspec

from turnledger.engine.conversations.details import check_details, tags_of
from turnledger.engine.limits import Limits
from turnledger.engine.turn.validation import check_name, check_scope
from turnledger.errors import InvalidId, InvalidInput, MalformedItems
from turnledger.model import event_log, transfer
from turnledger.model.conversation import LONGEST, TEXT_LENGTH, Conversation, TitleSource
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, Id, TurnId, derive_id
from turnledger.model.item import (
    DEEPEST,
    Item,
    calls_left_open,
    check_plain,
    object_of,
    raw_object,
    started_calls,
)
from turnledger.model.messages.repair import FittedTurn, fit_turn
from turnledger.model.reset_policy import NEVER, ResetPolicy
from turnledger.model.transfer import ChatLine, ImportOutcome, ImportReport, Notes, TurnLine
from turnledger.model.turn import Failure, Instructions, Turn, TurnKind, instructed_after, is_instruction

LATEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""
HIGHEST = 2**53
"""The largest integer that every JSON parser reads exactly."""

Pause: TypeAlias = Callable[[], None]
"""Called between the turns of a long chat."""
_is_effect = re.compile(r"[0-9a-f]{32}").fullmatch
AnyId = TypeVar("AnyId", bound=Id)


def known_id(kind: type[AnyId], text: str, at: int, within: str) -> AnyId:
    """Return the id in a text, or derive one, the same each time, from a text that is not one of ours."""
    try:
        return kind(text)
    except InvalidId:
        return derive_id(kind, at, within, text)


def _conversation(planner: _Planner, id: ConversationId, owner: str) -> Conversation:
    """Return the conversation of the header line for this owner. Details beyond their limits are left out,
    and noted."""
    header, at = planner.header, planner.at
    if id != header.id:
        planner.note(at, ImportOutcome.RENAMED, f"{header.id[:80]!r} is not a chat id; replaced by {id}.")
    title, named_by = _title(planner)
    return Conversation(
        id=id,
        owner=owner,
        branch=derive_id(BranchId, header.created_at, str(id), ""),
        scope=check_scope("scope", header.scope),
        conversation_key=_name(planner, "conversation_key", header.conversation_key),
        former_conversation_key=_name(planner, "former_conversation_key", header.former_conversation_key),
        internal=header.internal,
        title=title,
        named_by=named_by,
        tags=_tags(planner),
        pinned=header.pinned,
        archived=header.archived,
        metadata=_metadata(planner),
        revision=_revision(planner),
        created_at=header.created_at,
        touched_at=header.touched_at,
        expires_after=_expiry(planner),
        reset_policy=_reset_policy(planner),
    )


def _name(planner: _Planner, field: str, value: str | None) -> str | None:
    if value is not None:
        try:
            check_name(field, value)
        except InvalidInput as problem:
            planner.drop(planner.at, str(problem))
            return None
    return value


def _title(planner: _Planner) -> tuple[str | None, TitleSource | None]:
    title, named_by, at = planner.header.title, planner.header.named_by, planner.at
    if title is not None and len(title) > TEXT_LENGTH:
        title = title[:TEXT_LENGTH]
        planner.repair(at, f"The title was cut to {TEXT_LENGTH} characters.")
    if named_by is not None and named_by not in tuple(TitleSource):
        planner.drop(at, f"named_by is {named_by!r}; it must be one of {', '.join(TitleSource)}.")
        named_by = None
    if named_by is not None and title is None:
        planner.drop(at, "named_by is set, but the chat has no title.")
        named_by = None
    return title, None if named_by is None else TitleSource(named_by)


def _revision(planner: _Planner) -> int:
    revision = planner.header.revision
    if not 1 <= revision <= HIGHEST:
        planner.repair(planner.at, f"The revision {revision} is out of range; replaced by 1.")
        return 1
    return revision


def _tags(planner: _Planner) -> tuple[str, ...]:
    try:
        return tags_of(planner.header.tags)
    except InvalidInput as problem:
        planner.drop(planner.at, f"Its tags: {problem}")
        return ()


def _metadata(planner: _Planner) -> dict[str, str]:
    try:
        check_details(None, planner.header.metadata)
    except InvalidInput as problem:
        planner.drop(planner.at, str(problem))
        return {}
    return dict(planner.header.metadata)


def _expiry(planner: _Planner) -> int | None:
    expires_after = planner.header.expires_after
    if expires_after is not None and not 0 < expires_after <= LONGEST * 1000:
        planner.drop(planner.at, f"expires_after must be above 0 and at most {LONGEST:g} seconds.")
        return None
    return expires_after


def _reset_policy(planner: _Planner) -> ResetPolicy:
    line = planner.header.reset_policy
    if line is None:
        return NEVER
    try:
        if line.idle_after is not None:
            ResetPolicy.idle(line.idle_after / 1000)
        if line.daily_at is not None:
            ResetPolicy.daily(line.daily_at, line.timezone)
    except InvalidInput as problem:
        planner.drop(planner.at, f"Its reset policy: {problem}")
        return NEVER
    return line.policy


MOST_ITEMS = 100_000
NO_BRANCH = derive_id(BranchId, 0, "nowhere")
"""The branch of a turn that has none yet."""
LONGEST_FAILURE = 65_536
"""Characters of a failure: many more than those made here have."""


@dataclass(frozen=True)
class PlannedTurn:
    line: int
    id: TurnId
    parent: TurnId | None
    kind: TurnKind
    created_at: int
    committed_at: int
    instructions: Instructions | None
    details: bytes
    input: tuple[Item, ...]
    output: tuple[Item, ...]
    flags: Mapping[int, Flags]
    failure: Failure | None = None
    number: int = 0
    instructed: int = 0
    settled: int = 0
    """Number of the last turn up to here that is carried to other branches."""
    effects: tuple[int, ...] | None = None

    def turn(self, branch: BranchId, ids: Mapping[TurnId, TurnId]) -> Turn:
        """Return the turn on a branch, with turn ids replaced by these."""
        turn = msgspec.structs.replace(
            self._unplaced,
            id=ids.get(self.id, self.id),
            branch=branch,
            parent=None if self.parent is None else ids.get(self.parent, self.parent),
        )
        turn.__dict__.update(self._unplaced.__dict__)
        return turn

    def encode(self) -> None:
        """Encode the turn and its log now: inside the transaction, all other writers would wait."""
        _ = self._unplaced, self.log

    @cached_property
    def log(self) -> bytes:
        return event_log.encode_at_once(self.output, self.failure)

    @cached_property
    def _unplaced(self) -> Turn:
        given = self.instructions
        return Turn.of(
            id=self.id,
            branch=NO_BRANCH,
            number=self.number,
            parent=self.parent,
            kind=self.kind,
            created_at=self.created_at,
            committed_at=self.committed_at,
            input=self.input,
            output=self.output,
            instructions=None if given is None else given.items,
            instructed=self.instructed,
            details=self.details,
            effects=self.effects,
        )

    @property
    def is_carried(self) -> bool:
        """Whether branches that leave it out show its effects; see Turn.is_carried."""
        if self.kind is TurnKind.INTERRUPTED:
            return bool(started_calls(self.output) if self.effects is None else self.effects)
        return self.kind is TurnKind.SETTLED


@dataclass(frozen=True)
class Plan:
    """A chat to be imported: its turns, parents before children, branch by branch."""

    line: int
    conversation: Conversation
    branches: tuple[tuple[BranchId, TurnId | None], ...]
    turns: dict[TurnId, PlannedTurn]
    forgotten: tuple[bytes, ...] = ()
    """The names of the effects that stay forgotten."""
    reports: tuple[ImportReport, ...] = ()

    def line_of(self, head: TurnId | None, stop_at: Iterable[TurnId] = ()) -> list[PlannedTurn]:
        """Return the turns that lead to a head, first one first, without known ones and those before them."""
        found: list[PlannedTurn] = []
        seen = stop_at if isinstance(stop_at, set | dict) else set(stop_at)
        while head is not None and head not in seen:
            found.append(self.turns[head])
            head = self.turns[head].parent
        return found[::-1]


@dataclass
class _Planner:
    """The planning of one chat. Each step builds on the ones before."""

    header: ChatLine
    at: int
    limits: Limits
    chat: str
    pause: Pause
    notes: Notes = field(default_factory=Notes)
    turns: dict[TurnId, PlannedTurn] = field(default_factory=dict)
    replacements: dict[TurnId, TurnId | None] = field(default_factory=dict)
    """Turns that were left out, and what replaces them."""

    def id_of(self, kind: type[AnyId], text: str) -> AnyId:
        return known_id(kind, text, self.header.created_at, self.chat)

    def note(self, line: int, did: ImportOutcome, why: str, turn: str | None = None) -> None:
        self.notes.add(line, did, why, chat=self.chat, turn=turn)

    def drop(self, line: int, why: str, turn: str | None = None) -> None:
        self.note(line, ImportOutcome.DROPPED, why, turn)

    def repair(self, line: int, why: str, turn: str | None = None) -> None:
        self.note(line, ImportOutcome.REPAIRED, why, turn)


def plan_import(
    header: ChatLine,
    at: int,
    lines: Sequence[tuple[int, TurnLine]],
    owner: str,
    limits: Limits,
    pause: Pause = lambda: None,
) -> Plan:
    """Plan a chat from these lines for an owner. Raises InvalidInput if none of it can be imported."""
    if len(header.branches) > limits.import_turns:
        raise InvalidInput(f"The chat has too many branches; the limit is {limits.import_turns}.")
    if not (0 <= header.created_at <= LATEST and 0 <= header.touched_at <= LATEST):
        raise InvalidInput("created_at and touched_at must be milliseconds since 1970.")
    id = known_id(ConversationId, header.id, header.created_at, owner)
    planner = _Planner(header, at, limits, str(id), pause)
    conversation = _conversation(planner, id, owner)
    _read_turns(planner, lines)
    _assign_parents(planner)
    _fit(planner)
    branches = _branches(planner, conversation)
    return _make_plan(planner, conversation, branches)


def _read_turns(planner: _Planner, lines: Sequence[tuple[int, TurnLine]]) -> None:
    for at, line in lines:
        planner.pause()
        try:
            turn = _turn_of(planner, at, line)
        except MalformedItems as problem:
            planner.drop(at, str(problem), line.id)
            continue
        if turn.id in planner.turns:
            planner.drop(at, "An earlier turn has the same id.", line.id)
        else:
            planner.turns[turn.id] = turn
    stated = planner.header.turns
    if stated is not None and stated != len(lines):
        why = f"The header states {stated} turns; {len(lines)} could be read."
        planner.repair(planner.at, why)


def _turn_of(planner: _Planner, at: int, line: TurnLine) -> PlannedTurn:
    """Return the turn of a line, as far as this line alone determines it."""
    if line.kind not in tuple(TurnKind):
        raise MalformedItems(f"Its kind is {line.kind!r}; it must be one of {', '.join(TurnKind)}.")
    if not (0 <= line.created_at <= LATEST and 0 <= line.committed_at <= LATEST):
        raise MalformedItems("created_at and committed_at must be milliseconds since 1970.")
    if len(line.input) + len(line.output) > MOST_ITEMS:
        raise MalformedItems(f"The turn has too many items; the limit is {MOST_ITEMS}.")
    if sum(len(bytes(raw)) for raw in (*line.input, *line.output)) > planner.limits.turn_bytes:
        raise MalformedItems(f"The turn is too large; the limit is {planner.limits.turn_bytes} bytes.")
    id = planner.id_of(TurnId, line.id)
    if id != line.id:
        shown = line.id[:80]
        planner.note(at, ImportOutcome.RENAMED, f"{shown!r} is not a turn id; replaced by {id}.", shown)
    parent = None if line.parent is None else planner.id_of(TurnId, line.parent)
    given = _items(planner, at, line, (*line.input, *line.output))
    items = [item for item in given if item is not None]
    input = sum(item is not None for item in given[: len(line.input)])
    places = {place: new for new, place in enumerate(p for p, item in enumerate(given) if item is not None)}
    return PlannedTurn(
        line=at,
        id=id,
        parent=parent,
        kind=TurnKind(line.kind),
        created_at=line.created_at,
        committed_at=line.committed_at,
        instructions=_instructions(planner, at, line),
        details=_details(planner, at, line),
        input=tuple(items[:input]),
        output=tuple(items[input:]),
        flags=_flags(planner, at, line, places),
        failure=_failure(planner, at, line),
        effects=_effects(planner, at, line, given[len(line.input) :]),
    )


def _items(planner: _Planner, at: int, line: TurnLine, raws: Sequence[msgspec.Raw]) -> list[Item | None]:
    """Return the items of a line, with None for invalid ones."""
    found: list[Item | None] = []
    for place, raw in enumerate(raws):
        try:
            found.append(plain_item(raw))
        except MalformedItems as problem:
            planner.drop(at, f"Item {place}: {problem}", line.id)
            found.append(None)
    return found


def plain_item(raw: msgspec.Raw) -> Item:
    """Return an item from foreign JSON. Raises MalformedItems if readers could not decode it."""
    item = Item(raw)
    if item.raw.count(b"{") + item.raw.count(b"[") > DEEPEST:
        try:
            check_plain(item.fields)
        except ValueError as problem:
            raise MalformedItems(f"An item must be plain JSON: {problem}.") from None
    return item


def _instructions(planner: _Planner, at: int, line: TurnLine) -> Instructions | None:
    given = transfer.instructions_of(line)
    if given is None:
        if line.instructions_once:
            planner.drop(at, "instructions_once is set, but the turn has no instructions.", line.id)
        return None
    try:
        if len(given) > planner.limits.input_items:
            raise MalformedItems(f"there are more than {planner.limits.input_items}.")
        items = tuple(plain_item(raw) for raw in given)
        if not all(map(is_instruction, items)):
            raise MalformedItems("their role must be system or developer.")
    except MalformedItems as problem:
        planner.drop(at, f"Its instructions are invalid: {problem}", line.id)
        return None
    return Instructions(items, is_lasting=not line.instructions_once)


def _details(planner: _Planner, at: int, line: TurnLine) -> bytes:
    raw = transfer.details_of(line)
    if raw:
        try:
            raw_object("details", object_of(msgspec.Raw(raw)))
        except Exception as problem:
            planner.drop(at, f"Its details are not a JSON object: {problem}", line.id)
            return b""
    return raw


def _flags(planner: _Planner, at: int, line: TurnLine, places: Mapping[int, int]) -> dict[int, Flags]:
    flags = {places[each.item]: each.flags for each in line.flags if each.item in places}
    named = {each.item for each in line.flags}
    if len(named) < len(line.flags):
        planner.drop(at, "Several flags name the same item; the last one is used.", line.id)
    astray = len(named) - len(flags)
    if astray:
        planner.drop(at, f"{astray} flags refer to missing items.", line.id)
    if len(flags) > planner.limits.turn_flags:
        most = planner.limits.turn_flags
        planner.drop(at, f"A turn can have at most {most} flagged items.", line.id)
        flags = dict(sorted(flags.items())[:most])
    return flags


def _failure(planner: _Planner, at: int, line: TurnLine) -> Failure | None:
    """Return why it failed; drop the failure of a completed turn."""
    if line.failure is not None and line.kind == TurnKind.COMPLETED:
        planner.drop(at, "A completed turn cannot have a failure.", line.id)
        return None
    if line.failure is not None and len(line.failure.code) + len(line.failure.message) > LONGEST_FAILURE:
        planner.drop(at, f"The failure has more than {LONGEST_FAILURE} characters.", line.id)
        return None
    return line.failure


def _effects(
    planner: _Planner, at: int, line: TurnLine, output: Sequence[Item | None]
) -> tuple[int, ...] | None:
    """Return the calls that may have acted, by their places in the readable output."""
    if isinstance(line.effects, msgspec.UnsetType):
        return None
    acted = {place for place in line.effects if 0 <= place < len(output)}
    calls = {place for place, item in enumerate(output) if item is not None and item.is_call}
    if line.kind != TurnKind.INTERRUPTED or len(line.effects) != len(acted & calls):
        why = "Effects must be places of calls in the output of an interrupted turn."
        planner.drop(at, why, line.id)
        return None
    read = [place for place, item in enumerate(output) if item is not None]
    return tuple(new for new, place in enumerate(read) if place in acted)


def _assign_parents(planner: _Planner) -> None:
    """Give each turn an existing parent, and leave out turns in a cycle."""
    heads = {planner.id_of(TurnId, each.head) for each in planner.header.branches if each.head}
    before: PlannedTurn | None = None
    is_late = False
    seen: set[TurnId] = set()
    for turn in list(planner.turns.values()):
        planner.pause()
        if turn.parent is not None and turn.parent not in planner.turns:
            parent = before.id if before is not None and before.id not in heads else None
            where = f"It follows {parent} instead." if parent else "It is the first turn instead."
            planner.repair(turn.line, f"Its parent {turn.parent} is missing. {where}", turn.id)
            planner.turns[turn.id] = replace(turn, parent=parent)
        elif turn.parent is not None and turn.parent not in seen:
            is_late = True
        seen.add(turn.id)
        before = turn
    if is_late:
        planner.repair(planner.at, "The turns were out of order, and were sorted.")
    _order(planner)


def _order(planner: _Planner) -> None:
    """Order parents before children."""
    children: dict[TurnId | None, list[PlannedTurn]] = {}
    for turn in planner.turns.values():
        children.setdefault(turn.parent, []).append(turn)
    ordered: dict[TurnId, PlannedTurn] = {}
    waiting = children.get(None, [])[::-1]
    while waiting:
        planner.pause()
        turn = waiting.pop()
        ordered[turn.id] = turn
        waiting += reversed(children.get(turn.id, []))
    for turn in planner.turns.values():
        if turn.id not in ordered:
            planner.drop(turn.line, "The turn is its own ancestor.", turn.id)
    planner.turns = ordered


def _fit(planner: _Planner) -> None:
    """Make each turn fit its parent: give calls results, and determine the instructions in force."""
    open_after: dict[TurnId | None, tuple[Item, ...]] = {None: ()}
    instructed: dict[TurnId | None, int] = {None: 0}
    settled: dict[TurnId | None, int] = {None: 0}
    made: dict[TurnId, PlannedTurn] = {}
    for turn in planner.turns.values():
        planner.pause()
        parent = planner.replacements.get(turn.parent, turn.parent) if turn.parent else None
        fit = fit_turn(open_after[parent], turn.input, turn.output)
        for why in fit.changes:
            planner.repair(turn.line, why, turn.id)
        if not fit.items:
            planner.drop(turn.line, "The turn has no valid item.", turn.id)
            planner.replacements[turn.id] = parent
            continue
        number = made[parent].number + 1 if parent else 1
        now = instructed_after(turn.instructions, instructed[parent], number)
        fresh = replace(
            turn,
            parent=parent,
            number=number,
            instructed=now,
            input=fit.input,
            output=fit.output,
            flags=_move_flags(turn, fit),
            effects=_effects_in(turn, fit),
        )
        settled[turn.id] = number if fresh.is_carried else settled[parent]
        made[turn.id] = replace(fresh, settled=settled[turn.id])
        open_after[turn.id], instructed[turn.id] = calls_left_open(fit.items), now
    planner.turns = made


def _move_flags(turn: PlannedTurn, fit: FittedTurn) -> Mapping[int, Flags]:
    """Return the flags at the new places of their items."""
    if not turn.flags or not fit.changes:
        return turn.flags
    items = (*turn.input, *turn.output)
    places = {id(item): place for place, item in enumerate(fit.items)}
    return {places[id(items[at])]: each for at, each in turn.flags.items() if id(items[at]) in places}


def _effects_in(turn: PlannedTurn, fit: FittedTurn) -> tuple[int, ...] | None:
    """Return the effects at the new places of their calls."""
    if turn.effects is None or not fit.changes:
        return turn.effects
    acted = {id(turn.output[place]) for place in turn.effects}
    return tuple(place for place, item in enumerate(fit.output) if id(item) in acted)


def _branches(planner: _Planner, conversation: Conversation) -> list[tuple[BranchId, TurnId | None, str]]:
    """Return the branches with existing heads: one without ends where its turns do."""
    given = planner.header.branches
    if not given:
        last = next(reversed(planner.turns), None)
        return [(derive_id(BranchId, conversation.created_at, planner.chat, ""), last, "")]
    heads = [_head_of(planner, each.head) for each in given]
    reached = _turns_before(planner, [head for head, is_there in heads if is_there])
    loose = iter([leaf for leaf in _leaves(planner) if leaf not in reached])
    found: dict[BranchId, tuple[BranchId, TurnId | None, str]] = {}
    for each, (head, is_there) in zip(given, heads, strict=True):
        id = planner.id_of(BranchId, each.id)
        if not is_there:
            head = next(loose, None)
            if head is None and (len(given) > 1 and planner.turns):
                planner.drop(planner.at, f"The branch {each.id} has no turns.")
                continue
            where = f"It ends with {head}." if head else "It is empty."
            why = f"The head {each.head} of the branch {each.id} is missing. {where}"
            planner.repair(planner.at, why)
        if id in found:
            planner.drop(planner.at, f"An earlier branch has the id {each.id}.")
            continue
        found[id] = (id, head, each.id)
    return list(found.values()) or [(planner.id_of(BranchId, given[0].id), None, given[0].id)]


def _head_of(planner: _Planner, text: str | None) -> tuple[TurnId | None, bool]:
    if text is None:
        return None, True
    head = planner.id_of(TurnId, text)
    seen = head in planner.replacements
    while head in planner.replacements:
        before = planner.replacements[head]
        if before is None:
            return None, True
        head = before
    return head, seen or head in planner.turns


def _turns_before(planner: _Planner, heads: Iterable[TurnId | None]) -> set[TurnId]:
    reached: set[TurnId] = set()
    for head in heads:
        while head is not None and head not in reached:
            reached.add(head)
            head = planner.turns[head].parent
    return reached


def _leaves(planner: _Planner) -> list[TurnId]:
    parents = {turn.parent for turn in planner.turns.values()}
    return [id for id in planner.turns if id not in parents]


def _make_plan(
    planner: _Planner, conversation: Conversation, branches: list[tuple[BranchId, TurnId | None, str]]
) -> Plan:
    """Return the plan, without turns that no branch leads to."""
    turns: dict[TurnId, PlannedTurn] = {}
    whole = Plan(planner.at, conversation, (), planner.turns)
    for _, head, _ in branches:
        turns.update({turn.id: turn for turn in whole.line_of(head, turns)})
    for turn in planner.turns.values():
        if turn.id not in turns:
            planner.drop(turn.line, "No branch contains this turn.", turn.id)
    for turn in turns.values():
        planner.pause()
        turn.encode()
    current = planner.header.current
    shown = next((id for id, _, text in branches if text == current), None)
    if shown is None:
        shown = branches[-1][0]
        if current is not None:
            why = f"The current branch {current} is missing; replaced by {shown}."
            planner.repair(planner.at, why)
    return Plan(
        line=planner.at,
        conversation=msgspec.structs.replace(conversation, branch=shown),
        branches=tuple((id, head) for id, head, _ in branches),
        turns=turns,
        forgotten=_forgotten_effects(planner),
        reports=tuple(planner.notes.all()),
    )


def _forgotten_effects(planner: _Planner) -> tuple[bytes, ...]:
    given = planner.header.forgotten
    if len(given) <= planner.limits.import_turns and all(map(_is_effect, given)):
        return tuple(dict.fromkeys(map(bytes.fromhex, given)))
    why = "`forgotten` is invalid or too long. Forgotten effects may appear again."
    planner.drop(planner.at, why)
    return ()
