"""The feed: changes are recorded in the transactions that make them, and sent to those who follow an owner.

A stored change holds only ids and a word of detail. The chat is read when the change is read, so that a late
reader never receives an outdated title. One task per process reads new changes for all followers here, and
hands each owner's changes to its followers. A slow follower continues from the store, so none delays the
others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from turnledger.engine.lane.shield import JointReads
from turnledger.engine.ports import Store, Tables, WholeStore
from turnledger.engine.tables.changes import PositionRows
from turnledger.engine.wrapped_store import WrappedStore, Write
from turnledger.errors import LedgerClosed, StoreError
from turnledger.model.change import ABOUT_CHATS, ChangeKind, LiveChange, Position
from turnledger.model.conversation import Conversation, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Turn

if TYPE_CHECKING:
    from turnledger.engine.process import Process


PURGED_AT_ONCE = 20_000
"""Changes removed per step: they are stored side by side, and each turn adds several."""


async def record_change(
    tables: Tables,
    kind: ChangeKind,
    conversation: Conversation,
    at: int,
    *,
    turn: TurnId | None = None,
    branch: BranchId | None = None,
    detail: str | None = None,
) -> None:
    """Record a change for the owner of a conversation, unless it is internal, within this transaction."""
    if conversation.internal:
        return
    await tables.add_change(
        LiveChange(
            kind=kind,
            owner=conversation.owner,
            conversation=conversation.id,
            scope=conversation.scope,
            turn=turn,
            branch=branch,
            detail=detail,
            at=at,
        )
    )


async def record_commit(
    tables: Tables, conversation: Conversation | None, turn: Turn, *, has_moved: bool
) -> None:
    """Record that a turn became history. The first turn also creates its chat, and an edit also switches the
    branch. `conversation` is as it was before."""
    if conversation is None:
        return
    at = turn.committed_at
    if not conversation.is_listed:
        await record_change(tables, ChangeKind.CHAT_CREATED, conversation, at)
    if has_moved:
        await record_change(tables, ChangeKind.CHAT_SWITCHED, conversation, at, branch=turn.branch)
    await record_change(
        tables,
        ChangeKind.TURN_COMMITTED,
        conversation,
        at,
        turn=turn.id,
        branch=turn.branch,
        detail=turn.kind.value,
    )


async def record_withdrawal(tables: Tables, id: ConversationId, turn: TurnId, at: int) -> None:
    """Record that a queued turn will not run."""
    found = await tables.conversation(id)
    if found is not None:
        await record_change(tables, ChangeKind.TURN_WITHDRAWN, found, at, turn=turn)


# Reading.


@dataclass(frozen=True)
class ResumeRequest:
    """Asks for the changes of an owner after a position; without one, from now on."""

    owner: str
    after: Position | None
    limit: int


@dataclass(frozen=True)
class ChangePage:
    """Changes in order, complete up to `through`."""

    changes: list[LiveChange]
    through: Position
    is_whole: bool
    """Whether no change is missing; if not, the position is no longer kept, and the page starts now."""
    has_more: bool = False


async def resume(tables: Tables, request: ResumeRequest) -> ChangePage:
    after = request.after
    if after is None or not await tables.is_kept(after):
        return ChangePage([], await tables.newest_position(), is_whole=after is None)
    found = await tables.changes(after, request.limit)
    has_more = len(found) == request.limit
    through = found[-1].position if has_more else await tables.newest_position()
    chats: dict[ConversationId, Conversation | None] = {}
    complete = [await _with_chat(tables, change, chats) for change in found]
    return ChangePage(complete, through, is_whole=True, has_more=has_more)


async def _with_chat(
    tables: Tables, change: LiveChange, chats: dict[ConversationId, Conversation | None]
) -> LiveChange:
    """Return the change with its chat, if it is about one. `chats` are those read before."""
    id = change.conversation
    if change.kind not in ABOUT_CHATS or id is None:
        return change
    if id not in chats:
        chats[id] = await tables.conversation(id)
    return replace(change, chat=chats[id])


@dataclass(frozen=True)
class TailRequest:
    after: Position
    owners: frozenset[str]
    limit: int


async def read_tail(whole: WholeStore, request: TailRequest) -> ChangePage:
    """Return the next changes of any of the owners: one read for all followers in a process."""
    if not await whole.is_kept(request.after):
        return ChangePage([], await whole.newest_position(), is_whole=False)
    tail = await whole.tail(request.after, request.owners, request.limit)
    chats: dict[ConversationId, Conversation | None] = {}
    complete = [await _with_chat(whole.of(change.owner), change, chats) for change in tail.changes]
    return ChangePage(complete, tail.through, is_whole=True, has_more=tail.has_more)


async def newest_position(rows: PositionRows, _: object = None) -> Position:
    """Return the position that every later change comes after."""
    return await rows.newest_position()


PAGE = 256
"""Changes read at once for a follower that catches up."""
FULL_PAGES = 16
"""Full pages kept for other followers that catch up."""
TAIL = 2_048
"""Changes read at once for all followers."""
SETTLE_DELAY = 0.005
"""Seconds from a write to the read: a short turn has ended by then, and is reported as a whole."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two reads, so that a busy store is not read for each turn."""
PAUSE_PER_WOKEN = 0.0005
"""Added per follower that received something: delivery to a crowd must leave time for turns."""
WOKEN_AT_ONCE = 16
"""Followers served before the loop runs other tasks."""


class FollowerState(Enum):
    """How a follower receives new changes."""

    BEHIND = "behind"  # from the store; live changes would leave a gap
    READING = "reading"  # a read is under way; live changes are kept, and may be duplicates
    LIVE = "live"  # from the feed, without a gap


class ChangeReader:
    """A follower of an owner's changes. Used by one task, as a context manager."""

    def __init__(self, process: Process, owner: str, within: Within, after: str | None) -> None:
        self._process = process
        self._feed = process.feed
        self.owner = owner
        self._within = within
        self._is_first = after is None
        self.position = Position(after or "")
        """Everything up to here was delivered."""
        self._state = FollowerState.BEHIND
        self._queued: deque[Sequence[LiveChange]] = deque()
        self._count = 0
        self._bell = asyncio.Event()
        self._is_woken = False

    def __repr__(self) -> str:
        return f"<ChangeReader of {self.owner!r}>"

    def __enter__(self) -> ChangeReader:
        self._process.admit_reader()
        self._feed.join(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.readers -= 1
        self._feed.leave(self)

    def enqueue(self, changes: Sequence[LiveChange]) -> None:
        """Queue new changes; if there is no room, fall behind."""
        if self._state is FollowerState.BEHIND:
            return
        if self._state is FollowerState.LIVE and not self._queued:
            self._advance_to(self._feed.distributed_to)  # no change for this reader lies in between
        self._count += len(changes)
        if self._count > self._process.limits.followed_changes:
            self.fall_behind()
        else:
            self._queued.append(changes)
            self._bell.set()

    def fall_behind(self) -> None:
        """Drop the queued changes and continue from the store."""
        self._state = FollowerState.BEHIND
        self._queued.clear()
        self._count = 0
        self._bell.set()

    def wake(self) -> None:
        """Wake the reader without a change, so that it learns up to where there is none."""
        self._is_woken = True
        self._bell.set()

    async def next_batch(self) -> Sequence[LiveChange]:
        """Return the next changes as soon as there are any; empty if it was woken before. A cancelled call
        takes none. Raises LedgerClosed and StoreErrors; a later call continues at the same place."""
        while not self._process.is_closed:
            batch = self._next_queued() if self._state is FollowerState.LIVE else await self._catch_up()
            if batch:
                return batch
            if self._state is FollowerState.BEHIND or self._queued:
                continue
            if self._is_woken:
                self._is_woken = False
                self._advance_to(self._feed.distributed_to)
                return ()
            self._bell.clear()
            await self._bell.wait()
        raise LedgerClosed

    def _advance_to(self, position: Position) -> None:
        self.position = max(position, self.position)

    def _next_queued(self) -> Sequence[LiveChange]:
        """Return the next queued batch. If the reader sees all of it, this is the same object for all
        readers, so that it is serialized only once."""
        while self._queued:
            changes = self._queued.popleft()
            self._count -= len(changes)
            seen = changes
            # Changes read from the store may also arrive live.
            if not self._within.is_unrestricted or changes[0].position <= self.position:
                after = self.position
                seen = [each for each in changes if each.position > after and self._sees(each)]
            self._advance_to(changes[-1].position)
            if seen:
                return seen
        return ()

    async def _catch_up(self) -> Sequence[LiveChange]:
        await self._feed.wait_until_ready()
        self._state = FollowerState.READING
        try:
            page = await self._read()
        except BaseException:
            self.fall_behind()
            raise
        if page.has_more:
            self.fall_behind()
        elif self._state is FollowerState.READING:
            self._state = FollowerState.LIVE
        self.position = page.through
        if self._is_first or not page.is_whole:
            kind = ChangeKind.START if self._is_first else ChangeKind.GAP
            self._is_first = False
            at = self._process.clock.now_ms()
            return [LiveChange(kind=kind, owner=self.owner, at=at, position=page.through)]
        if self._within.is_unrestricted:
            return page.changes
        return [change for change in page.changes if self._sees(change)]

    async def _read(self) -> ChangePage:
        if self._is_first:
            newest = await self._process.store.read(newest_position, None, self.owner)
            return ChangePage([], newest, is_whole=True)
        return await self._feed.page(ResumeRequest(self.owner, self.position, PAGE))

    def _sees(self, change: LiveChange) -> bool:
        return change.conversation is not None and self._within.reaches(change.scope, change.conversation)


class Feed:
    """All followers in one process. Idle and free of cost while there are none."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._followers: dict[str, dict[ChangeReader, None]] = {}
        self._owners: frozenset[str] = frozenset()
        self._position = Position("")
        self.distributed_to = Position("")
        """Everything up to here was handed to its followers."""
        self._bell = asyncio.Event()
        self._ready: asyncio.Event = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._store: Store | None = None
        self._pages = JointReads(self._read_page, "turnledger page")
        self._full_pages: dict[ResumeRequest, ChangePage] = {}
        self._forgotten = 0
        """Counts invalidations: a page read across one may be outdated, too."""

    def wake(self) -> None:
        """Note that this or another process may have recorded a change."""
        self._bell.set()

    def wake_all(self) -> None:
        """Wake all followers, as the process closes."""
        self._ready.set()
        for follower in self._all_followers():
            follower.wake()

    def _all_followers(self) -> list[ChangeReader]:
        return [follower for followers in self._followers.values() for follower in followers]

    def join(self, follower: ChangeReader) -> None:
        followers = self._followers.setdefault(follower.owner, {})
        followers[follower] = None
        if len(followers) == 1:
            self._owners = self._owners | {follower.owner}
        if self._reading is None:
            process = self._process
            self._store = process.store
            process.store = NotifyingStore(process.store, self.wake)
            self._ready = asyncio.Event()
            self._reading = asyncio.create_task(self._read(self._ready), name="turnledger feed")

    def leave(self, follower: ChangeReader) -> None:
        followers = self._followers[follower.owner]
        del followers[follower]
        if not followers:
            del self._followers[follower.owner]
            self._owners = self._owners - {follower.owner}
        if not self._followers and self._reading is not None:
            self._reading.cancel()
            self._reading = None
            self._full_pages.clear()
            assert self._store is not None  # noqa: S101 - the first follower has set it
            self._process.store = self._store

    async def wait_until_ready(self) -> None:
        """Wait until all later changes arrive live."""
        await self._ready.wait()

    async def page(self, request: ResumeRequest) -> ChangePage:
        """Return the stored changes after a position. Many followers that fall behind or reconnect ask for
        the same page, so it is read once. A full page is kept until a chat of its owner changes. The last
        page goes only to those that asked before it was read: it may be outdated for later ones."""
        full = self._full_pages.get(request)
        if full is not None:
            return full
        return await self._pages.take(request)

    async def _read_page(self, request: ResumeRequest) -> ChangePage:
        forgotten = self._forgotten
        page = await self._process.store.read(resume, request, request.owner)
        if page.has_more and self._followers and forgotten == self._forgotten:
            while len(self._full_pages) >= FULL_PAGES:
                del self._full_pages[next(iter(self._full_pages))]
            self._full_pages[request] = page
        return page

    async def close(self) -> None:
        """Cancel the task, even with followers left."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait((reading,))

    async def _read(self, ready: asyncio.Event) -> None:
        is_known = False
        while True:
            self._bell.clear()
            try:
                if is_known:
                    woken = await self._distribute_new()
                else:
                    self._position = await self._process.store.read_whole(newest_position, None)
                    self.distributed_to = self._position
                    is_known, woken = True, 0
                    ready.set()
            except StoreError as error:
                self._process.outage.note(error, "changes_postponed")
                woken = 1_000  # as for a crowd: retry after a pause
                self._bell.set()
            except LedgerClosed:
                return
            pause = min(max(SHORTEST_PAUSE, woken * PAUSE_PER_WOKEN), LONGEST_PAUSE)
            next_at = self._process.clock.monotonic() + pause
            await self._wait()
            await asyncio.sleep(max(SETTLE_DELAY, min(next_at - self._process.clock.monotonic(), pause)))

    async def _wait(self) -> None:
        # Hints may be lost, so read after a while in any case.
        try:
            async with asyncio.timeout(self._process.limits.lease_time / 4):
                await self._bell.wait()
        except TimeoutError:
            return

    async def _distribute_new(self) -> int:
        """Hand out new changes; return how many followers received some."""
        request = TailRequest(self._position, self._owners, TAIL)
        page = await self._process.store.read_whole(read_tail, request)
        self._position = page.through
        if not page.is_whole:
            self.distributed_to = page.through
            self._forget_pages({request.owner for request in self._full_pages})
            for follower in self._all_followers():
                follower.fall_behind()  # each learns from the store whether it missed something
            return len(self._followers)
        if page.has_more:
            self._bell.set()
        for owner in self._owners - request.owners:
            for follower in self._followers[owner]:
                follower.fall_behind()  # it joined during this read, which may lack its changes
        by_owner: dict[str, list[LiveChange]] = {}
        for change in page.changes:
            by_owner.setdefault(change.owner, []).append(change)
        self._forget_pages({change.owner for change in page.changes if change.turn is None})
        woken = await self._distribute(by_owner)
        self.distributed_to = page.through
        return woken

    def _forget_pages(self, owners: set[str]) -> None:
        """Drop pages of these owners: they show chats as they were when read."""
        if owners:
            self._forgotten += 1
            kept = {at: page for at, page in self._full_pages.items() if at.owner not in owners}
            self._full_pages = kept

    async def _distribute(self, by_owner: dict[str, list[LiveChange]]) -> int:
        woken = 0
        for owner, changes in by_owner.items():
            for follower in list(self._followers.get(owner, ())):
                follower.enqueue(changes)
                woken += 1
                if woken % WOKEN_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return woken


class NotifyingStore(WrappedStore):
    """Calls `wake` after each write of this process."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        super().__init__(store)
        self._wake = wake

    async def write(self, write: Write) -> Any:
        try:
            return await super().write(write)
        finally:
            self._wake()
