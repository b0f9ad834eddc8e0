"""Usage: what each owner stores, counted where it costs next to nothing, and kept within bounds.

A branch knows the bytes of its own turns, in the row that every commit writes anyway. The owner's row counts
them in whole blocks, so that few commits write it, too: it is the one row that all turns of an owner share,
and they would wait for each other there. Everything else that is stored is written more rarely: stores count
conversations and branches where they save them, and attempts are counted here when they are set aside. What
visitors store counts for their link as well.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.ports import Tables
from turnledger.errors import StorageFull
from turnledger.model.access.bounds import Bounds
from turnledger.model.access.share import link_of
from turnledger.model.attempt import Attempt
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.turn import Turn
from turnledger.model.usage import Usage, of_aside, of_branch, of_chat, of_details


class Room(Struct, frozen=True):
    """What an owner may store; None for no bound."""

    bytes: int | None = None
    chats: int | None = None

    def bounded_by(self, bounds: Bounds) -> Room:
        """Return the same, with these bounds where they are given."""
        most = self.bytes if bounds.bytes is None else bounds.bytes
        return Room(most, self.chats if bounds.chats is None else bounds.chats)


BOUNDLESS = Room()
_NOTHING = Usage(bytes=0)


async def store_turn(tables: Tables, owner: str, branch: Branch, turn: Turn, log: bytes) -> int:
    """Insert a turn of a branch, and return the bytes of all its turns. The caller saves the branch."""
    await tables.add_turn(turn, log)
    stored = branch.bytes + len(turn.body) + len(log)
    more = of_branch(stored) - of_branch(branch.bytes)
    if more:
        await tables.count_bytes(owner, more)
    return stored


async def counted_aside(tables: Tables, attempt: Attempt) -> Attempt:
    """Count an attempt that has ended, with its journal and log as they are now; return it with its count.
    The caller saves it."""
    journal = await tables.journal(attempt.id)
    size = of_aside(attempt, journal, await tables.log_chunks(attempt.id, 0, 1))
    if size != attempt.bytes:
        await tables.count_bytes(attempt.owner, size - attempt.bytes)
    return replace(attempt, bytes=size)


async def check_room(
    tables: Tables, owner: str, room: Room, *, adds_chat: bool = False, made: Conversation | None = None
) -> None:
    """Raise StorageFull if the owner, or all who came by the same link, store as much as they may; what
    reaches the limit still fits. `adds_chat`: for a conversation that is about to be inserted. `made`: for
    one that was inserted in this very transaction."""
    new = _NOTHING
    if made is not None:
        adds_chat, new = True, Usage(bytes=of_branch(0) + of_details(made), chats=of_chat(made))
    link = link_of(owner)
    if room != BOUNDLESS:
        shown = room if link is None else BOUNDLESS
        _check(await tables.stored(owner), room, new, shown, adds_chat=adds_chat)
    share = None if link is None else await tables.share(None, link)
    if share is not None:
        of_link = Usage(bytes=share.bytes, chats=share.chats)
        own = BOUNDLESS.bounded_by(share.bounds)
        _check(of_link, room.bounded_by(share.bounds), new, own, adds_chat=adds_chat)


def _check(stored: Usage, room: Room, new: Usage, shown: Room, *, adds_chat: bool) -> None:
    """Raise StorageFull. `shown` has the limits that the caller may know: a visitor those of the link, which
    are not the operator's for owners."""
    if room.bytes is not None and stored.bytes - new.bytes >= room.bytes:
        raise StorageFull(shown.bytes)
    if adds_chat and room.chats is not None and stored.chats - new.chats >= room.chats:
        raise StorageFull(shown.chats, "chats")


async def usage(tables: Tables, owner: str) -> Usage:
    """What is stored for an owner."""
    return await tables.stored(owner)
