"""Limits on everything that grows or waits, and the storage quota of each owner.

A branch counts the bytes of its turns, in the row that every commit writes anyway. The owner's row counts
them in whole blocks, so that few commits write it: all turns of an owner would contend for that row. Stores
count conversations and branches when they save them; attempts are counted here when they are set aside. Bytes
of visitors also count for their link.

A decoder needs some hundred bytes for a value that is two bytes long, so the values of a text from outside
are counted before any of them is built: that takes no memory to speak of, and ends as soon as the bound is
passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.ports import Tables
from turnledger.errors import InvalidInput, MalformedItems, StorageFull
from turnledger.model.access.token import Bounds
from turnledger.model.conversation import (
    Branch,
    Conversation,
    Usage,
    branch_bytes,
    chat_count,
    details_bytes,
    link_of,
    set_aside_bytes,
)
from turnledger.model.item import Item, ItemLike, raw_object
from turnledger.model.retention import NO_LIFETIMES, Lifetimes
from turnledger.model.turn import Attempt, Turn


class Quota(Struct, frozen=True):
    """What an owner may store; None for no limit."""

    bytes: int | None = None
    chats: int | None = None

    def bounded_by(self, bounds: Bounds) -> Quota:
        """Return the same, overridden by these bounds where they are set."""
        most = self.bytes if bounds.bytes is None else bounds.bytes
        return Quota(most, self.chats if bounds.chats is None else bounds.chats)


UNLIMITED = Quota()
_NOTHING = Usage(bytes=0)


async def store_turn(tables: Tables, branch: Branch, turn: Turn, log: bytes) -> int:
    """Insert a turn of a branch; return the bytes of all its turns. The caller saves the branch."""
    await tables.add_turn(turn, log)
    stored = branch.bytes + len(turn.body) + len(log)
    more = branch_bytes(stored) - branch_bytes(branch.bytes)
    if more:
        await tables.count_bytes(more)
    return stored


async def count_set_aside(tables: Tables, attempt: Attempt) -> Attempt:
    """Count an ended attempt with its journal and log; return it with its count. The caller saves it."""
    journal = await tables.journal(attempt.id)
    size = set_aside_bytes(attempt, journal, await tables.log_chunks(attempt.id, 0, 1))
    if size != attempt.bytes:
        await tables.count_bytes(size - attempt.bytes)
    return replace(attempt, bytes=size)


async def check_quota(
    tables: Tables, quota: Quota, *, adds_chat: bool = False, made: Conversation | None = None
) -> None:
    """Raise StorageFull if the owner, or all visitors of the same link, have reached the quota; a write that
    reaches it still fits. `adds_chat`: for a conversation about to be inserted. `made`: for one inserted in
    this transaction."""
    new = _NOTHING
    if made is not None:
        adds_chat, new = True, Usage(bytes=branch_bytes(0) + details_bytes(made), chats=chat_count(made))
    link = link_of(tables.owner)
    if quota != UNLIMITED:
        reported = quota if link is None else UNLIMITED
        _check(await tables.usage(), quota, new, reported, adds_chat=adds_chat)
    share = None if link is None else await tables.link()
    if share is not None:
        of_link = Usage(bytes=share.bytes, chats=share.chats)
        own = UNLIMITED.bounded_by(share.bounds)
        _check(of_link, quota.bounded_by(share.bounds), new, own, adds_chat=adds_chat)


def _check(stored: Usage, quota: Quota, new: Usage, reported: Quota, *, adds_chat: bool) -> None:
    """Raise StorageFull. `reported` has the limits that the caller may know: a visitor only the link's."""
    if quota.bytes is not None and stored.bytes - new.bytes >= quota.bytes:
        raise StorageFull(reported.bytes)
    if adds_chat and quota.chats is not None and stored.chats - new.chats >= quota.chats:
        raise StorageFull(reported.chats, "chats")


async def usage(tables: Tables, _: None) -> Usage:
    return await tables.usage()


@dataclass(frozen=True)
class Limits:
    """Limits of a ledger, set at Ledger.open; the defaults suit a server for people. Times are in seconds."""

    lease_time: float = 10.0
    """How long a silent process is taken to be alive."""
    queue_length: int = 32
    """Turns that may wait for one conversation."""
    queue_wait: float = 60.0
    """How long a turn waits for those before it."""
    lane_jobs: int = 100
    """Durable turns that may wait for one conversation."""
    owner_jobs: int = 1_000
    """Durable turns of one owner that wait or run."""
    commit_patience: float = 60.0
    """How long a finished turn waits for an unavailable store before it fails."""
    doubt_patience: float = 10.0
    """How long a caller waits for an unknown commit outcome to become known."""
    input_items: int = 1_000
    """Items in the input of one turn."""
    turn_flags: int = 1_000
    """Items of one turn that can be hidden from the model or the user."""
    turn_bytes: int = 16 * 1024 * 1024
    """Bytes of one turn."""
    owner_bytes: int | None = None
    """Bytes that one owner may store, see Ledger.usage: beyond it no turn begins and no conversation is made.
    Also for all visitors of a link together, unless the link has its own limit. None for no limit."""
    owner_chats: int | None = None
    """Conversations of one owner, including deleted ones that can be restored; likewise."""
    attempts_kept: float = 7 * 24 * 3600.0
    """How long failed and discarded attempts can be read."""
    cached_bytes: int = 176 * 1024 * 1024
    """Histories cached in memory, in all forms. The branch in use stays, however large it is."""
    page_bytes: int = 16 * 1024 * 1024
    """Database pages cached in memory, in stores that have them."""
    flush_every: float = 0.5
    """How often a running turn stores the events it has sent; shorter ones store them with their commit."""
    readers: int = 10_000
    """Event streams read at once in one process."""
    reader_events: int = 1_024
    """Recent events of a running turn kept for its readers; slower readers read from its log."""
    reader_bytes: int = 1024 * 1024
    """Bytes of these."""
    tokens: int = 1_000
    """Tokens of one owner that are neither revoked nor expired."""
    tokens_kept: float = 30 * 24 * 3600.0
    """How long revoked and expired tokens and share links are listed."""
    lifetimes: Lifetimes = NO_LIFETIMES
    """When new conversations expire and are reset, unless their creator chooses; also by scope."""
    restore_time: float = 30 * 24 * 3600.0
    """How long a deleted conversation can be restored; then it is purged."""
    retain_for: float | None = None
    """How long an unused conversation is kept before it is deleted, unless pinned. None for no limit."""
    retain_bytes: int | None = None
    """Bytes of an owner's turns beyond which the oldest unpinned conversations are purged; None: no limit."""
    retain_every: float = 3600.0
    """How often a process applies these two limits."""
    side_branches_kept: float = 30 * 24 * 3600.0
    """How long a side branch is kept after its last use; at least as long as an idempotency_key, a day."""
    unlisted_kept: float = 24 * 3600.0
    """How long a conversation without a committed turn is kept."""
    shares: int = 1_000
    """Share links of one owner that are neither revoked nor expired."""
    visitors: int = 10_000
    """Visitors of one link at one time."""
    changes_kept: float = 3600.0
    """How long a disconnected reader can resume from the last change it received."""
    changes: int = 100_000
    """Changes of all owners kept for that."""
    followed_changes: int = 8_192
    """Changes queued for one follower; a slower one reads them from the store."""
    import_line_bytes: int = 32 * 1024 * 1024
    """Bytes of one imported line."""
    import_chat_bytes: int = 64 * 1024 * 1024
    """Bytes of all lines of one imported chat, held in memory until written; may take twice as much there."""
    import_turns: int = 20_000
    """Turns, and branches, of one imported chat: inserted in one transaction, while other writes wait."""
    purge_rows: int = 500
    """Rows of each kind removed per transaction by the purge."""
    purge_time: float = 1.0
    """How long one round of the purge removes rows; the rest is left to the next, which begins at once."""

    clock_tolerance: float = 3600.0
    """How far the wall clock may differ from the clock that counts from boot. Beyond that, nothing is purged,
    expires or is reset for idleness, claims included."""
    clock_agreement: float = 3600.0
    """How long they must then agree before that resumes."""

    def check_count(self, label: str, likes: ItemLike | Iterable[ItemLike]) -> None:
        """Raise MalformedItems for more items than one turn can hold, before making any of them."""
        is_one = isinstance(likes, str | Mapping | Item)
        if not is_one and isinstance(likes, Sized) and len(likes) > self.input_items:
            raise self._too_large(label)

    def check_messages(self, label: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """As check_count, for chat messages, each of which makes one item, or one per call."""
        calls = [message.get("tool_calls") for message in messages[: self.input_items + 1]]
        counts = [len(each) if isinstance(each, list | tuple) else 1 for each in calls]
        if len(messages) > self.input_items or sum(counts) > self.input_items:
            raise self._too_large(label)

    @property
    def quota(self) -> Quota:
        return Quota(self.owner_bytes, self.owner_chats)

    def check_size(self, label: str, items: Sequence[Item]) -> None:
        """Raise MalformedItems for more than one turn can hold."""
        if len(items) > self.input_items or sum([len(item.raw) for item in items]) > self.turn_bytes:
            raise self._too_large(label)

    def pack_details(self, details: Mapping[str, Any] | None) -> bytes:
        """Return the details of a turn as JSON, empty for none. Raises InvalidInput."""
        if not details:
            return b""
        packed = raw_object("details", details)
        if len(packed) > self.turn_bytes:
            raise InvalidInput(f"details have more than {self.turn_bytes} bytes. Store less.")
        return packed

    def _too_large(self, label: str) -> MalformedItems:
        return MalformedItems(
            f"{label} is too large: at most {self.input_items} items and {self.turn_bytes} bytes."
        )


MOST_VALUES = 400_000
"""Values of one body, or of one line of a file: decoded, they take about 100 MB at most."""
_WINDOW = 256 * 1024
_OPENINGS = (b",", b"[", b"{")
"""Each value but the first stands behind one of these. Keys of objects are not counted by themselves."""


def has_more_values(raw: bytes, most: int) -> bool:
    """Whether the text holds more than `most` values. What is not JSON may be counted wrongly: the decoder
    will refuse it, at a cost of no more than `most` values."""
    if len(raw) <= 2 * most or sum(map(raw.count, _OPENINGS)) < most:
        return False  # also if all of them were outside of strings
    found, is_inside, start = 1, False, 0
    while start < len(raw) and found <= most:
        window = raw[start : start + _WINDOW]
        backslashes = len(window) - len(window.rstrip(b"\\"))
        if backslashes % 2 and len(window) > 1:  # the last one belongs to what follows
            window = window[:-1]
        start += len(window)
        parts = window.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_inside::2])
        found += sum(map(outside.count, _OPENINGS))
        is_inside ^= len(parts) % 2 == 0
    return found > most
