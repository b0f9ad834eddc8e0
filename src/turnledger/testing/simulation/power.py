"""Power loss: the machine loses all processes and every unsynced write.

Answers that clients received before, and turns that they were shown, must exist when the power returns.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any

from turnledger.engine.ports import Tables
from turnledger.engine.process import FlushRequest
from turnledger.engine.tables.maintenance import ClockMark
from turnledger.engine.turn.begin import BeginRequest
from turnledger.model.conversation import ConversationState
from turnledger.testing.machine import Machine, MemoryMachine
from turnledger.testing.simulation.world import World

SHARE = 0.2
"""Share of schedules on a machine that loses power."""


@dataclass
class ClientAction:
    """An action of a client, and the last write that its answer depends on."""

    name: str
    last_write: int = 0


_action = ContextVar[ClientAction | None]("action", default=None)


class Power:
    def __init__(self, random: Random, machine: Machine, world: World) -> None:
        self.has_failed = False
        """Whether it failed since the last check for losses."""
        self.is_steady = False
        self._random = random
        self._machine = machine
        self._world = world
        self._durable = world.snapshot()
        self._answered: list[ClientAction] = []

    def should_fail(self, likelihood: float) -> bool:
        return not self.is_steady and self._random.random() < likelihood

    def before_write(self) -> int:
        if self._machine.writes == self._machine.synced_writes:
            self._durable = self._world.snapshot()
        return self._machine.writes

    def after_write(self, before: int, request: Any) -> None:
        """Record that the current action depends on this write."""
        action = _action.get()
        if action is not None and self._machine.writes != before and self._is_answered(request):
            action.last_write = self._machine.writes

    def _is_answered(self, request: Any) -> bool:
        """Return whether a client may learn of this write: not of drafts, of notes on deliveries or clocks,
        or of indexed words (int, str), which are indexed again; of a begin only if it moved the
        conversation."""
        if isinstance(request, BeginRequest):
            return self._world.moves[request.attempt] > 0
        return not isinstance(request, FlushRequest | ClockMark | int | str | list)

    def begin_action(self, name: str) -> None:
        """Record that the current task, with the tasks it starts, runs an action of a client."""
        _action.set(ClientAction(name))

    def end_action(self) -> None:
        """Record that the client received its answer."""
        action = _action.get()
        if action is not None and action.last_write:
            self._answered.append(action)

    def cut(self) -> None:
        """Lose all unsynced writes. The caller kills the processes."""
        self._note_losses()
        self._machine.lose_power()

    def fail_over(self) -> None:
        """Lose all unsynced writes, and no process."""
        assert isinstance(self._machine, MemoryMachine)
        world = self._world
        begun, runs, stops = set(world.begun_at), world.runs, dict(world.recorded_stops)
        self._note_losses()
        self._machine.fail_over()
        world.has_failed_over = True
        world.runs = runs  # they go on
        lost = begun - world.begun_at.keys()
        world.taken_over |= lost
        world.lost_stops |= {id: stops[id] for id in stops.keys() - world.recorded_stops.keys()}
        world.lost_begins |= {world.requests[each].token for each in lost}

    def _note_losses(self) -> None:
        machine, world = self._machine, self._world
        for action in self._answered:
            if action.last_write > machine.synced_writes:
                world.violations.append(f"an answered {action.name} was lost with the power")
        self._answered.clear()
        if machine.writes != machine.synced_writes:
            world.restore(self._durable)
        for listener in world.listeners:
            if not listener.is_over:
                listener.received.clear()  # a draft may be lost
        self.has_failed = True


async def find_losses(tables: Tables, world: World) -> list[str]:
    """Find acknowledged or shown turns that are missing when the power returns."""
    kept = dict(world.shown_turns)
    for view in world.client_views:
        if view.answer is not None and view.conversation is not None:
            kept[view.conversation, view.answer.id] = view.answer.body
    lost = []
    for (conversation, id), body in kept.items():
        found = await tables.conversation(conversation)
        if found is None:
            lost.append(f"{conversation} was acknowledged, and lost with the power")
        elif found.state is ConversationState.LIVE:
            turn = await tables.turn(id)
            if turn is None or turn.body != body:
                lost.append(f"{id} was acknowledged or shown, and lost with the power")
    return lost
