"""The state of an audit: its findings so far, and how it treats rows that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from turnledger.engine.ports import Inspection
from turnledger.errors import StoreCorrupt, StoreTooNew, TurnledgerError
from turnledger.model.check import Finding, Rule
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId, TurnId

PAGE = 500
"""Rows read at a time, so that memory does not grow with the store."""

REMEMBERED = 10_000
"""Branches whose settled turns are cached, for the branches made from them."""

UNREADABLE = (StoreCorrupt, StoreTooNew, LookupError, ValueError, TypeError, msgspec.MsgspecError)
"""The errors of a row that cannot be read, in any store."""


class Location(msgspec.Struct, frozen=True, kw_only=True):
    owner: str | None = None
    conversation: ConversationId | None = None
    branch: BranchId | None = None
    turn: TurnId | None = None


class TooManyFindings(Exception):
    """The limit of findings was exceeded."""


class Audit:
    """One pass over a store. Records findings up to a limit, then raises TooManyFindings."""

    def __init__(self, whole: Inspection, limit: int, *, at_rest: bool) -> None:
        self.whole = whole
        self.tables = whole.of("")
        """The rows of the owner whose rows are being checked."""
        self.at_rest = at_rest
        self.findings: list[Finding] = []
        self.conversations = self.branches = self.turns = self.attempts = 0
        self._limit = limit
        self._settled: dict[BranchId, tuple[int, ...]] = {}

    def report(self, rule: Rule, place: Location, message: str) -> None:
        if len(self.findings) >= self._limit:
            raise TooManyFindings
        self.findings.append(Finding(rule=rule, message=message, **msgspec.structs.asdict(place)))

    @contextmanager
    def recording(self, place: Location) -> Iterator[None]:
        """Record what cannot be read in a block, and continue after it."""
        try:
            yield
        except UNREADABLE as problem:
            self.report_unreadable(place, "It", problem)

    def report_unreadable(self, place: Location, part: str, problem: BaseException) -> None:
        reason = str(problem) if isinstance(problem, TurnledgerError) else repr(problem)
        self.report(Rule.DOCUMENT, place, f"{part} cannot be read: {reason}")

    def skipping_unreadable(self, *more: type[Exception]) -> suppress:
        """Leave a block at a row that cannot be read: the check of that row itself records it."""
        return suppress(*UNREADABLE, *more)

    def remember_settled(self, branch: BranchId, numbers: tuple[int, ...]) -> None:
        if len(self._settled) >= REMEMBERED:
            del self._settled[next(iter(self._settled))]
        self._settled[branch] = numbers

    def settled_on(self, branch: BranchId) -> tuple[int, ...] | None:
        return self._settled.get(branch)


def is_whole(conversation: Conversation) -> bool:
    """Return whether its turns must be there: the turns of a purged or expired one are being removed."""
    return is_live(conversation) or conversation.state is ConversationState.DELETED


def is_live(conversation: Conversation) -> bool:
    return conversation.state is ConversationState.LIVE
