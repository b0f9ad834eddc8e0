"""The rows that an import writes, made of a plan and of what the store says about its ids. Nothing here looks
at a store: the transaction of an import only inserts, so that other requests hardly wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from turnledger.engine.conversations.entry import LOOKED_AT
from turnledger.engine.history.line import STRETCHES_KEPT
from turnledger.engine.transfer.import_plan import Plan, Planned
from turnledger.model.conversation import Branch, Conversation, Origin, Stretch
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, TurnId, derived, time_of
from turnledger.model.messages.pairing import left_open
from turnledger.model.new_branch import NewBranch
from turnledger.model.text.summary import preview_of
from turnledger.model.transfer import Did, ImportReport
from turnledger.model.turn import Turn


@dataclass
class Known:
    """What a store has of a plan already."""

    shared: dict[TurnId, Turn] = field(default_factory=dict)
    """Turns of the same owner and scope that are the same, with all turns before them."""
    lines: dict[TurnId, tuple[Stretch, ...]] = field(default_factory=dict)
    """Of shared turns that branches are made from: the line up to them."""
    turns: set[TurnId] = field(default_factory=set)
    """Ids of turns that are taken, by any owner."""
    branches: set[BranchId] = field(default_factory=set)
    """Ids of branches that are taken."""


@dataclass(frozen=True)
class ImportDraft:
    """All that is inserted for a chat."""

    conversation: Conversation
    branches: tuple[NewBranch, ...]
    flags: Mapping[TurnId, Mapping[int, Flags]]
    bases: tuple[Turn, ...]
    """Turns of other chats that branches are made from: the draft holds while they are there."""
    notes: tuple[ImportReport, ...]


def bases_of(plan: Plan, shared: Mapping[TurnId, Turn]) -> set[TurnId]:
    """The shared turns that branches are made from."""
    bases: set[TurnId] = set()
    placed = set(shared)
    for _, head in plan.branches:
        own = plan.line_of(head, placed)
        placed.update(turn.id for turn in own)
        before = own[0].parent if own else head
        if before is not None and before in shared:
            bases.add(before)
    return bases


def turn_called(chat: ConversationId, id: TurnId) -> TurnId:
    """The id of a turn that cannot keep its own."""
    return derived(TurnId, time_of(id), str(chat), str(id))


def branch_called(chat: ConversationId, id: BranchId) -> BranchId:
    """The id of a branch that cannot keep its own."""
    return derived(BranchId, time_of(id), str(chat), str(id))


def draft_of(plan: Plan, chat: ConversationId, known: Known, *, keeps_ids: bool) -> ImportDraft:
    """Make the rows of a planned chat under this id."""
    return _Drafting(plan, replace(plan.conversation, id=chat), known, keeps_ids).draft()


@dataclass
class _Drafting:
    plan: Plan
    conversation: Conversation
    known: Known
    keeps_ids: bool
    notes: list[ImportReport] = field(default_factory=list)
    ids: dict[TurnId, TurnId] = field(default_factory=dict)
    """What turns are called here that cannot keep their ids."""
    renamed: dict[BranchId, BranchId] = field(default_factory=dict)
    placed: dict[TurnId, Turn] = field(default_factory=dict)
    """Turns by their ids in the plan, as they will be."""
    starts: dict[BranchId, int] = field(default_factory=dict)
    lines: dict[BranchId, tuple[Stretch, ...]] = field(default_factory=dict)
    """Of branches as they are called here: the stretches before their own turns."""

    def draft(self) -> ImportDraft:
        plan, current = self.plan, self.conversation.branch
        self._name()
        self.placed.update(self.known.shared)
        branches = tuple(self._branch(place, id, head) for place, (id, head) in enumerate(plan.branches))
        flags = {
            self.ids.get(turn.id, turn.id): turn.flags
            for turn in plan.turns.values()
            if turn.flags and turn.id not in self.known.shared
        }
        return ImportDraft(
            replace(self.conversation, branch=self.renamed.get(current, current)),
            branches,
            flags,
            tuple(self.known.shared[id] for id in self.known.lines),
            tuple(self.notes),
        )

    def _note(self, at: int, why: str, turn: TurnId | None = None) -> None:
        named = None if turn is None else str(turn)
        chat = str(self.conversation.id)
        self.notes.append(ImportReport(line=at, did=Did.RENAMED, chat=chat, turn=named, why=why))

    def _name(self) -> None:
        """Find ids for turns and branches whose own are taken. Where all are replaced, that is said once, of
        the chat."""
        plan, chat = self.plan, self.conversation.id
        if chat != plan.conversation.id:
            why = f"It is {chat} here, not {plan.conversation.id}."
            if self.keeps_ids:
                why = f"Its id {plan.conversation.id} is taken; it is {chat} here."
            self._note(plan.line, why)
        for turn in plan.turns.values():
            if turn.id in self.known.shared:
                continue
            if not self.keeps_ids or turn.id in self.known.turns:
                self.ids[turn.id] = turn_called(chat, turn.id)
                if self.keeps_ids:
                    self._note(turn.line, f"Its id is taken; it is {self.ids[turn.id]} here.", turn.id)
        for id, _ in plan.branches:
            if not self.keeps_ids or id in self.known.branches:
                self.renamed[id] = branch_called(chat, id)
                if self.keeps_ids:
                    why = f"The id of its branch {id} is taken; it is {self.renamed[id]} here."
                    self._note(plan.line, why)

    def _branch(self, place: int, id: BranchId, head: TurnId | None) -> NewBranch:
        own = self.plan.line_of(head, self.placed)
        before = own[0].parent if own else head
        base = self.placed[before] if before is not None else None
        branch = self._bare_branch(id, head, base)
        turns: list[tuple[Turn, bytes]] = []
        for turn in own:
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
            pending=left_open((*last.input, *last.output)),
            instructed=last.instructed,
        )

    def _line(self, before: TurnId | None, base: Turn | None) -> tuple[Stretch, ...]:
        """The stretches up to the turn that a branch is made from, the newest first."""
        if before is None or base is None:
            return ()
        if before in self.known.lines:
            return self.known.lines[before]
        shared = Stretch(base.branch, self.starts[base.branch], base.number)
        return (shared, *self.lines.get(base.branch, ()))[:STRETCHES_KEPT]

    def _preview(self, head: TurnId | None) -> str:
        """How the last text begins that is shown, of the turn at the head or of one before it."""
        for _ in range(LOOKED_AT):
            if head is None:
                break
            turn: Planned = self.plan.turns[head]
            hidden = [place for place, each in turn.flags.items() if not each.to_user]
            if preview := preview_of(self.placed[head], hidden):
                return preview
            head = turn.parent
        return ""
