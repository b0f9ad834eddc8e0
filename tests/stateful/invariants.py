"""Invariants after every operation."""

from __future__ import annotations

from typing import Any

from tests.stateful.names import CONVERSATIONS, LEASES, OWNERS, TURNS
from turnledger.model.conversation import Branch, Conversation, ConversationState
from turnledger.model.item import open_calls
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState, Turn, TurnKind


def check(before: dict[str, Any], seen: dict[str, Any]) -> None:
    """Check the visible state against the one before."""
    for name, branch in seen.items():
        if name.startswith("branch "):
            number = name.removeprefix("branch ")
            earlier = before.get(name)
            assert earlier is None or branch.fence >= earlier.fence
            check_lane(seen, branch)
            conversation = conversation_of(seen, branch)
            if conversation.state is ConversationState.LIVE:
                check_history(branch, seen.get(f"line of {number}", []))
                check_unsettled(seen, branch)
                check_idle(branch, conversation)
    check_claims(seen)


def conversation_of(seen: dict[str, Any], branch: Branch) -> Conversation:
    number = CONVERSATIONS.index(branch.conversation) + 1
    (found,) = (one for owner in OWNERS if (one := seen.get(f"{owner}'s conversation {number}")))
    assert isinstance(found, Conversation)
    return found


def check_idle(branch: Branch, conversation: Conversation) -> None:
    """Check that turns run and wait only on the current branch."""
    if branch.id != conversation.branch:
        assert branch.running is None
        assert branch.unsettled is None


def attempt_of(seen: dict[str, Any], id: str) -> Attempt | None:
    number = TURNS.index(id) + 1
    return next((one for owner in OWNERS if (one := seen.get(f"{owner}'s attempt {number}"))), None)


def check_lane(seen: dict[str, Any], branch: Branch) -> None:
    """Check that at most one attempt runs on a branch, which names it."""
    running = [
        attempt.id
        for number in range(1, len(LEASES) + 1)
        for attempt in seen.get(f"running of {number}", [])
        if attempt.branch == branch.id
    ]
    assert running == ([branch.running] if branch.running else [])


def check_history(branch: Branch, turns: list[Turn]) -> None:
    """Check that turns are a chain up to the head, with calls and results paired except pending ones."""
    assert [turn.number for turn in turns] == list(range(1, branch.length + 1))
    assert [turn.parent for turn in turns] == [None, *(turn.id for turn in turns)][: len(turns)]
    assert branch.head == (turns[-1].id if turns else None)
    assert all(turn.kind is not TurnKind.SETTLED for turn in turns[branch.settled :])
    assert open_calls([item for turn in turns for item in turn.items]) == branch.pending
    check_instructions(branch, turns)


def check_instructions(branch: Branch, turns: list[Turn]) -> None:
    """Check that each turn leaves its own instructions in force, none, or the earlier ones."""
    before = 0
    for turn in turns:
        allowed = {before} if turn.instructions is None else {before, turn.number if turn.instructions else 0}
        assert turn.instructed in allowed
        before = turn.instructed
    assert branch.instructed == before


def check_unsettled(seen: dict[str, Any], branch: Branch) -> None:
    """Check that an unsettled attempt exists, has ended, and has effects."""
    if branch.unsettled is None:
        return
    attempt = attempt_of(seen, branch.unsettled)
    assert attempt is not None
    assert attempt.state in (AttemptState.FAILED, AttemptState.DISCARDED)
    journal = seen[f"{attempt.owner}'s journal {TURNS.index(attempt.id) + 1}"]
    assert len(journal) == attempt.journaled
    assert Journal.of(journal).has_effects


def check_claims(seen: dict[str, Any]) -> None:
    """Check that a claim has no expiry exactly while its attempt runs."""
    for name, claim in seen.items():
        if "'s claim " in name:
            attempt = attempt_of(seen, claim.attempt)
            is_running = attempt is not None and attempt.state is AttemptState.RUNNING
            assert (claim.expires_at is None) is is_running
