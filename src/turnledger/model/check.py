"""A finding: one problem that a check found in a store."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from turnledger.model.ids import BranchId, ConversationId, TurnId


class Rule(StrEnum):
    """The rule that a finding breaks."""

    CHAIN = "chain"  # the turns of a line are numbered without gaps, each based on the one before
    PAIRS = "pairs"  # each call has its result, and a branch knows the calls that its head leaves open
    DOCUMENT = "document"  # every stored document can be decoded
    ORPHAN = "orphan"  # every row that is referred to exists
    LANE = "lane"  # a branch and the attempt running on it refer to each other, and to no other
    EFFECT = "effect"  # the effects of tools are in the history, or wait to be settled
    SETTLED = "settled"  # a branch knows the last settled turn of its line
    INSTRUCTIONS = "instructions"  # the instructions in force follow from the turns
    ATTEMPT = "attempt"  # an attempt is either in the history or set aside
    STATE = "state"  # a deleted conversation matches its state, and a purged one left no rows
    KEY = "key"  # a conversation_key names one conversation, an idempotency_key an existing one
    TOKEN = "token"  # noqa: S105 - a token is found by its text, and grants no more than its parent
    SCOPE = "scope"  # conversations that share turns have one scope, and claims stay within theirs
    STORE = "store"  # the store's own bookkeeping is consistent
    NOT_AT_REST = "not_at_rest"  # no damage: a process is at work, or died and was not recovered yet


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, in a sentence that includes what follows from it, and its place as far as known.

    The message may contain text from the store: strip control characters before printing it.
    """

    rule: Rule
    message: str
    owner: str | None = None
    conversation: ConversationId | None = None
    branch: BranchId | None = None
    turn: TurnId | None = None
    """The turn or the attempt."""

    @property
    def is_damage(self) -> bool:
        return self.rule is not Rule.NOT_AT_REST
