"""What the turns of an owner take, and how it is counted."""

from __future__ import annotations

import msgspec

BLOCK = 16 * 1024
"""Bytes that the turns of a branch are counted in: what they fill only in part counts whole."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored for an owner."""

    bytes: int
    """Of all turns and the logs of their events. Each branch of a conversation is counted in whole blocks of
    16 KiB; turns that several share count once. What was deleted counts until it is purged and removed,
    soon after."""


def in_blocks(size: int) -> int:
    """The bytes that count for turns of this size."""
    return -(-size // BLOCK) * BLOCK
