"""What followers were told, held against the changes that are stored, and these against everything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turnledger import Ledger, LiveChange, TurnKind
from turnledger.engine.ports import Tables
from turnledger.ledger import OWNER
from turnledger.model.attempt import Attempt, AttemptState
from turnledger.model.conversation import Conversation
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Turn

ENDS = {"turn.committed", "turn.failed", "turn.stopped", "turn.withdrawn"}


class Told(NamedTuple):
    """One event as it was heard."""

    id: str
    kind: str
    data: dict[str, Any]


@dataclass
class Truth:
    """All that is stored of one owner."""

    changes: list[LiveChange]
    conversations: dict[ConversationId, Conversation]
    attempts: dict[TurnId, Attempt]
    turns: dict[TurnId, Turn]
    """Those that were told as committed, as far as they are there, and all on the lines that are shown."""


@dataclass
class Picture:
    """What somebody knows who has heard everything."""

    chats: dict[str, dict[str, Any]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    turns: dict[str, list[Told]] = field(default_factory=dict)

    def hear(self, told: Told) -> None:
        chat = told.data["chat"]
        if told.kind == "chat.deleted":
            self.deleted.add(chat)
        elif told.kind == "chat.restored":
            self.deleted.discard(chat)
        if told.kind in ("chat.created", "chat.changed", "chat.switched", "chat.restored"):
            self.chats.setdefault(chat, {}).update(told.data)
        if "turn" in told.data:
            self.turns.setdefault(told.data["turn"], []).append(told)


async def check_told(ledger: Ledger, heard: Sequence[Sequence[Told]]) -> Counter[str]:
    """Raise AssertionError for what was told wrongly, twice or not; return how often which kind was told."""
    truth = await ledger._process.store.read(_everything, OWNER)
    stored = {str(change.position): change for change in truth.changes}
    expected = list(stored)
    for each in heard:
        ids = [told.id for told in each]
        assert ids == expected[expected.index(ids[0]) :], "not in order, or not all"
        for told in each:
            change = stored[told.id]
            assert (told.kind, told.data["chat"]) == (change.kind, change.conversation)
            assert told.data.get("turn") == change.turn
    whole = max(heard, key=len)
    assert len(whole) == len(expected), "nobody heard all of it"
    picture = Picture()
    for told in whole:
        picture.hear(told)
    _check_chats(picture, truth)
    _check_turns(picture, truth)
    return Counter(told.kind for told in whole)


def _check_chats(picture: Picture, truth: Truth) -> None:
    visible = {
        id
        for id, each in truth.conversations.items()
        if each.state == "live" and each.is_listed and not each.internal
    }
    assert set(picture.chats) - picture.deleted == visible
    for id in visible:
        shown, found = picture.chats[id], truth.conversations[id]
        assert (shown["title"], shown["revision"]) == (found.title, found.revision), id
        assert shown["branch"] == found.branch, id


def _check_turns(picture: Picture, truth: Truth) -> None:
    for id, story in picture.turns.items():
        _check_story(id, [told.kind for told in story])
        last = story[-1]
        chat = truth.conversations[ConversationId(last.data["chat"])]
        turn, attempt = truth.turns.get(TurnId(id)), truth.attempts.get(TurnId(id))
        if last.kind == "turn.committed":
            assert chat.state != "live" or turn is not None, f"{id} was told as committed, and is not there"
            assert turn is None or turn.kind == last.data["outcome"]
        else:
            assert turn is None, f"{id} is there, and was not told as committed"
        if last.kind == "turn.failed" and attempt is not None:
            assert attempt.state in (AttemptState.FAILED, AttemptState.RESUMED), id
            assert attempt.failure is not None
            assert attempt.failure.code == last.data["code"], id
        if last.kind == "turn.stopped" and attempt is not None:
            assert attempt.state is AttemptState.DISCARDED, id
    for turn_id, found in truth.turns.items():
        # A settled turn that an edit carried along is a copy of one that was told.
        assert turn_id in picture.turns or found.kind is TurnKind.SETTLED, f"{turn_id} was never told"
    for turn_id, left in truth.attempts.items():
        assert turn_id in picture.turns, f"{turn_id}, which {left.state}, was never told"


def _check_story(id: str, kinds: list[str]) -> None:
    """Queued, running, then an end; what failed or was stopped may be settled later. What was withdrawn may
    wait or run after all: elsewhere if its chat was deleted, or if it was taken for dead."""
    story = list(kinds)
    while "turn.withdrawn" in story[:-1]:
        story = story[story.index("turn.withdrawn") + 1 :]
    if story[0] == "turn.queued":
        story.pop(0)
    if story[0] == "turn.running":
        story.pop(0)
    if story[0] in ("turn.failed", "turn.stopped") and story[1:]:
        assert story[1] == "turn.committed", (id, kinds)
        story.pop(0)
    assert len(story) == 1, (id, kinds)
    assert story[0] in ENDS, (id, kinds)


async def _everything(tables: Tables, owner: str) -> Truth:
    changes = await tables.changes_of(owner, 0, 1_000_000)
    conversations = {}
    for name, id in await tables.all_conversations(None, 1_000_000):
        found = await tables.conversation(name, id)
        assert found is not None
        conversations[id] = found
    attempts = {}
    for name, attempt_id in await tables.all_attempts(None, 1_000_000):
        attempt = await tables.attempt(name, attempt_id)
        assert attempt is not None
        attempts[attempt_id] = attempt
    turns = {}
    for turn_id in {change.turn for change in changes if change.turn is not None}:
        turn = await tables.turn(owner, turn_id)
        if turn is not None:
            turns[turn_id] = turn
    for _, branch in await tables.all_branches(None, 1_000_000):
        for turn in await tables.turns(branch, 0, 2**31, 1_000_000):
            turns[turn.id] = turn
    return Truth(changes, conversations, attempts, turns)
