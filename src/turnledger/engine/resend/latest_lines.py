"""Latest lines: how this process last left the conversations that clients send whole histories to.

A guess, to read the next request by without asking the store: begin says when it was wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from turnledger.engine.conversations.resolve import Target
from turnledger.model.conversation import Branch, Conversation

LINE_BYTES = 2_000
"""What a line takes in memory, beside calls that are open."""


class LatestLine(NamedTuple):
    """What a conversation showed."""

    branch: Branch
    flagged: int
    """The flag version of its owner."""
    is_answered: bool
    """Whether its last turn is one whose answer every client has seen, unless it was hidden since."""
    scope: str = ""
    """Of its conversation."""

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, more or less."""
        return LINE_BYTES + sum(len(item.raw) for item in self.branch.pending)

    @property
    def is_plain(self) -> bool:
        """Whether words that a client adds can only be new: nothing is open, hidden, or unknown to it."""
        branch = self.branch
        return self.is_answered and not self.flagged and not branch.pending and branch.unsettled is None


class LatestLines:
    """How conversations were left, by id and by conversation_key; those used last, bounded by their bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lines: OrderedDict[tuple[str, str, str], LatestLine] = OrderedDict()

    def guess(self, target: Target) -> LatestLine | None:
        """What the target most likely shows; None if nothing is known of it."""
        if target.id is not None:
            known = self._lines.get((target.owner, "", target.id))
            return known if known is None or target.within.reaches(known.scope, target.id) else None
        name = target.conversation_key
        if name is None or target.within.chat is not None:  # which conversation has the key is not told here
            return None
        return self._lines.get((target.owner, target.scope, name))

    def keep(self, conversation: Conversation, line: LatestLine) -> None:
        """It shows this now."""
        owner, key = conversation.owner, conversation.conversation_key
        names: list[tuple[str, str, str]] = [(owner, "", conversation.id)]
        if key is not None:
            names.append((owner, conversation.scope, key))
        for name in names:
            if (before := self._lines.pop(name, None)) is not None:
                self._bytes -= before.size
            self._lines[name] = line
            self._bytes += line.size
        while self._bytes > self._max_bytes:
            self._bytes -= self._lines.popitem(last=False)[1].size
