"""A branch with all its turns, to be inserted at once."""

from __future__ import annotations

import msgspec

from turnledger.model.conversation import Branch, Origin
from turnledger.model.turn import Turn


class NewBranch(msgspec.Struct, frozen=True):
    """A branch as it will be, its origin if made from another, and its own turns with their logs."""

    branch: Branch
    origin: Origin | None
    turns: tuple[tuple[Turn, bytes], ...]
