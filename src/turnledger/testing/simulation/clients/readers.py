"""Clients that read events of running turns in any process, and reconnect after the last number received."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from turnledger.errors import ConversationDeleted, ConversationExpired, TurnledgerError, TurnNotFound
from turnledger.ledger import Ledger
from turnledger.model import codec
from turnledger.model.event import Event, TurnFinished
from turnledger.model.ids import ConversationId, TurnId
from turnledger.testing.simulation.servers import Scene, Work
from turnledger.testing.simulation.world import LEASE_TIME

PATIENCE = 6
"""Tries to find a turn that does not exist yet."""


@dataclass
class Listener:
    """Received events, each with whether it came from the process that ran the turn: events not yet written
    die with that process."""

    conversation: ConversationId
    turn: TurnId
    received: list[tuple[Event, bool]] = field(default_factory=list)
    is_over: bool = False
    misses: int = 0
    """Tries that found no turn."""
    was_refused: bool = False
    """Whether the conversation was deleted or expired before the end. It may have been restored since."""
    was_taken_over: bool = False
    """Whether another process ended the turn."""

    def receive(self, event: Event, *, in_own_process: bool) -> None:
        self.received.append((event, in_own_process))
        self.is_over = isinstance(event, TurnFinished)

    @property
    def last(self) -> int:
        return self.received[-1][0].number if self.received else 0

    def problems(self, events: Sequence[Event]) -> Iterator[str]:
        """Compare the received events with those stored at the end."""
        numbers = [event.number for event, _ in self.received]
        *earlier, last = [event for event, _ in self.received]
        if any(isinstance(event, TurnFinished) for event in earlier):
            yield f"an event of {self.turn} was received after its end"
        has_end = isinstance(last, TurnFinished)
        # A listener that received unwritten events is past the end when it arrives.
        is_beyond = has_end and self.was_taken_over and last.number <= len(earlier)
        if numbers != list(range(1, len(numbers) + 1)) and not (
            is_beyond and numbers[:-1] == _count(earlier)
        ):
            yield f"the received events of {self.turn} have gaps: {numbers}"
        if not has_end and not self.was_refused:
            yield f"the end of {self.turn} was not received"
        for event, in_own_process in self.received:
            is_known = event.number <= len(events)
            same = is_known and codec.encode(event) == codec.encode(events[event.number - 1])
            if not same and not (in_own_process and self.was_taken_over):
                yield f"event {event.number} of {self.turn} was received otherwise than it is stored"
                return


def _count(events: Sequence[Event]) -> list[int]:
    return list(range(1, len(events) + 1))


class EventReaders:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._wanted: asyncio.Queue[tuple[ConversationId, TurnId]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._opening: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._opening = asyncio.create_task(self._open())

    def follow(self, conversation: ConversationId, turn: TurnId) -> None:
        """Start listeners of a turn that is about to begin; called in the process that runs it."""
        for _ in range(self._scene.random.choice((0, 1, 1, 2))):
            self._wanted.put_nowait((conversation, turn))

    async def finish(self) -> None:
        """Wait until all listeners received the end; record those that do not."""
        if self._opening is not None:
            self._opening.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEASE_TIME * 4)
        world = self._scene.world
        for listener, task in zip(world.listeners, self._tasks, strict=True):
            listener.was_taken_over = listener.turn in world.taken_over - world.enqueued
            if task.done():
                continue
            task.cancel()
            if listener.turn in world.begun_at:
                world.violations.append(f"a listener of {listener.turn} received no end")

    async def _open(self) -> None:
        while True:
            listener = Listener(*await self._wanted.get())
            self._scene.world.listeners.append(listener)
            self._tasks.append(asyncio.create_task(self._listen(listener)))

    async def _listen(self, listener: Listener) -> None:
        random = self._scene.random
        idle = 0
        while not listener.is_over and listener.misses < PATIENCE:
            last = listener.last
            timeout = random.choice((None, None, 0.4, 3.0, 25.0))
            await self._scene.servers.do(self._read(listener), timeout)
            idle = idle + 1 if listener.last == last else 0
            await asyncio.sleep(min(LEASE_TIME, 0.05 * 2**idle))

    def _read(self, listener: Listener) -> Work:
        random, world = self._scene.random, self._scene.world
        most, pace = random.choice((1, 3, 1_000)), random.choice((0.0, 0.0, 0.3))

        async def read(ledger: Ledger) -> None:
            try:
                chat = await ledger.conversation(listener.conversation)
                async for event in chat.events(listener.turn, after=listener.last):
                    is_holder = world.holders.get(listener.turn) == ledger._process.lease
                    listener.receive(event, in_own_process=is_holder)
                    if listener.is_over:
                        continue
                    if len(listener.received) % most == 0:
                        return
                    await asyncio.sleep(pace)
                listener.is_over = True
            except (ConversationDeleted, ConversationExpired):
                listener.is_over = listener.was_refused = True
            except TurnNotFound:
                listener.misses += 1
                if listener.received:
                    world.violations.append(f"{listener.turn} was received, and does not exist")
            except TurnledgerError:
                return

        return read
