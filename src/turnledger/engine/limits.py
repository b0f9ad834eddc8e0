"""Bounds on everything that grows or waits, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnledger.errors import MalformedItems
from turnledger.model.item import Item


@dataclass(frozen=True)
class Limits:
    """Defaults suit a server for people; each can be set at Ledger.open. Times are in seconds."""

    lease_time: float = 10.0
    """How long a silent process is believed to be alive."""
    queue_length: int = 32
    """Turns that may wait for one conversation."""
    queue_wait: float = 60.0
    """How long a turn waits for those before it."""
    doubt_patience: float = 10.0
    """How long a caller waits for an unknown commit outcome to become known."""
    input_items: int = 1_000
    """Items in the input of one turn."""
    turn_flags: int = 1_000
    """Items of one turn that can be hidden from the model or the user."""
    turn_bytes: int = 16 * 1024 * 1024
    """Bytes of one turn."""
    owner_bytes: int | None = None
    """What the turns of one owner may take, as Ledger.usage tells it: who stores as much begins no turn. None
    for no bound."""
    attempts_kept: float = 7 * 24 * 3600.0
    """How long failed and discarded attempts can be read."""
    cached_bytes: int = 64 * 1024 * 1024
    """Histories kept in memory."""
    chat_bytes: int = 64 * 1024 * 1024
    """Histories kept in memory as the chat JSON that models are sent."""
    shown_bytes: int = 32 * 1024 * 1024
    """Turns kept in memory as chat clients see them, to find them in what these send."""
    flush_every: float = 0.5
    """How often a running turn writes down what it has told; shorter ones write it with their commit."""
    readers: int = 10_000
    """Event streams that may be read at once in one process."""
    reader_events: int = 1_024
    """Events of a running turn kept at hand for its readers; who is further behind reads from its log."""
    reader_bytes: int = 1024 * 1024
    """Bytes of these."""
    tokens: int = 1_000
    """Tokens of one owner that are neither revoked nor expired."""
    tokens_kept: float = 30 * 24 * 3600.0
    """How long revoked and expired tokens and share links are listed."""
    restore_time: float = 30 * 24 * 3600.0
    """How long a deleted conversation can be restored; then it is purged."""
    retain_for: float | None = None
    """How long a conversation is kept that nobody uses, and that is not pinned: then it is deleted. None for
    no bound."""
    retain_bytes: int | None = None
    """What the turns of one owner may take before his oldest conversations are purged, but for pinned ones.
    None for no bound."""
    retain_every: float = 3600.0
    """How often a process looks for what is older, or more, than that."""
    unlisted_kept: float = 24 * 3600.0
    """How long a conversation is kept that was begun, and where no turn was ever committed."""
    shares: int = 1_000
    """Share links of one owner that are neither revoked nor expired."""
    visitors: int = 10_000
    """Visitors who came by one link and may still be there."""
    changes_kept: float = 3600.0
    """How long who was cut off can go on from the last change that he was told of."""
    changes: int = 100_000
    """Changes of all owners that are kept for that."""
    followed_changes: int = 8_192
    """Changes at hand for one who follows them; who is further behind reads them from the store."""
    import_line_bytes: int = 32 * 1024 * 1024
    """Bytes of one line that is imported."""
    import_chat_bytes: int = 64 * 1024 * 1024
    """Bytes of all lines of one chat that is imported: it is held in memory until it is written."""
    import_turns: int = 20_000
    """Turns, and branches, of one chat that is imported: it is written in one step, and all others wait for
    that."""
    purge_rows: int = 500
    """Rows of each kind removed in one transaction of house-keeping."""
    purge_time: float = 1.0
    """How long one round of house-keeping removes rows; what is left is removed in the next, which begins at
    once."""

    def check_size(self, what: str, items: Sequence[Item]) -> None:
        """Raise MalformedItems for more than one turn can hold."""
        if len(items) > self.input_items or sum([len(item.raw) for item in items]) > self.turn_bytes:
            raise MalformedItems(
                f"{what} is too large: at most {self.input_items} items and {self.turn_bytes} bytes."
            )
