"""Compare the stored changes with the stored conversations, attempts and turns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from turnledger.engine.ports import Inspection
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Attempt, AttemptState, Turn, TurnKind

ALL = 1_000_000
ENDS = (ChangeKind.TURN_COMMITTED, ChangeKind.TURN_FAILED, ChangeKind.TURN_STOPPED, ChangeKind.TURN_WITHDRAWN)
WITHOUT_RUNNING = (ChangeKind.TURN_STOPPED, ChangeKind.TURN_WITHDRAWN)
MAY_BE_SETTLED = (ChangeKind.TURN_FAILED, ChangeKind.TURN_STOPPED)


@dataclass
class StoredState:
    changes: list[LiveChange]
    conversations: dict[ConversationId, Conversation]
    attempts: dict[TurnId, Attempt]
    turns: dict[TurnId, Turn]
    appended: Collection[TurnId] = ()
    """Turns that no model answered."""


@dataclass
class FollowerView:
    """The state known to a follower that received every change."""

    chats: dict[ConversationId, BranchId | None] = field(default_factory=dict)
    """Existing chats, with the branch of their last switch."""
    turns: dict[TurnId, list[LiveChange]] = field(default_factory=dict)

    def apply(self, change: LiveChange) -> None:
        id = change.conversation
        assert id is not None, "only changes of conversations are stored"
        if change.kind is ChangeKind.CHAT_DELETED:
            self.chats.pop(id, None)
        elif change.kind in (ChangeKind.CHAT_CREATED, ChangeKind.CHAT_RESTORED):
            self.chats.setdefault(id, None)
        elif change.kind is ChangeKind.CHAT_SWITCHED and id in self.chats:
            self.chats[id] = change.branch
        if change.turn is not None and change.kind is not ChangeKind.TURN_FLAGGED:
            self.turns.setdefault(change.turn, []).append(change)


async def load_all(whole: Inspection, owner: str) -> StoredState:
    """Read all rows of an owner; the ledger must be at rest, and no change removed."""
    tables = whole.of(owner)
    conversations = {}
    for chat in await whole.all_conversations(None, ALL):
        found = await tables.conversation(chat.row)
        if found is not None:
            conversations[found.id] = found
    attempts = {}
    for running in await whole.all_attempts(None, ALL):
        attempt = await tables.attempt(running.row)
        if attempt is not None:
            attempts[attempt.id] = attempt
    turns: dict[TurnId, Turn] = {}
    for branch in await whole.all_branches(None, ALL):
        turns |= {turn.id: turn for turn in await tables.turns(branch.row, 0, 2**31, ALL)}
    return StoredState(await tables.changes(None, ALL), conversations, attempts, turns)


def find_mismatches(stored: StoredState) -> Iterator[str]:
    """Describe each difference between the changes and the rows."""
    view = FollowerView()
    for change in stored.changes:
        view.apply(change)
    yield from _chats(view, stored)
    for id, changes in view.turns.items():
        yield from _turn(id, changes, stored)
    for id, turn in stored.turns.items():
        # An edit copies settled turns without a change.
        if id not in view.turns and turn.kind is not TurnKind.SETTLED and not _is_internal(stored, turn):
            yield f"{id} exists without a change"
    for id, attempt in stored.attempts.items():
        found = stored.conversations.get(attempt.conversation)
        if id not in view.turns and found is not None and not found.internal:
            yield f"{id} is {attempt.state} without a change"


def _is_internal(stored: StoredState, turn: Turn) -> bool:
    return all(each.internal for each in stored.conversations.values() if each.branch == turn.branch)


def _chats(view: FollowerView, stored: StoredState) -> Iterator[str]:
    visible = {
        id: each
        for id, each in stored.conversations.items()
        if each.state is ConversationState.LIVE and each.is_listed and not each.internal
    }
    for id in visible.keys() - view.chats.keys():
        yield f"{id} exists without a change"
    for id in view.chats.keys() - visible.keys():
        yield f"{id} is in the changes and does not exist"
    for id, found in visible.items():
        shown = view.chats.get(id)
        if shown not in (None, found.branch):
            yield f"{id} shows {found.branch}, its changes {shown}"


def _turn(id: TurnId, changes: list[LiveChange], stored: StoredState) -> Iterator[str]:
    kinds = [change.kind for change in changes]
    if not is_valid_sequence(kinds, is_appended=id in stored.appended):
        yield f"{id} has the changes {', '.join(kinds)}"
        return
    last, turn, attempt = changes[-1], stored.turns.get(id), stored.attempts.get(id)
    found = stored.conversations.get(last.conversation) if last.conversation else None
    is_live = found is not None and found.state is ConversationState.LIVE
    if last.kind is ChangeKind.TURN_COMMITTED:
        if turn is None and is_live:
            yield f"{id} has a change for its commit and does not exist"
        if turn is not None and turn.kind != last.detail:
            yield f"{id} is {turn.kind}, its last change says {last.detail}"
    elif turn is not None:
        yield f"{id} is {turn.kind}, its last change is {last.kind}"
    if attempt is None:
        return
    if last.kind is ChangeKind.TURN_FAILED:
        code = attempt.failure.code if attempt.failure else None
        if attempt.state not in (AttemptState.FAILED, AttemptState.RESUMED) or code != last.detail:
            yield f"{id} is {attempt.state} by {code}, its last change says failed by {last.detail}"
    if last.kind is ChangeKind.TURN_STOPPED and attempt.state is not AttemptState.DISCARDED:
        yield f"{id} is {attempt.state}, its last change says stopped"


def is_valid_sequence(kinds: list[ChangeKind], *, is_appended: bool = False) -> bool:
    """Return whether these may be the changes of an ended turn: queued, running, then an end. An appended
    turn does not run.

    A failed or stopped turn may be settled later. A withdrawn one may still wait or run: in another chat if
    its own was deleted, or if its process was judged dead by mistake.
    """
    rest = list(kinds)
    while ChangeKind.TURN_WITHDRAWN in rest[:-1]:
        rest = rest[rest.index(ChangeKind.TURN_WITHDRAWN) + 1 :]
    has_run = ChangeKind.TURN_RUNNING in rest
    if rest == [ChangeKind.TURN_QUEUED, ChangeKind.TURN_FAILED]:
        return True  # durable work that could not begin
    for kind in (ChangeKind.TURN_QUEUED, ChangeKind.TURN_RUNNING):
        if rest and rest[0] is kind:
            rest.pop(0)
    if len(rest) == 2 and rest[0] in MAY_BE_SETTLED and rest[1] is ChangeKind.TURN_COMMITTED:
        rest.pop(0)
    return len(rest) == 1 and rest[0] in (ENDS if has_run or is_appended else WITHOUT_RUNNING)
