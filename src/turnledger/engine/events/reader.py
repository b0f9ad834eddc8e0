"""Event readers: the events of a turn from any number on, wherever and whenever it ran.

A turn that runs here is read from memory, any other from the store, when another process may have written.
Readers do not poll, and never delay the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice

from turnledger.engine.attempt.dead_process import take_over_from
from turnledger.engine.attempt.give_way import ReaderSign
from turnledger.engine.attempt.stored_events import (
    EndedTurnLog,
    RunningTurnLog,
    TurnLogRequest,
    read_turn_log,
)
from turnledger.engine.events.live_log import LiveLog
from turnledger.engine.process import Process, Waiter
from turnledger.errors import LedgerClosed, TurnNotFound
from turnledger.model import event_log
from turnledger.model.event import Event, TurnFinished, TurnStarted
from turnledger.model.event_log import EventReplay
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Attempt, AttemptState

BATCH = 64
"""Events that a reader takes at once before it yields to others."""


def is_shown_live(attempt: Attempt) -> bool:
    """Return whether events are shown before they are stored. Those of durable work are not: another process
    may resume it, and must not send others under the same numbers."""
    return not attempt.is_durable


async def read_events(
    process: Process, owner: str, conversation: ConversationId, turn: TurnId, after: int
) -> AsyncIterator[Event]:
    """Yield the events of a turn numbered above `after`, and always the last one; see Chat.events."""
    with EventReader(process, owner, conversation, turn, after) as reader:
        while batch := await reader.next_batch():
            for event in batch:
                yield event


class EventReader:
    """A reader of one turn. Used once, by one task."""

    def __init__(
        self, process: Process, owner: str, conversation: ConversationId, turn: TurnId, after: int
    ) -> None:
        self._process = process
        self._owner = owner
        self._conversation = conversation
        self._turn = turn
        self._after = after
        self._is_over = False
        self._has_found_turn = False
        self._leaving = ExitStack()
        self._live: LiveLog | None = None
        self._has_more = False
        self._rest: Iterator[Event] | None = None
        self._waiter: Waiter | None = None
        # How far the stored log was read: chunks, and items they refer to.
        self._chunks = self._items = 0
        self._replay: EventReplay | None = None
        self._sign = ReaderSign(process)

    def __enter__(self) -> EventReader:
        self._process.admit_reader()
        self._leaving.callback(self._leave)
        return self

    def _leave(self) -> None:
        self._process.readers -= 1

    def __exit__(self, *_: object) -> None:
        self._leaving.close()

    async def next_batch(self) -> Sequence[Event]:
        """Return the next events as soon as there are any; empty after the last one."""
        while not self._is_over:
            if self._process.is_closed:
                raise LedgerClosed
            batch = await self._next_events()
            if batch:
                self._after = batch[-1].number
                self._is_over = isinstance(batch[-1], TurnFinished)
                return batch
        return ()

    async def _next_events(self) -> Sequence[Event]:
        if self._live is not None or self._attach_here():
            assert self._live is not None  # noqa: S101 - for the type checker
            return await self._from_live(self._live)
        if self._rest is not None:
            return await self._from_end(self._rest)
        return await self._from_store()

    # A turn that runs in this process.

    def _attach_here(self) -> bool:
        """Attach to the turn if it runs in this process."""
        running = self._process.running.get(self._turn)
        if running is None or running.state is not AttemptState.RUNNING:
            return False
        if not is_shown_live(running.attempt):
            return False
        conversation = running.conversation
        if conversation.id != self._conversation or conversation.owner != self._owner:
            return False
        self._live = running.live
        self._live.attach()
        readers = self._process.live_readers
        readers[self._live] = readers.get(self._live, 0) + 1
        self._leaving.callback(self._detach, self._live)
        return True

    def _detach(self, live: LiveLog) -> None:
        live.detach()
        self._process.live_readers[live] -= 1
        if not self._process.live_readers[live]:
            del self._process.live_readers[live]
            self._process.check_unread()

    async def _from_live(self, live: LiveLog) -> Sequence[Event]:
        wakeup = live.wakeup
        assert wakeup is not None  # noqa: S101 - attach sets it
        if self._has_more:
            # Yield first to other readers and to the turn.
            self._has_more = False
            live.wake_soon()
            await wakeup.wait()
            return ()
        batch = live.since(self._after, BATCH)
        self._has_more = len(batch) == BATCH
        if batch or live.end is not None:
            return batch or (live.end,)  # type: ignore[return-value]
        await wakeup.wait()
        return ()

    # A turn that has ended, or runs elsewhere.

    async def _from_end(self, rest: Iterator[Event]) -> Sequence[Event]:
        await asyncio.sleep(0)
        return list(islice(rest, BATCH))

    async def _from_store(self) -> Sequence[Event]:
        process = self._process
        request = TurnLogRequest(
            self._owner, self._conversation, self._turn, self._chunks, self._items, process.clock.due_ms()
        )
        if self._waiter is None:
            # Before the first read, so that no later write is missed.
            self._waiter = self._enlist()
        is_alone = len(process.begin_waiters[self._turn]) == 1
        found = await (
            process.store.read(read_turn_log, request, self._owner)
            if is_alone
            else process.log_reads.take(request)
        )
        if found is None:
            if not self._has_found_turn:
                raise TurnNotFound
            self._is_over = True  # withdrawn from the queue
            return ()
        self._has_found_turn = True
        if isinstance(found, EndedTurnLog):
            self._rest = self._unread(found)
            return ()
        if isinstance(found, RunningTurnLog):
            # Noted at each read, so that the time of a silent holder runs from the first.
            holder = found.holder
            dead = process.watch.dead_among([(holder.lease, holder.beat)])
            await self._sign.give(holder.ref)
            if batch := self._events_in(found):
                return batch
            if dead and not found.has_more:
                await take_over_from(process, holder.ref, dead)
                return ()
        if not isinstance(found, RunningTurnLog) or not found.has_more:
            await self._waiter.wait(process.limits.lease_time / 4)
        return ()

    def _unread(self, found: EndedTurnLog) -> Iterator[Event]:
        """Yield the events that this reader has not received, and always the end."""
        after = self._after
        return (event for event in found.events() if event.number > after or isinstance(event, TurnFinished))

    def _events_in(self, found: RunningTurnLog) -> list[Event]:
        events: list[Event] = []
        if self._replay is None:
            self._replay = EventReplay()
            events.append(TurnStarted(number=1))
        items = found.items
        for chunk in found.chunks:
            count = event_log.count_items(chunk.log)
            events += event_log.replay_chunk(self._replay, chunk, items[:count])
            items = items[count:]
            self._chunks += 1
            self._items += count
        return [event for event in events if event.number > self._after]

    def _enlist(self) -> Waiter:
        process = self._process
        waiter = self._leaving.enter_context(process.waiters.enlist(self._conversation))
        process.begin_waiters.setdefault(self._turn, []).append(waiter)
        self._leaving.callback(self._remove_waiter, waiter)
        return waiter

    def _remove_waiter(self, waiter: Waiter) -> None:
        waiters = self._process.begin_waiters[self._turn]
        waiters.remove(waiter)
        if not waiters:
            del self._process.begin_waiters[self._turn]
