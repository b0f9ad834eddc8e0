"""Import: the transaction that creates a planned chat atomically.

Its rows are drafted before the transaction, from the plan and the ids in the store, so that other requests
hardly wait; if the ids have changed since, they are drafted again inside. Existing rows never change. A free
id is kept, if the importer may know that it is free: for all others, foreign ids and unused ones look the
same. A turn that exists already, equal and of the same owner and scope, with all turns before it, is shared,
as in a fork.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.attempt.end import failure_of
from turnledger.engine.conversations.list_entry import PREVIEW_TURNS
from turnledger.engine.feed import record_change
from turnledger.engine.history import line
from turnledger.engine.history.line import STRETCHES_KEPT
from turnledger.engine.limits import UNLIMITED, Quota, check_quota
from turnledger.engine.ports import Tables
from turnledger.engine.transfer.export import ExportPageRequest, Outline, read_page
from turnledger.engine.transfer.import_plan import NO_BRANCH, Pause, Plan, PlannedTurn
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import (
    EVERYWHERE,
    Branch,
    Conversation,
    ConversationState,
    NewBranch,
    Origin,
    Stretch,
    Within,
)
from turnledger.model.flags import Flags
from turnledger.model.ids import AnyId, BranchId, ConversationId, TurnId, derive_id, time_of
from turnledger.model.item import calls_left_open
from turnledger.model.transfer import (
    BranchLine,
    ImportOutcome,
    ImportReport,
    chat_line,
    encode_line,
    turn_line,
)
from turnledger.model.turn import Turn, preview_of


@dataclass
class ExistingRows:
    """The rows of a plan that a store has already."""

    shared: dict[TurnId, Turn] = field(default_factory=dict)
    """Equal turns of the same owner and scope, with all turns before them."""
    lines: dict[TurnId, tuple[Stretch, ...]] = field(default_factory=dict)
    """By shared turn that a branch is made from: the line up to it."""
    turns: set[TurnId] = field(default_factory=set)
    """Turn ids that are taken, by any owner."""
    branches: set[BranchId] = field(default_factory=set)


@dataclass(frozen=True)
class ImportDraft:
    conversation: Conversation
    branches: tuple[NewBranch, ...]
    flags: Mapping[TurnId, Mapping[int, Flags]]
    bases: tuple[Turn, ...]
    """Turns of other chats that branches are made from: the draft is valid while they exist."""
    notes: tuple[ImportReport, ...]


def bases_of(plan: Plan, shared: Mapping[TurnId, Turn]) -> set[TurnId]:
    bases: set[TurnId] = set()
    placed = set(shared)
    for _, head in plan.branches:
        own = plan.line_of(head, placed)
        placed.update(turn.id for turn in own)
        before = own[0].parent if own else head
        if before is not None and before in shared:
            bases.add(before)
    return bases


def derive_own_id(kind: type[AnyId], chat: ConversationId, id: AnyId) -> AnyId:
    """Derive the id of a turn or branch that cannot keep its own."""
    return derive_id(kind, time_of(id), str(chat), str(id))


def draft_of(
    plan: Plan,
    chat: ConversationId,
    existing: ExistingRows,
    *,
    keeps_ids: bool,
    pause: Pause = lambda: None,
) -> ImportDraft:
    return _Drafter(plan, replace(plan.conversation, id=chat), existing, keeps_ids, pause).draft()


@dataclass
class _Drafter:
    plan: Plan
    conversation: Conversation
    existing: ExistingRows
    keeps_ids: bool
    pause: Pause
    notes: list[ImportReport] = field(default_factory=list)
    ids: dict[TurnId, TurnId] = field(default_factory=dict)
    """New ids of turns that cannot keep theirs."""
    renamed: dict[BranchId, BranchId] = field(default_factory=dict)
    placed: dict[TurnId, Turn] = field(default_factory=dict)
    """The final turns, by their ids in the plan."""
    starts: dict[BranchId, int] = field(default_factory=dict)
    lines: dict[BranchId, tuple[Stretch, ...]] = field(default_factory=dict)
    """By final branch id: the stretches before its own turns."""

    def draft(self) -> ImportDraft:
        plan, current = self.plan, self.conversation.branch
        self._name()
        self.placed.update(self.existing.shared)
        branches = tuple(self._branch(place, id, head) for place, (id, head) in enumerate(plan.branches))
        flags = {
            self.ids.get(turn.id, turn.id): turn.flags
            for turn in plan.turns.values()
            if turn.flags and turn.id not in self.existing.shared
        }
        return ImportDraft(
            replace(self.conversation, branch=self.renamed.get(current, current)),
            branches,
            flags,
            tuple(self.existing.shared[id] for id in self.existing.lines),
            tuple(self.notes),
        )

    def _note(self, at: int, why: str, turn: TurnId | None = None) -> None:
        named = None if turn is None else str(turn)
        chat = str(self.conversation.id)
        self.notes.append(ImportReport(line=at, did=ImportOutcome.RENAMED, chat=chat, turn=named, why=why))

    def _name(self) -> None:
        """Choose ids for rows whose own are taken. If all are replaced, report it once, for the chat."""
        plan, chat = self.plan, self.conversation.id
        if chat != plan.conversation.id:
            why = f"The id {plan.conversation.id} was replaced by {chat}."
            if self.keeps_ids:
                why = f"The id {plan.conversation.id} is taken; replaced by {chat}."
            self._note(plan.line, why)
        for turn in plan.turns.values():
            self.pause()
            if turn.id in self.existing.shared:
                continue
            if not self.keeps_ids or turn.id in self.existing.turns:
                self.ids[turn.id] = derive_own_id(TurnId, chat, turn.id)
                if self.keeps_ids:
                    self._note(turn.line, f"The id is taken; replaced by {self.ids[turn.id]}.", turn.id)
        for id, _ in plan.branches:
            if not self.keeps_ids or id in self.existing.branches:
                self.renamed[id] = derive_own_id(BranchId, chat, id)
                if self.keeps_ids:
                    why = f"The branch id {id} is taken; replaced by {self.renamed[id]}."
                    self._note(plan.line, why)

    def _branch(self, place: int, id: BranchId, head: TurnId | None) -> NewBranch:
        self.pause()
        own = self.plan.line_of(head, self.placed)
        before = own[0].parent if own else head
        base = self.placed[before] if before is not None else None
        branch = self._bare_branch(id, head, base)
        turns: list[tuple[Turn, bytes]] = []
        for turn in own:
            self.pause()
            made = turn.turn(branch.id, self.ids)
            turns.append((made, turn.log))
            self.placed[turn.id] = made
        origin = None
        if place or base is not None:
            line = self._line(before, base)
            self.lines[branch.id] = line
            origin = Origin(
                branch=branch.id,
                conversation=self.conversation.id,
                base=None if base is None else base.id,
                line=line,
            )
        self.starts[branch.id] = branch.start
        size = sum(len(turn.body) + len(log) for turn, log in turns)
        branch = replace(branch, bytes=size, preview=self._preview(head))
        return NewBranch(branch, origin, tuple(turns))

    def _bare_branch(self, id: BranchId, head: TurnId | None, base: Turn | None) -> Branch:
        made = Branch(
            id=self.renamed.get(id, id),
            conversation=self.conversation.id,
            start=base.number if base is not None else 0,
        )
        if head is None:
            return made
        last = self.plan.turns[head]
        return replace(
            made,
            head=self.ids.get(last.id, last.id),
            length=last.number,
            settled=last.settled,
            pending=calls_left_open((*last.input, *last.output)),
            instructed=last.instructed,
        )

    def _line(self, before: TurnId | None, base: Turn | None) -> tuple[Stretch, ...]:
        """Return the stretches up to the turn that a branch is made from, newest first."""
        if before is None or base is None:
            return ()
        if before in self.existing.lines:
            return self.existing.lines[before]
        shared = Stretch(base.branch, self.starts[base.branch], base.number)
        return (shared, *self.lines.get(base.branch, ()))[:STRETCHES_KEPT]

    def _preview(self, head: TurnId | None) -> str:
        """Return the beginning of the last visible text, of the head or a turn before it."""
        for _ in range(PREVIEW_TURNS):
            if head is None:
                break
            turn: PlannedTurn = self.plan.turns[head]
            hidden = [place for place, each in turn.flags.items() if not each.to_user]
            if preview := preview_of(self.placed[head], hidden):
                return preview
            head = turn.parent
        return ""


TRIES = 8
"""Ids tried for a chat whose own is taken, or names one that is gone."""


@dataclass(frozen=True)
class ImportRequest:
    plan: Plan
    now: int
    due: int
    within: Within = EVERYWHERE
    quota: Quota = UNLIMITED
    draft: ImportDraft | None = None
    """The rows to insert, made before the transaction."""
    keeps_ids: bool = True
    """Whether free ids of the file are kept that the owner does not have. If not, they are always replaced: a
    replacement only for taken ids would reveal that another owner has them."""


class ImportResult(Struct, frozen=True):
    conversation: Conversation
    reports: tuple[ImportReport, ...]


async def import_chat(tables: Tables, request: ImportRequest) -> ImportResult | Conversation:
    """Create the chat of a plan; if it exists, change nothing and return it. Raises StorageFull."""
    found = await find_place(tables, request)
    if not isinstance(found, ConversationId):
        return found
    draft = request.draft
    if draft is None or draft.conversation.id != found or not await _still_holds(tables, request, draft):
        # Rare: another request has taken or removed something since. Slow, but certain.
        existing = ExistingRows()
        await look_up(tables, LookUpRequest(request.plan, existing, 0, len(request.plan.turns) + 1))
        draft = draft_of(request.plan, found, existing, keeps_ids=request.keeps_ids)
    return await _write(tables, request, draft)


async def find_place(tables: Tables, request: ImportRequest) -> ConversationId | Conversation | ImportResult:
    """Return the id for a chat, the existing one to compare with, or the final result."""
    plan, planned = request.plan, request.plan.conversation
    for tried in range(TRIES):
        id = _name(planned, tried)
        found = await tables.conversation(id)
        if found is not None and not request.within.sees(found):
            continue  # looks to the caller like another owner's conversation
        if found is None and ((not tried and not request.keeps_ids) or await tables.is_id_taken(id)):
            continue
        if found is None:
            return id
        if found.state is ConversationState.LIVE:
            return found
        if found.state is ConversationState.DELETED:
            why = "The chat was deleted here. Restore it, or purge it and import again."
            return _end(plan, found, ImportOutcome.CONFLICT, why)
    why = "No free id was found. Change the id of the chat, and import again."
    return _end(plan, planned, ImportOutcome.REFUSED, why)


def _name(planned: Conversation, tried: int) -> ConversationId:
    if not tried:
        return planned.id
    return derive_id(ConversationId, planned.created_at, planned.owner, str(planned.id), str(tried))


def _end(plan: Plan, found: Conversation, did: ImportOutcome, why: str) -> ImportResult:
    turns = len(plan.turns) if did is ImportOutcome.UNCHANGED else None
    report = ImportReport(line=plan.line, did=did, chat=str(found.id), turns=turns, why=why)
    return ImportResult(found, (report,))


@dataclass
class Comparison:
    """A plan and the existing chat of its id. Equal ones may differ in a conversation_key and in ids that the
    existing one could not keep."""

    plan: Plan
    outline: Outline
    count: int = 0
    """Turns that are compared already, and equal."""
    ids: dict[TurnId, TurnId] = field(default_factory=dict)
    """Turns of the plan whose ids were replaced."""

    def __post_init__(self) -> None:
        self._turns = iter(self.plan.turns.values())

    def equals_next(self, line: bytes) -> bool:
        """Return whether the next turn of the plan has this line."""
        chat, turn = self.outline.conversation.id, next(self._turns, None)
        if turn is None:
            return False
        derived = derive_own_id(TurnId, chat, turn.id)
        if b'"id":"%b"' % derived.encode() in line:
            self.ids[turn.id] = derived
        self.count += 1
        return _line_of(turn, str(chat), self.ids) == line

    def header(self) -> bytes:
        """Return the header of the plan, with the ids of the existing chat."""
        plan, found = self.plan, self.outline.conversation
        branches = {
            id: made
            for (id, _), made in zip(plan.branches, self.outline.branches, strict=False)
            if made == derive_own_id(BranchId, found.id, id)
        }
        heads = [
            BranchLine(
                id=str(branches.get(id, id)), head=None if head is None else str(self.ids.get(head, head))
            )
            for id, head in plan.branches
        ]
        current = plan.conversation.branch
        expected = replace(plan.conversation, id=found.id, branch=branches.get(current, current))
        if found.conversation_key is None:
            expected = replace(expected, conversation_key=None)
        return encode_line(chat_line(expected, heads, len(plan.turns), plan.forgotten))


async def compare_next(tables: Tables, comparison: Comparison) -> ImportResult | None:
    """Compare the next turns, or the headers if none are left; return None while the chats may still be
    equal. Raises as `read_page` does."""
    plan, there = comparison.plan, comparison.outline
    lines = await read_page(tables, ExportPageRequest(there, comparison.count))
    is_equal = all(map(comparison.equals_next, lines))
    if is_equal and lines:
        return None
    if is_equal and comparison.header() == there.header:
        return _end(plan, there.conversation, ImportOutcome.UNCHANGED, "The chat already exists.")
    why = "A different chat with this id exists. It was left unchanged."
    return _end(plan, there.conversation, ImportOutcome.CONFLICT, why)


def _line_of(turn: PlannedTurn, chat: str, ids: Mapping[TurnId, TurnId]) -> bytes:
    return encode_line(turn_line(chat, turn.turn(NO_BRANCH, ids), turn.flags, turn.failure))


async def _write(tables: Tables, request: ImportRequest, draft: ImportDraft) -> ImportResult:
    plan, conversation = request.plan, draft.conversation
    if conversation.is_expired(request.due):
        why = "The chat has expired. Remove expires_after to import it."
        return _end(plan, conversation, ImportOutcome.REFUSED, why)
    await check_quota(tables, request.quota, adds_chat=True)
    conversation, notes = await _with_its_key(tables, plan, conversation)
    await tables.add_conversation(conversation)
    await tables.add_branches(draft.branches)
    if plan.forgotten:
        await tables.save_forgotten(conversation.id, plan.forgotten)
    for turn, flags in draft.flags.items():
        await tables.save_flags(turn, flags)
    await record_change(tables, ChangeKind.CHAT_CREATED, conversation, request.now)
    report = ImportReport(
        line=plan.line, did=ImportOutcome.IMPORTED, chat=str(conversation.id), turns=len(plan.turns)
    )
    return ImportResult(conversation, (*draft.notes, *notes, report))


async def _with_its_key(
    tables: Tables, plan: Plan, conversation: Conversation
) -> tuple[Conversation, Sequence[ImportReport]]:
    """Return the conversation with its conversation_key, unless the key names another one."""
    key = conversation.conversation_key
    if key is None or await tables.conversation_by_key(conversation.scope, key) is None:
        return conversation, ()
    why = f"The conversation_key {key!r} names another chat; it was dropped."
    note = ImportReport(line=plan.line, did=ImportOutcome.DROPPED, chat=str(conversation.id), why=why)
    return replace(conversation, conversation_key=None), (note,)


async def _still_holds(tables: Tables, request: ImportRequest, draft: ImportDraft) -> bool:
    """Return whether all ids of the draft are still free, and the turns it refers to still exist."""
    if request.keeps_ids:
        turns = [turn.id for made in draft.branches for turn, _ in made.turns]
        if await tables.taken_turns(turns) or await tables.taken_branches(
            [made.branch.id for made in draft.branches]
        ):
            return False
    for base in draft.bases:
        found = await tables.turn(base.id)
        if found is None or (found.branch, found.number) != (base.branch, base.number):
            return False
    return True


@dataclass(frozen=True)
class LookUpRequest:
    plan: Plan
    existing: ExistingRows
    """Extended by what is found."""
    after: int
    limit: int


async def look_up(tables: Tables, request: LookUpRequest) -> bool:
    """Find which turns of a plan exist already, and which ids are taken. Return whether that is all."""
    plan, existing = request.plan, request.existing
    turns = tuple(plan.turns.values())[request.after : request.after + request.limit]
    existing.turns |= await tables.taken_turns([turn.id for turn in turns])
    await _find_shared(tables, plan, existing, turns)
    if request.after + request.limit < len(plan.turns):
        return False
    existing.branches |= await tables.taken_branches([id for id, _ in plan.branches])
    for id in bases_of(plan, existing.shared):
        base = existing.shared[id]
        lane = await tables.branch(base.branch)
        existing.lines[id] = await line.line_through(tables, lane, base) if lane is not None else ()
    return True


async def _find_shared(
    tables: Tables, plan: Plan, existing: ExistingRows, turns: Sequence[PlannedTurn]
) -> None:
    """Find equal turns that exist already, with all turns before them."""
    homes: dict[BranchId, str | None] = {}
    for turn in turns:
        if turn.id not in existing.turns or (turn.parent is not None and turn.parent not in existing.shared):
            continue
        found = await tables.turn(turn.id)
        if found is None:
            continue
        if found.branch not in homes:
            homes[found.branch] = await _scope_of(tables, found.branch)
        flags = (await tables.flags((found.id,))).get(found.id, {})
        stored_line = encode_line(turn_line("", found, flags, await failure_of(tables, found)))
        if homes[found.branch] == plan.conversation.scope and stored_line == _line_of(turn, "", {}):
            existing.shared[turn.id] = found


async def _scope_of(tables: Tables, branch: BranchId) -> str | None:
    home = await tables.branch(branch)
    found = await tables.conversation(home.conversation) if home is not None else None
    return None if found is None else found.scope
