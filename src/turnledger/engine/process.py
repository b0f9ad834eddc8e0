"""One process of the ledger: its lease, its running turns, and the writes it still owes to the store.

A longer turn stores the events it has sent about twice a second, one row each: readers in other processes can
follow it, and its output survives its process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from turnledger.engine.attempt.client_retries import Deliveries
from turnledger.engine.attempt.fork import CommitPlace
from turnledger.engine.attempt.stored_events import (
    EndedTurnLog,
    QueuedTurn,
    RunningTurnLog,
    TurnLogRequest,
    read_turn_log,
)
from turnledger.engine.clock import TrustedClock
from turnledger.engine.feed import Feed
from turnledger.engine.history.history import BranchCache, History, TurnsRequest, read_origin, read_turns
from turnledger.engine.history.line import MISSING
from turnledger.engine.lane.lease_watch import LeaseWatch
from turnledger.engine.lane.shield import Home, JointReads, is_cancelled
from turnledger.engine.limits import Limits
from turnledger.engine.outage import Outage
from turnledger.engine.ports import Clock, Operation, Request, Result, Store, Sync, Tables, WholeOperation
from turnledger.errors import (
    LedgerClosed,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    Superseded,
    TooManyReaders,
    TurnledgerError,
)
from turnledger.model.conversation import Branch, Conversation, holds_lane
from turnledger.model.ids import BranchId, ConversationId, IdSource, LeaseId, RandomBits, TurnId
from turnledger.model.turn import OnStop

if TYPE_CHECKING:
    from turnledger.engine.attempt.end import EndRequest
    from turnledger.engine.events.live_log import LiveLog
    from turnledger.engine.turn.running_turn import OpenTurn


log = logging.getLogger("turnledger")


class Waiter:
    """A task of this process that waits for a conversation. A ring is remembered until the task waits, so
    that no change between reading the store and waiting is missed."""

    def __init__(
        self,
        conversation: ConversationId,
        place: tuple[bool, int] | None,
        attempt: TurnId | None = None,
    ) -> None:
        self.conversation = conversation
        self.place = place
        self.attempt = attempt
        self._bell = asyncio.Event()

    def wake(self) -> None:
        self._bell.set()

    async def wait(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._bell.wait()
        except TimeoutError:
            return
        self._bell.clear()


class Waiters:
    """Wakes the tasks that wait in this process: the first in each lane, and all that wait for an outcome.
    Only a hint: a woken waiter reads the store again, and does so after a while in any case."""

    def __init__(self) -> None:
        self._waiters: dict[ConversationId, list[Waiter]] = {}
        self.workers: list[Callable[[], None]] = []
        """Called when a lane may have become free."""
        self._queued: dict[TurnId, ConversationId] = {}

    @contextmanager
    def enlist(
        self,
        conversation: ConversationId,
        place: tuple[bool, int] | None = None,
        attempt: TurnId | None = None,
    ) -> Iterator[Waiter]:
        """Wait for a conversation: with a place in its lane, on whichever branch, or for every outcome."""
        waiter = Waiter(conversation, place, attempt)
        self._waiters.setdefault(conversation, []).append(waiter)
        if attempt is not None:
            self._queued[attempt] = conversation
        try:
            yield waiter
        finally:
            if attempt is not None:
                self._queued.pop(attempt, None)
            self._waiters[conversation].remove(waiter)
            if not self._waiters[conversation]:
                del self._waiters[conversation]

    def _ring_workers(self) -> None:
        for ring in self.workers:
            ring()

    def notify(self, conversation: ConversationId) -> None:
        """Wake the waiters of a conversation after a turn ended or left the queue."""
        self._ring_workers()
        first: Waiter | None = None
        for waiter in self._waiters.get(conversation, ()):
            if waiter.place is None:
                waiter.wake()
            elif first is None or first.place is None or waiter.place < first.place:
                first = waiter
        if first is not None:
            first.wake()

    def notify_all(self) -> None:
        """Wake all waiters, since another process may have changed anything."""
        self._ring_workers()
        for conversation in list(self._waiters):
            self.notify(conversation)

    def queued_attempts(self) -> list[TurnId]:
        return list(self._queued)

    def lane_of(self, attempt: TurnId) -> ConversationId | None:
        return self._queued.get(attempt)

    def wake(self, attempt: TurnId | None) -> None:
        """Wake the waiter of an attempt that was stopped in the queue."""
        for waiter in self._all():
            if attempt is not None and waiter.attempt == attempt:
                waiter.wake()

    def _all(self) -> Iterator[Waiter]:
        for waiters in list(self._waiters.values()):
            yield from waiters

    def wake_all(self) -> None:
        self._ring_workers()
        for waiter in self._all():
            waiter.wake()


@dataclass(frozen=True)
class FlushRequest:
    """One chunk of a log. Repeating it changes nothing."""

    branch: BranchId
    attempt: TurnId
    fence: int
    number: int
    chunk: bytes


async def flush(tables: Tables, request: FlushRequest) -> None:
    """Append to the event log, if the lane is still held; raise Superseded if not."""
    branch = await tables.branch(request.branch)
    if not holds_lane(branch, request.attempt, request.fence):
        raise Superseded
    await tables.add_log_chunk(request.attempt, request.number, request.chunk)


class LogFlusher:
    """The timer that flushes the turns of a process. Runs while turns do, and skips those that began since
    its last round: most end before the next."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._timer: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the timer for a turn that begins."""
        if self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._run(), name="turnledger flusher")

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.wait((self._timer,))

    async def _run(self) -> None:
        running = self._process.running
        seen = frozenset(running)
        while running:
            await asyncio.sleep(self._process.limits.flush_every)
            # In the order of their begins: the order of a set differs between processes.
            await self.flush([turn for id, turn in running.items() if id in seen])
            seen = frozenset(running)

    async def flush(self, turns: Iterable[OpenTurn] | None = None) -> None:
        """Store the events that these turns have sent; by default all that run here. A failure is retried the
        next time and harms no turn; a turn that has lost its lane is interrupted."""
        due = list(self._process.running.values() if turns is None else turns)
        if len(due) == 1:
            await self._flush(due[0])
        elif due:
            await asyncio.gather(*map(self._flush, due))

    async def _flush(self, running: OpenTurn) -> None:
        request = running.to_flush()
        if request is None:
            return
        try:
            # Like begin, it need not survive power loss: these events are a draft. Readers of durable work
            # receive its events from the store, and must not receive others later.
            sync = Sync.DISK if running.attempt.is_durable else Sync.PROCESS
            await self._process.store.transact(flush, request, running.attempt.owner, sync)
        except Superseded:
            running.lose_lane()
        except LedgerClosed:
            return
        except StoreError as error:
            self._process.outage.note(error, "events_postponed", turn=running.id)
        except Exception:
            log.exception("events_not_stored", extra={"turn": running.id})
        else:
            running.was_flushed(request)
            if running.attempt.is_durable:
                self._process.wake_readers(running.id)


StoredLog: TypeAlias = QueuedTurn | RunningTurnLog | EndedTurnLog | None


TURNS_AT_ONCE = 1_000
"""Turns of a history read at once, so that other readers and the event loop are not held up."""
FIRST_DELAY, TRIES = 0.05, 5
"""Delay before a write without a result is repeated, doubled each time, and how often."""


class AtWork(NamedTuple):
    """The load of one process."""

    running: int
    waiting: int
    """Turns with a ticket, waiting for their lane."""
    readers: int


class Process:
    """The state that the engine's parts share. Everything that the promises depend on is in the store."""

    def __init__(self, store: Store, clock: Clock, random_bits: RandomBits, limits: Limits) -> None:
        self.store: Store = store
        self.home = Home()
        self.home.check()
        self.clock = TrustedClock(
            clock,
            limits.clock_tolerance,
            limits.clock_agreement,
            # The timer reads it twice in a lease time.
            unseen=max(limits.clock_agreement / 4, 2 * limits.lease_time),
        )
        self.limits = limits
        self.outage = Outage(self.clock)
        self.ids = IdSource(self.clock.now_ms, random_bits)
        self.lease = self.ids.new(LeaseId)
        self.waiters = Waiters()
        self.watch = LeaseWatch(self.lease, clock, limits.lease_time, store.is_holder_dead)
        self.cache = BranchCache(limits.cached_bytes)
        self.attempts: dict[TurnId, bool] = {}
        """Attempts that a task here is responsible for, and whether they have queued. Any other attempt with
        this lease is an orphan."""
        self.running: dict[TurnId, OpenTurn] = {}
        self.doubts: dict[TurnId, OpenTurn] = {}
        """Turns whose commit has an unknown outcome, which was reported to their callers."""
        self.unfinished: dict[TurnId, tuple[EndRequest, OpenTurn | None]] = {}
        """Ends that the store could not write yet."""
        self.taken_over: Counter[str] = Counter()
        """How many turns of dead processes this one has ended, by outcome."""
        self.early_stops: dict[TurnId, OnStop | None] = {}
        """Stops of attempts that have begun but do not run yet."""
        self.unread: set[TurnId] = set()
        """Attempts here whose client has left, and that may give way."""
        self.check_stops: Callable[[], None]
        """Reads soon which turns here have to stop; set by Recovery."""
        self.end_unheld: Callable[[OpenTurn, TurnledgerError], None]
        """Ends a turn whose block no task is inside of; set by Recovery."""
        self.flusher = LogFlusher(self)
        self.deliveries = Deliveries(self)
        self.log_reads: JointReads[TurnLogRequest, StoredLog] = JointReads(
            lambda request: self.store.read(read_turn_log, request, request.owner), "turnledger log read"
        )
        self.feed = Feed(self)
        self.readers = 0
        self.live_readers: dict[LiveLog, int] = {}
        """Live logs being read, with the number of readers."""
        self.begin_waiters: dict[TurnId, list[Waiter]] = {}
        """Tasks here that wait for a queued turn to begin."""
        self.is_closed = False
        self._released = asyncio.Event()

    async def persist(
        self,
        operation: Operation[Request, Result],
        request: Request,
        owner: str,
        sync: Sync = Sync.DISK,
        *,
        again: Request | None = None,
    ) -> Result:
        """Run a repeatable operation until its outcome is known or patience ends; a cancelled caller tries
        once. If the outcome of one try is unknown, so is the outcome of all. `again` replaces the request
        when it is repeated."""
        requests = chain((request,), repeat(request if again is None else again))
        return await self._repeat(lambda: self.store.transact(operation, next(requests), owner, sync))

    async def persist_whole(
        self, operation: WholeOperation[Request, Result], request: Request, sync: Sync = Sync.DISK
    ) -> Result:
        """As `persist`, on the rows of all owners."""
        return await self._repeat(lambda: self.store.transact_whole(operation, request, sync))

    async def _repeat(self, write: Callable[[], Awaitable[Result]]) -> Result:
        is_in_doubt = False
        for tried in range(1, TRIES + 1):
            try:
                return await write()
            except (OutcomeUnknown, StoreUnavailable) as error:
                is_in_doubt = is_in_doubt or isinstance(error, OutcomeUnknown)
                if tried == TRIES or is_cancelled():
                    if is_in_doubt and not isinstance(error, OutcomeUnknown):
                        raise OutcomeUnknown from error
                    raise
            await asyncio.sleep(FIRST_DELAY * 2 ** (tried - 1))
        raise AssertionError  # the last try returns or raises

    async def snapshot(
        self,
        owner: str,
        branch: Branch,
        place: CommitPlace | None = None,
        current: BranchId | None = None,
    ) -> History:
        """Return the turns that a turn runs on, up to the head or its place, from the cache and the rest from
        the store. `current` is the branch that the conversation shows. Raises ConversationDeleted, and
        StoreCorrupt if one is missing."""
        head, length = (branch.head, branch.length) if place is None else (place.fork.base, place.fork.number)
        if (head is None) != (length == 0):
            raise StoreCorrupt(MISSING)
        history = self.cache.prefix(branch.id, head, length)
        if branch.id != current and branch.is_side and current is not None and not history:
            # Most turns in parallel follow one that the current branch has.
            beside = self.cache.prefix(current, head, length)
            history = beside if len(beside) == length else history
        if len(history) < length:
            if not history and branch.start:
                # After an undo, a switch or a fork, most of it may be cached under another branch.
                origin = await self.store.read(read_origin, branch.id, owner)
                history = self.cache.shared_prefix(origin.line if origin else (), length)
            while len(history) < length:
                through = min(length, len(history) + TURNS_AT_ONCE)
                missing = TurnsRequest(branch, len(history), through)
                history = history.followed_by(await self.store.read(read_turns, missing, owner))
            if history.head != head:
                raise StoreCorrupt(MISSING)
            self.cache.keep(branch.id, history)
        return history.followed_by(place.carried) if place and place.carried else history

    def admit_reader(self) -> None:
        """Count one more stream. Raises LedgerElsewhere, LedgerClosed or TooManyReaders."""
        self.home.check()
        if self.is_closed:
            raise LedgerClosed
        if self.readers >= self.limits.readers:
            raise TooManyReaders
        self.readers += 1

    def at_work(self) -> AtWork:
        waiting = sum(
            has_queued and attempt not in self.running for attempt, has_queued in self.attempts.items()
        )
        return AtWork(len(self.running), waiting, self.readers)

    def is_inside(self, conversation: ConversationId, turn: TurnId | None) -> bool:
        """Return whether the caller is in the block of this turn, or of any turn of the conversation."""
        return any(
            running.conversation.id == conversation and turn in (None, running.id) and running.is_inside()
            for running in self.running.values()
        )

    def interrupt_here(self, attempt: TurnId, policy: OnStop | None) -> None:
        """Deliver a recorded stop if the attempt runs in this process."""
        if attempt in self.running:
            self.running[attempt].interrupt(policy)
        elif attempt in self.attempts:
            self.early_stops[attempt] = policy

    def check_unread(self) -> None:
        """Find out soon whether a turn that nobody reads has to give way."""
        if self.unread:
            self.check_stops()

    def forget_deleted(self, conversation: Conversation) -> None:
        """Take the lane from the turn of a deleted conversation that runs here, and wake all waiters."""
        self.cache.forget(conversation.branch)
        for running in list(self.running.values()):
            if running.conversation.id == conversation.id:
                running.lose_lane()
        self.waiters.notify_all()

    def register(self, running: OpenTurn) -> None:
        """Register a turn that runs now, and deliver a stop that came earlier."""
        self.running[running.id] = running
        self.flusher.start()
        if self.begin_waiters:
            self.wake_readers(running.id)
        if running.id in self.early_stops:
            running.interrupt(self.early_stops.pop(running.id))
        if self.unread:
            self.check_stops()

    def wake_readers(self, turn: TurnId) -> None:
        """Wake those that read a turn from the store."""
        for waiter in self.begin_waiters.get(turn, ()):
            waiter.wake()

    def release(self, attempt: TurnId) -> bool:
        """Drop the responsibility for an attempt; return whether it had queued."""
        self.early_stops.pop(attempt, None)
        if self.unread:
            self.unread.discard(attempt)
        self._released.set()
        return self.attempts.pop(attempt, False)

    def wake_all(self) -> None:
        self.waiters.wake_all()
        self.feed.wake_all()
        for live in list(self.live_readers):
            live.wake()

    async def wait_until_drained(self) -> None:
        """Wait until no task here is entering or leaving a turn."""
        while any(id not in self.unfinished and id not in self.doubts for id in self.attempts):
            self._released.clear()
            await self._released.wait()
