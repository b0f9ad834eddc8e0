"""Whether changes tell what happened: all that is stored of them, held against all else that is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from turnledger.engine.ports import Tables
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Attempt, AttemptState, Turn, TurnKind

ALL = 1_000_000
ENDS = (ChangeKind.TURN_COMMITTED, ChangeKind.TURN_FAILED, ChangeKind.TURN_STOPPED, ChangeKind.TURN_WITHDRAWN)
WITHOUT_RUNNING = (ChangeKind.TURN_STOPPED, ChangeKind.TURN_WITHDRAWN)
MAY_BE_SETTLED = (ChangeKind.TURN_FAILED, ChangeKind.TURN_STOPPED)


@dataclass
class Stored:
    """All that is stored, of an owner or of all."""

    changes: list[LiveChange]
    conversations: dict[ConversationId, Conversation]
    attempts: dict[TurnId, Attempt]
    turns: dict[TurnId, Turn]


@dataclass
class Picture:
    """What somebody knows who was told of everything."""

    chats: dict[ConversationId, BranchId | None] = field(default_factory=dict)
    """Those that are there, with the branch that they were last said to show."""
    turns: dict[TurnId, list[LiveChange]] = field(default_factory=dict)

    def hear(self, change: LiveChange) -> None:
        id = change.conversation
        assert id is not None, "only changes of conversations are stored"
        if change.kind is ChangeKind.CHAT_DELETED:
            self.chats.pop(id, None)
        elif change.kind in (ChangeKind.CHAT_CREATED, ChangeKind.CHAT_RESTORED):
            self.chats.setdefault(id, None)
        elif change.kind is ChangeKind.CHAT_SWITCHED and id in self.chats:
            self.chats[id] = change.branch
        if change.turn is not None:
            self.turns.setdefault(change.turn, []).append(change)


async def all_stored(tables: Tables, owner: str) -> Stored:
    """Read everything, of a ledger at rest."""
    conversations = {}
    for name, id in await tables.all_conversations(None, ALL):
        found = await tables.conversation(name, id)
        if found is not None and name == owner:
            conversations[id] = found
    attempts = {}
    for name, attempt_id in await tables.all_attempts(None, ALL):
        attempt = await tables.attempt(name, attempt_id)
        if attempt is not None and name == owner:
            attempts[attempt_id] = attempt
    turns: dict[TurnId, Turn] = {}
    for name_or_none, branch in await tables.all_branches(None, ALL):
        if name_or_none == owner:
            turns |= {turn.id: turn for turn in await tables.turns(branch, 0, 2**31, ALL)}
    return Stored(await tables.changes_of(owner, 0, ALL), conversations, attempts, turns)


def broken_by_telling(stored: Stored) -> Iterator[str]:
    """What was told and is not so, or is so and was not told."""
    picture = Picture()
    for change in stored.changes:
        picture.hear(change)
    yield from _chats(picture, stored)
    for id, story in picture.turns.items():
        yield from _turn(id, story, stored)
    for id, turn in stored.turns.items():
        # A settled turn that an edit carried along is a copy of one that was told.
        if id not in picture.turns and turn.kind is not TurnKind.SETTLED and not _is_internal(stored, turn):
            yield f"{id} is there, and nobody was told"
    for id, attempt in stored.attempts.items():
        found = stored.conversations.get(attempt.conversation)
        if id not in picture.turns and found is not None and not found.internal:
            yield f"{id} is {attempt.state}, and nobody was told"


def _is_internal(stored: Stored, turn: Turn) -> bool:
    return all(each.internal for each in stored.conversations.values() if each.branch == turn.branch)


def _chats(picture: Picture, stored: Stored) -> Iterator[str]:
    visible = {
        id: each
        for id, each in stored.conversations.items()
        if each.state is ConversationState.LIVE and each.is_listed and not each.internal
    }
    for id in visible.keys() - picture.chats.keys():
        yield f"{id} is there, and nobody was told"
    for id in picture.chats.keys() - visible.keys():
        yield f"{id} was told of, and is not there"
    for id, found in visible.items():
        shown = picture.chats.get(id)
        if shown not in (None, found.branch):
            yield f"{id} shows {found.branch}, and {shown} was told"


def _turn(id: TurnId, story: list[LiveChange], stored: Stored) -> Iterator[str]:
    kinds = [change.kind for change in story]
    if not is_a_story(kinds):
        yield f"{id} was told as {', '.join(kinds)}"
        return
    last, turn, attempt = story[-1], stored.turns.get(id), stored.attempts.get(id)
    found = stored.conversations.get(last.conversation) if last.conversation else None
    is_live = found is not None and found.state is ConversationState.LIVE
    if last.kind is ChangeKind.TURN_COMMITTED:
        if turn is None and is_live:
            yield f"{id} was told as committed, and is not there"
        if turn is not None and turn.kind != last.detail:
            yield f"{id} is {turn.kind}, and was told as {last.detail}"
    elif turn is not None:
        yield f"{id} is {turn.kind}, and was told as {last.kind}"
    if attempt is None:
        return
    if last.kind is ChangeKind.TURN_FAILED:
        code = attempt.failure.code if attempt.failure else None
        if attempt.state not in (AttemptState.FAILED, AttemptState.RESUMED) or code != last.detail:
            yield f"{id} is {attempt.state} by {code}, and was told as failed by {last.detail}"
    if last.kind is ChangeKind.TURN_STOPPED and attempt.state is not AttemptState.DISCARDED:
        yield f"{id} is {attempt.state}, and was told as stopped"


def is_a_story(kinds: list[ChangeKind]) -> bool:
    """Whether a turn can have been told so that is at rest: queued, running, then an end. What failed or was
    stopped may be settled later. What was withdrawn may wait or run after all: elsewhere if its chat was
    deleted, or if it was taken for dead."""
    rest = list(kinds)
    while ChangeKind.TURN_WITHDRAWN in rest[:-1]:
        rest = rest[rest.index(ChangeKind.TURN_WITHDRAWN) + 1 :]
    has_run = ChangeKind.TURN_RUNNING in rest
    for kind in (ChangeKind.TURN_QUEUED, ChangeKind.TURN_RUNNING):
        if rest and rest[0] is kind:
            rest.pop(0)
    if len(rest) == 2 and rest[0] in MAY_BE_SETTLED and rest[1] is ChangeKind.TURN_COMMITTED:
        rest.pop(0)
    return len(rest) == 1 and rest[0] in (ENDS if has_run else WITHOUT_RUNNING)
