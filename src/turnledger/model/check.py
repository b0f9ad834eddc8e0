"""A finding: one thing that a check found wrong with a store, and where."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from turnledger.model.ids import BranchId, ConversationId, TurnId


class Rule(StrEnum):
    """What a finding breaks."""

    CHAIN = "chain"  # the turns of a line are numbered without a gap, each made on the one before
    PAIRS = "pairs"  # each call has its result, and a branch knows the calls that its head leaves open
    DOCUMENT = "document"  # what is stored can be read
    ORPHAN = "orphan"  # what a row names is there
    LANE = "lane"  # a branch and the attempt that runs on it know each other, and nobody else does
    EFFECT = "effect"  # what tools did is in the history, or waits to be settled
    SETTLED = "settled"  # a branch knows up to where its line has settled turns
    INSTRUCTIONS = "instructions"  # which instructions are in force follows from the turns
    ATTEMPT = "attempt"  # an attempt is in the history, or set aside, not both
    STATE = "state"  # what is deleted is so as far as it says, and what is gone left nothing behind
    KEY = "key"  # a conversation_key names one conversation, an idempotency_key one that is there
    TOKEN = "token"  # noqa: S105 - one is found by its text, and gives nothing beyond the one that made it
    SCOPE = "scope"  # conversations that share turns are of one scope, and a claim within one stays there
    STORE = "store"  # the store's own books agree
    NOT_AT_REST = "not_at_rest"  # no damage: somebody is at work, or died and is not buried yet


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, in a sentence that also says what it means, and the place: as much of it as is known.

    The sentence may hold text from the store: strip control characters before showing it in a terminal.
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
