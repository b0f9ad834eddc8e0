"""Listening: clients that read what turns tell while they run, in any process, and come back when cut off,
after the last number that they heard."""

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
"""How often a listener asks for a turn of which nothing is there yet."""


@dataclass
class Listener:
    """What was heard, and whether that was in the very process that ran the turn: what is told there and not
    yet written down dies with it."""

    conversation: ConversationId
    turn: TurnId
    received: list[tuple[Event, bool]] = field(default_factory=list)
    is_over: bool = False
    misses: int = 0
    """How often there was no such turn, or not yet."""
    was_refused: bool = False
    """Whether the conversation was deleted, or expired, before the end was heard. What was deleted may have
    been restored since."""
    was_taken_over: bool = False
    """Whether somebody else than its holder ended the turn."""

    def receive(self, event: Event, *, in_own_process: bool) -> None:
        self.received.append((event, in_own_process))
        self.is_over = isinstance(event, TurnFinished)

    @property
    def last(self) -> int:
        """The number of the last event that was heard."""
        return self.received[-1][0].number if self.received else 0

    def problems(self, events: Sequence[Event]) -> Iterator[str]:
        """What is wrong with what was heard, of a turn of which these events can be read at the end."""
        numbers = [event.number for event, _ in self.received]
        *told, last = [event for event, _ in self.received]
        if any(isinstance(event, TurnFinished) for event in told):
            yield f"something was heard of {self.turn} after its end"
        has_end = isinstance(last, TurnFinished)
        # Who heard what was never written down is beyond the end when it comes.
        is_beyond = has_end and self.was_taken_over and last.number <= len(told)
        if numbers != list(range(1, len(numbers) + 1)) and not (is_beyond and numbers[:-1] == _count(told)):
            yield f"what was heard of {self.turn} has gaps: {numbers}"
        if not has_end and not self.was_refused:
            yield f"the end of {self.turn} was not heard"
        for event, in_own_process in self.received:
            is_known = event.number <= len(events)
            same = is_known and codec.encode(event) == codec.encode(events[event.number - 1])
            if not same and not (in_own_process and self.was_taken_over):
                yield f"event {event.number} of {self.turn} was heard otherwise than it is read"
                return


def _count(events: Sequence[Event]) -> list[int]:
    return list(range(1, len(events) + 1))


class EventReaders:
    """The listeners of a schedule."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._wanted: asyncio.Queue[tuple[ConversationId, TurnId]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._opening: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._opening = asyncio.create_task(self._open())

    def follow(self, conversation: ConversationId, turn: TurnId) -> None:
        """Have a turn listened to that is about to begin; called in whatever process runs it."""
        for _ in range(self._scene.random.choice((0, 1, 1, 2))):
            self._wanted.put_nowait((conversation, turn))

    async def finish(self) -> None:
        """Wait until all have heard the end, and note who does not."""
        if self._opening is not None:
            self._opening.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEASE_TIME * 4)
        world = self._scene.world
        for listener, task in zip(world.listeners, self._tasks, strict=True):
            listener.was_taken_over = listener.turn in world.taken_over
            if task.done():
                continue
            task.cancel()
            if listener.turn in world.begun_at:
                world.violations.append(f"a reader of {listener.turn} came to no end")

    async def _open(self) -> None:
        while True:
            listener = Listener(*await self._wanted.get())
            self._scene.world.listeners.append(listener)
            self._tasks.append(asyncio.create_task(self._listen(listener)))

    async def _listen(self, listener: Listener) -> None:
        random = self._scene.random
        idle = 0
        while not listener.is_over and listener.misses < PATIENCE:
            heard = listener.last
            timeout = random.choice((None, None, 0.4, 3.0, 25.0))
            await self._scene.servers.do(self._read(listener), timeout)
            idle = idle + 1 if listener.last == heard else 0
            await asyncio.sleep(min(LEASE_TIME, 0.05 * 2**idle))

    def _read(self, listener: Listener) -> Work:
        """Read on from the last number, for a while."""
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
                    world.violations.append(f"{listener.turn} was heard, and is not there")
            except TurnledgerError:
                return

        return read
