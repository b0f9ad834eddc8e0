"""Latest lines: how this process last left the conversations that clients send whole histories to.

A guess, to read the next request by without asking the store: begin says when it was wrong.
"""

from __future__ import annotations

from collections import OrderedDict

from turnledger.engine.conversations import Target
from turnledger.model.conversation import Branch, Conversation

REMEMBERED = 10_000


class LatestLines:
    """The branch that a conversation showed, by its id and its conversation_key, and the flag version of its
    owner."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._lines: OrderedDict[tuple[str, str], tuple[Branch, int]] = OrderedDict()

    def guess(self, target: Target) -> tuple[Branch, int] | None:
        """What the target most likely shows; None if nothing is known of it."""
        name = target.id or target.conversation_key
        return None if name is None else self._lines.get((target.owner, name))

    def keep(self, conversation: Conversation, branch: Branch, flagged: int) -> None:
        """It shows this now."""
        for name in (conversation.id, conversation.conversation_key):
            if name is not None:
                self._lines[conversation.owner, name] = (branch, flagged)
                self._lines.move_to_end((conversation.owner, name))
        while len(self._lines) > self._remembered:
            self._lines.popitem(last=False)
