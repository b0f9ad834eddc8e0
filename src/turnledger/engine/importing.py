"""Importing: the one transaction that makes a planned chat, whole or not at all.

What is there is never changed. Ids stay where they are free, for an importer who may know whether they are:
to all others, an id of somebody else and one that never was are the same. A turn that is there already, the
same and of the same owner and scope, with all before it, is shared with the chat that has it, as a fork
shares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine import line
from turnledger.engine.changes import tell
from turnledger.engine.ending import failure_of
from turnledger.engine.entry import preview_at
from turnledger.engine.exporting import all_lines, branches_of
from turnledger.engine.import_plan import PLACED_NOWHERE, Plan, Planned
from turnledger.engine.ports import Tables
from turnledger.engine.usage import BOUNDLESS, Room, check_room, store_turn
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Branch, Conversation, ConversationState, Origin
from turnledger.model.derived_id import derived, time_of
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.pairing import left_open
from turnledger.model.transfer import BranchLine, chat_line, encoded, turn_line
from turnledger.model.transfer_report import Did, ImportReport
from turnledger.model.turn import Turn
from turnledger.model.within import EVERYWHERE, Within

TRIES = 8
"""Ids that are tried for a chat whose own is taken, or names one that is gone."""


@dataclass(frozen=True)
class ImportRequest:
    """Ask for a planned chat to be there."""

    plan: Plan
    now: int
    due: int
    """What is over by then is over; see trusted_clock."""
    within: Within = EVERYWHERE
    room: Room = BOUNDLESS
    """What the owner may store."""
    keeps_ids: bool = True
    """Whether ids of the file that the owner does not have are taken over where they are free. If not, they
    are replaced in any case: that one is taken would tell that somebody else has it."""


class Imported(Struct, frozen=True):
    """What became of the chat."""

    conversation: Conversation
    reports: tuple[ImportReport, ...]


@dataclass
class _Import:
    """One chat on its way into the store."""

    tables: Tables
    plan: Plan
    conversation: Conversation
    keeps_ids: bool
    notes: list[ImportReport] = field(default_factory=list)
    ids: dict[TurnId, TurnId] = field(default_factory=dict)
    """What turns are called here that cannot keep their ids."""
    branches: dict[BranchId, BranchId] = field(default_factory=dict)
    shared: dict[TurnId, Turn] = field(default_factory=dict)
    """Turns of the plan that are there already."""

    def note(self, at: int, did: Did, why: str, turn: TurnId | None = None) -> None:
        named = None if turn is None else str(turn)
        self.notes.append(ImportReport(line=at, did=did, chat=str(self.conversation.id), turn=named, why=why))

    def note_taken(self, at: int, why: str, turn: TurnId | None = None) -> None:
        """Note an id that is taken. Where all are replaced, that is said once, of the chat."""
        if self.keeps_ids:
            self.note(at, Did.RENAMED, why, turn)


async def already_there(tables: Tables, request: ImportRequest) -> Imported | None:
    """What is to be said of a chat that is there, by reading alone; None for one that is to be made."""
    found = await _place(tables, request)
    return found if isinstance(found, Imported) else None


async def import_chat(tables: Tables, request: ImportRequest) -> Imported:
    """Make a chat of a plan. Repeating it changes nothing, and says so. Raises StorageFull if the owner
    stores as much as may be."""
    found = await _place(tables, request)
    if isinstance(found, Imported):
        return found
    return await _insert(tables, request, replace(request.plan.conversation, id=found))


async def _place(tables: Tables, request: ImportRequest) -> ConversationId | Imported:
    """The id that a chat is to have, or what is to be said of the one that is there."""
    plan, wanted = request.plan, request.plan.conversation
    for tried in range(TRIES):
        id = _name(wanted, tried)
        found = await tables.conversation(wanted.owner, id)
        if found is not None and not request.within.sees(found):
            continue  # it does not exist for who asks, and cannot be told from somebody else's
        if found is None and ((not tried and not request.keeps_ids) or await tables.is_taken(id)):
            continue
        if found is None:
            return id
        if found.state is ConversationState.LIVE:
            return await _compare(tables, plan, found)
        if found.state is ConversationState.DELETED:
            why = "It was deleted here, and can be restored: do so, or delete it for good, and import again."
            return _end(plan, found, Did.CONFLICT, why)
    return _end(
        plan, wanted, Did.REFUSED, "No id could be found for it. Give it another id, and import again."
    )


def _name(wanted: Conversation, tried: int) -> ConversationId:
    if not tried:
        return wanted.id
    return derived(ConversationId, wanted.created_at, wanted.owner, str(wanted.id), str(tried))


def _end(plan: Plan, found: Conversation, did: Did, why: str) -> Imported:
    turns = len(plan.turns) if did is Did.UNCHANGED else None
    report = ImportReport(line=plan.line, did=did, chat=str(found.id), turns=turns, why=why)
    return Imported(found, (report,))


async def _compare(tables: Tables, plan: Plan, found: Conversation) -> Imported:
    """Say whether what is there is what the plan would make, but for a conversation_key that it did not get
    and for ids that it could not keep."""
    there = await all_lines(tables, found)
    wanted = replace(plan.conversation, id=found.id)
    if found.conversation_key is None:
        wanted = replace(wanted, conversation_key=None)
    made = await branches_of(tables, found.id)
    ids = _turns_called(plan, found.id, there)
    branches = {
        id: each.id
        for (id, _), each in zip(plan.branches, made, strict=False)
        if each.id == _branch_called(found.id, id)
    }
    if lines_of(plan, wanted, ids, branches) == there:
        return _end(plan, found, Did.UNCHANGED, "It is here already.")
    why = "Another chat of this id is here, or this one was changed since. It is left as it is."
    return _end(plan, found, Did.CONFLICT, why)


def _turns_called(plan: Plan, chat: ConversationId, there: Sequence[bytes]) -> dict[TurnId, TurnId]:
    """Which turns of the plan have another id in these lines: one that is derived from theirs."""
    found: dict[TurnId, TurnId] = {}
    if len(there) == len(plan.turns) + 1:
        for id, raw in zip(plan.turns, there[1:], strict=True):
            called = _turn_called(chat, id)
            if b'"id":"%b"' % called.encode() in raw:
                found[id] = called
    return found


def lines_of(
    plan: Plan,
    conversation: Conversation,
    ids: Mapping[TurnId, TurnId],
    branches: Mapping[BranchId, BranchId],
) -> list[bytes]:
    """The lines that a planned chat would be exported as, if turns and branches had these ids."""
    heads = [
        BranchLine(id=str(branches.get(id, id)), head=None if head is None else str(ids.get(head, head)))
        for id, head in plan.branches
    ]
    shown = replace(conversation, branch=branches.get(conversation.branch, conversation.branch))
    lines = [encoded(chat_line(shown, heads, len(plan.turns)))]
    for turn in plan.turns.values():
        lines.append(_line_of(turn, str(conversation.id), ids))
    return lines


def _line_of(turn: Planned, chat: str, ids: Mapping[TurnId, TurnId]) -> bytes:
    return encoded(turn_line(chat, turn.turn(PLACED_NOWHERE, ids), turn.flags, turn.failure))


def _turn_called(chat: ConversationId, id: TurnId) -> TurnId:
    return derived(TurnId, time_of(id), str(chat), str(id))


def _branch_called(chat: ConversationId, id: BranchId) -> BranchId:
    return derived(BranchId, time_of(id), str(chat), str(id))


async def _insert(tables: Tables, request: ImportRequest, conversation: Conversation) -> Imported:
    plan = request.plan
    if conversation.is_expired(request.due):
        why = "Its time without use is over: it has expired. Take expires_after out to import it."
        return _end(plan, conversation, Did.REFUSED, why)
    await check_room(tables, conversation.owner, request.room, adds_chat=True)
    work = _Import(tables, plan, conversation, request.keeps_ids)
    if conversation.id != plan.conversation.id:
        why = f"It is {conversation.id} here, not {plan.conversation.id}."
        if request.keeps_ids:
            why = f"Its id {plan.conversation.id} is taken; it is {conversation.id} here."
        work.note(plan.line, Did.RENAMED, why)
    await _find_shared(work)
    await _find_ids(work)
    await _take_key(work)
    work.conversation = replace(
        work.conversation, branch=work.branches.get(conversation.branch, conversation.branch)
    )
    await tables.add_conversation(work.conversation)
    await _add_branches(work)
    await tell(tables, ChangeKind.CHAT_CREATED, work.conversation, request.now)
    report = ImportReport(line=plan.line, did=Did.IMPORTED, chat=str(conversation.id), turns=len(plan.turns))
    return Imported(work.conversation, (*work.notes, report))


async def _find_shared(work: _Import) -> None:
    """Find the turns that are there already, with all before them, and the same."""
    tables, owner = work.tables, work.conversation.owner
    homes: dict[BranchId, str | None] = {}
    for turn in work.plan.turns.values():
        if turn.parent is not None and turn.parent not in work.shared:
            continue
        found = await tables.turn(owner, turn.id)
        if found is None:
            continue
        if found.branch not in homes:
            homes[found.branch] = await _scope_of(tables, owner, found.branch)
        flags = (await tables.flags(owner, (found.id,))).get(found.id, {})
        told = encoded(turn_line("", found, flags, await failure_of(tables, found)))
        if homes[found.branch] == work.conversation.scope and told == _line_of(turn, "", {}):
            work.shared[turn.id] = found


async def _scope_of(tables: Tables, owner: str, branch: BranchId) -> str | None:
    home = await tables.branch(branch)
    found = await tables.conversation(owner, home.conversation) if home is not None else None
    return None if found is None else found.scope


async def _find_ids(work: _Import) -> None:
    """Find ids for turns and branches whose own are taken."""
    tables, chat = work.tables, work.conversation.id
    for turn in work.plan.turns.values():
        if turn.id in work.shared:
            continue
        if not work.keeps_ids or await tables.is_taken(turn.id):
            work.ids[turn.id] = _turn_called(chat, turn.id)
            why = f"Its id is taken; it is {work.ids[turn.id]} here."
            work.note_taken(turn.line, why, turn.id)
    for id, _ in work.plan.branches:
        if not work.keeps_ids or await tables.branch(id) is not None:
            work.branches[id] = _branch_called(chat, id)
            why = f"The id of its branch {id} is taken; it is {work.branches[id]} here."
            work.note_taken(work.plan.line, why)


async def _take_key(work: _Import) -> None:
    """Give the conversation its conversation_key, if nobody has it."""
    conversation = work.conversation
    key = conversation.conversation_key
    if key is None:
        return
    if await work.tables.conversation_by_key(conversation.owner, conversation.scope, key) is not None:
        work.conversation = replace(conversation, conversation_key=None)
        why = f"Its conversation_key {key!r} names another chat. It has none here."
        work.note(work.plan.line, Did.DROPPED, why)


async def _add_branches(work: _Import) -> None:
    placed = dict(work.shared)
    for place, (id, head) in enumerate(work.plan.branches):
        own = work.plan.line_of(head, placed)
        last = work.plan.turns[head] if head is not None else None
        before = own[0].parent if own else head
        base = placed[before] if before is not None else None
        branch = _branch(work, id, last, base)
        await work.tables.add_branch(branch)
        if place or base is not None:
            await _add_origin(work, branch, base)
        for turn in own:
            made = turn.turn(branch.id, work.ids)
            stored = await store_turn(work.tables, work.conversation.owner, branch, made, turn.log)
            branch = replace(branch, bytes=stored)
            placed[turn.id] = made
            if turn.flags:
                await work.tables.save_flags(work.conversation.owner, made.id, turn.flags)
        if head is not None:
            preview = await preview_at(work.tables, work.conversation.owner, placed[head])
            await work.tables.save_branch(replace(branch, preview=preview))


def _branch(work: _Import, id: BranchId, last: Planned | None, base: Turn | None) -> Branch:
    made = Branch(
        id=work.branches.get(id, id),
        conversation=work.conversation.id,
        start=base.number if base is not None else 0,
    )
    if last is None:
        return made
    return replace(
        made,
        head=work.ids.get(last.id, last.id),
        length=last.number,
        settled=last.settled,
        pending=left_open((*last.input, *last.output)),
        instructed=last.instructed,
    )


async def _add_origin(work: _Import, branch: Branch, base: Turn | None) -> None:
    lane = await work.tables.branch(base.branch) if base is not None else None
    shared = await line.up_to(work.tables, lane, base) if lane is not None and base is not None else ()
    origin = Origin(
        branch=branch.id,
        conversation=work.conversation.id,
        base=None if base is None else base.id,
        line=shared,
    )
    await work.tables.add_origin(origin)
