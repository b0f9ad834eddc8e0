"""Importing: the one transaction that makes a planned chat, whole or not at all. What it inserts is drafted
before, from what reads found; if that has changed since, it is drafted again inside.

What is there is never changed. Ids stay where they are free, for an importer who may know whether they are:
to all others, an id of somebody else and one that never was are the same. A turn that is there already, the
same and of the same owner and scope, with all before it, is shared with the chat that has it, as a fork
shares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.attempt.end import failure_of
from turnledger.engine.feed.changes import tell
from turnledger.engine.history import line
from turnledger.engine.ports import Tables
from turnledger.engine.transfer.export import Outline
from turnledger.engine.transfer.import_draft import (
    ImportDraft,
    Known,
    bases_of,
    branch_called,
    draft_of,
    turn_called,
)
from turnledger.engine.transfer.import_plan import PLACED_NOWHERE, Plan, Planned
from turnledger.engine.usage import BOUNDLESS, Room, check_room
from turnledger.model.access.visibility import EVERYWHERE, Within
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId, TurnId, derived
from turnledger.model.transfer import BranchLine, Did, ImportReport, chat_line, encoded, turn_line

TRIES = 8
"""Ids that are tried for a chat whose own is taken, or names one that is gone."""


@dataclass(frozen=True)
class ImportRequest:
    """Ask for a planned chat to be there."""

    plan: Plan
    now: int
    due: int
    """What is over by then is over; see clock."""
    within: Within = EVERYWHERE
    room: Room = BOUNDLESS
    """What the owner may store."""
    draft: ImportDraft | None = None
    """What is to be inserted, made before the transaction."""
    keeps_ids: bool = True
    """Whether ids of the file that the owner does not have are taken over where they are free. If not, they
    are replaced in any case: that one is taken would tell that somebody else has it."""


class Imported(Struct, frozen=True):
    """What became of the chat."""

    conversation: Conversation
    reports: tuple[ImportReport, ...]


async def import_chat(tables: Tables, request: ImportRequest) -> Imported | Conversation:
    """Make a chat of a plan. Repeating it changes nothing: it returns the conversation that is there. Raises
    StorageFull if the owner stores as much as may be."""
    found = await place_of(tables, request)
    if not isinstance(found, ConversationId):
        return found
    draft = request.draft
    if draft is None or draft.conversation.id != found or not await _still_holds(tables, request, draft):
        # Rare: another request has taken or removed something since. What follows is slow, but certain.
        known = Known()
        await look_up(tables, LookUpRequest(request.plan, known, 0, len(request.plan.turns) + 1))
        draft = draft_of(request.plan, found, known, keeps_ids=request.keeps_ids)
    return await _write(tables, request, draft)


async def place_of(tables: Tables, request: ImportRequest) -> ConversationId | Conversation | Imported:
    """The id that a chat is to have, or the one that is there, which is to be compared, or what is to be said
    of it."""
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
            return found
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


def compared(plan: Plan, outline: Outline, there: Sequence[bytes]) -> Imported:
    """Say whether what is there is what the plan would make, but for a conversation_key that it did not get
    and for ids that it could not keep. `there` are its lines."""
    found = outline.conversation
    wanted = replace(plan.conversation, id=found.id)
    if found.conversation_key is None:
        wanted = replace(wanted, conversation_key=None)
    ids = _turns_called(plan, found.id, there)
    branches = {
        id: made
        for (id, _), made in zip(plan.branches, outline.branches, strict=False)
        if made == branch_called(found.id, id)
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
            called = turn_called(chat, id)
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
    lines = [encoded(chat_line(shown, heads, len(plan.turns), plan.forgotten))]
    for turn in plan.turns.values():
        lines.append(_line_of(turn, str(conversation.id), ids))
    return lines


def _line_of(turn: Planned, chat: str, ids: Mapping[TurnId, TurnId]) -> bytes:
    return encoded(turn_line(chat, turn.turn(PLACED_NOWHERE, ids), turn.flags, turn.failure))


async def _write(tables: Tables, request: ImportRequest, draft: ImportDraft) -> Imported:
    plan, conversation = request.plan, draft.conversation
    if conversation.is_expired(request.due):
        why = "Its time without use is over: it has expired. Take expires_after out to import it."
        return _end(plan, conversation, Did.REFUSED, why)
    await check_room(tables, conversation.owner, request.room, adds_chat=True)
    conversation, notes = await _with_its_key(tables, plan, conversation)
    await tables.add_conversation(conversation)
    await tables.add_branches(draft.branches)
    if plan.forgotten:
        await tables.save_forgotten(conversation.id, plan.forgotten)
    for turn, flags in draft.flags.items():
        await tables.save_flags(conversation.owner, turn, flags)
    await tell(tables, ChangeKind.CHAT_CREATED, conversation, request.now)
    report = ImportReport(line=plan.line, did=Did.IMPORTED, chat=str(conversation.id), turns=len(plan.turns))
    return Imported(conversation, (*draft.notes, *notes, report))


async def _with_its_key(
    tables: Tables, plan: Plan, conversation: Conversation
) -> tuple[Conversation, Sequence[ImportReport]]:
    """The conversation with its conversation_key, unless the key names another one."""
    key = conversation.conversation_key
    if key is None or await tables.conversation_by_key(conversation.owner, conversation.scope, key) is None:
        return conversation, ()
    why = f"Its conversation_key {key!r} names another chat. It has none here."
    note = ImportReport(line=plan.line, did=Did.DROPPED, chat=str(conversation.id), why=why)
    return replace(conversation, conversation_key=None), (note,)


async def _still_holds(tables: Tables, request: ImportRequest, draft: ImportDraft) -> bool:
    """Whether all that the draft inserts is still free, and all that it refers to still there."""
    if request.keeps_ids:
        turns = [turn.id for made in draft.branches for turn, _ in made.turns]
        if await tables.taken_turns(turns) or await tables.taken_branches(
            [made.branch.id for made in draft.branches]
        ):
            return False
    for base in draft.bases:
        found = await tables.turn(draft.conversation.owner, base.id)
        if found is None or (found.branch, found.number) != (base.branch, base.number):
            return False
    return True


@dataclass(frozen=True)
class LookUpRequest:
    """Ask what the store has of a plan, so many of its turns at a time."""

    plan: Plan
    known: Known
    """What was found so far; more is added."""
    after: int
    limit: int


async def look_up(tables: Tables, request: LookUpRequest) -> bool:
    """Find which turns of a plan are there already, and which ids are taken. Returns whether that is all."""
    plan, known = request.plan, request.known
    turns = tuple(plan.turns.values())[request.after : request.after + request.limit]
    known.turns |= await tables.taken_turns([turn.id for turn in turns])
    await _find_shared(tables, plan, known, turns)
    if request.after + request.limit < len(plan.turns):
        return False
    known.branches |= await tables.taken_branches([id for id, _ in plan.branches])
    for id in bases_of(plan, known.shared):
        base = known.shared[id]
        lane = await tables.branch(base.branch)
        known.lines[id] = await line.up_to(tables, lane, base) if lane is not None else ()
    return True


async def _find_shared(tables: Tables, plan: Plan, known: Known, turns: Sequence[Planned]) -> None:
    """Find the turns that are there already, with all before them, and the same."""
    owner = plan.conversation.owner
    homes: dict[BranchId, str | None] = {}
    for turn in turns:
        if turn.id not in known.turns or (turn.parent is not None and turn.parent not in known.shared):
            continue
        found = await tables.turn(owner, turn.id)
        if found is None:
            continue
        if found.branch not in homes:
            homes[found.branch] = await _scope_of(tables, owner, found.branch)
        flags = (await tables.flags(owner, (found.id,))).get(found.id, {})
        told = encoded(turn_line("", found, flags, await failure_of(tables, found)))
        if homes[found.branch] == plan.conversation.scope and told == _line_of(turn, "", {}):
            known.shared[turn.id] = found


async def _scope_of(tables: Tables, owner: str, branch: BranchId) -> str | None:
    home = await tables.branch(branch)
    found = await tables.conversation(owner, home.conversation) if home is not None else None
    return None if found is None else found.scope
