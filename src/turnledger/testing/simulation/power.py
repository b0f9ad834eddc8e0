"""Power: the machine of a schedule loses it now and then, and with it every unsynced write and all processes.

What a client was answered or shown before must be there when the power returns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any

from turnledger.engine.ports import ClockMark, Tables
from turnledger.engine.process import FlushRequest
from turnledger.engine.turn.request import BeginRequest
from turnledger.ledger import OWNER
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import ConversationId, TurnId
from turnledger.testing.machine import Machine
from turnledger.testing.simulation.world import World

SHARE = 0.2
"""How many schedules are on a machine that loses power."""


@dataclass
class ClientAction:
    """What a client has asked for, and the last write that its answer rests on."""

    name: str
    last_write: int = 0


_action = ContextVar[ClientAction | None]("action", default=None)


class Power:
    """Decides when it fails: when a client has just been answered, at a crash, and in between."""

    def __init__(self, random: Random, machine: Machine, world: World) -> None:
        self.has_failed = False
        """Whether it did since somebody looked at what is left."""
        self.is_steady = False
        """Whether it fails no more."""
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
        """Note that somebody was given the result of a write."""
        action = _action.get()
        if action is not None and self._machine.writes != before and self._is_answered(request):
            action.last_write = self._machine.writes

    def _is_answered(self, request: Any) -> bool:
        """Whether a client may be told of this write: not of a draft, nor of notes on deliveries or clocks,
        nor of words made findable (int, str), which is done again; nor of a begin, unless it moved the
        conversation. A turn that has begun is told of when it ends."""
        if isinstance(request, BeginRequest):
            return self._world.moves[request.attempt] > 0
        return not isinstance(request, FlushRequest | ClockMark | int | str | tuple)

    def begin_action(self, name: str) -> None:
        """Note that the current task, with all that it starts, does what a client asks for."""
        _action.set(ClientAction(name))

    def end_action(self) -> None:
        """Note that the client has its answer."""
        action = _action.get()
        if action is not None and action.last_write:
            self._answered.append(action)

    def cut(self) -> None:
        """Lose all that is not synced. The processes are the caller's to kill."""
        machine, world = self._machine, self._world
        for action in self._answered:
            if action.last_write > machine.synced_writes:
                world.violations.append(f"an answered {action.name} was lost with the power")
        self._answered.clear()
        if machine.writes != machine.synced_writes:
            world.restore(self._durable)
        machine.lose_power()
        for listener in world.listeners:
            if not listener.is_over:
                listener.received.clear()  # a draft may be lost
        self.has_failed = True


async def find_losses(tables: Tables, world: World) -> list[str]:
    """What clients were answered or shown, and is not there when the power returns."""
    told = {(seen.conversation, seen.turn): seen.body for seen in world.client_views}
    return [problem async for problem in _find_losses(tables, {**world.shown_turns, **told})]


async def _find_losses(
    tables: Tables, told: dict[tuple[ConversationId | None, TurnId | None], bytes]
) -> AsyncIterator[str]:
    for (conversation, id), body in told.items():
        if conversation is None or id is None:
            continue
        found = await tables.conversation(OWNER, conversation)
        if found is None:
            yield f"{conversation} was acknowledged, and lost with the power"
        elif found.state is ConversationState.LIVE:
            turn = await tables.turn(OWNER, id)
            if turn is None or turn.body != body:
                yield f"{id} was acknowledged or shown, and lost with the power"
