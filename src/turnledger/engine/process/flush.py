"""Flushing: a turn that takes its time writes down what it has told, about twice a second, one row each.

So readers in other processes can follow it, and what it said is not lost with its process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnledger.engine.attempt.end import holds_lane
from turnledger.engine.ports import Sync, Tables
from turnledger.errors import LedgerClosed, StoreError, Superseded
from turnledger.model.ids import BranchId, TurnId

if TYPE_CHECKING:
    from turnledger.engine.process.process import Process
    from turnledger.engine.turn.running_turn import RunningTurn

log = logging.getLogger("turnledger")


@dataclass(frozen=True)
class FlushRequest:
    """One chunk of a log. Repeating the request changes nothing."""

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


class Flushing:
    """The timer that flushes the turns of a process. It runs while turns do, and passes by those that
    began since it last looked: most are over before it comes again."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._timer: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """A turn runs from now on."""
        if self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._run(), name="turnledger flushing")

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.wait((self._timer,))

    async def _run(self) -> None:
        running = self._process.running
        seen = frozenset(running)
        while running:
            await asyncio.sleep(self._process.limits.flush_every)
            # In the order of their begins: that of a set would be another in each process.
            await self.flush([turn for id, turn in running.items() if id in seen])
            seen = frozenset(running)

    async def flush(self, turns: Iterable[RunningTurn] | None = None) -> None:
        """Write down what these turns have told, or all that run here. What fails is tried again the next
        time, and harms no turn; but one that has lost its lane learns of it."""
        due = list(self._process.running.values() if turns is None else turns)
        if len(due) == 1:
            await self._flush(due[0])
        elif due:
            await asyncio.gather(*map(self._flush, due))

    async def _flush(self, running: RunningTurn) -> None:
        request = running.to_flush()
        if request is None:
            return
        try:
            # Like the begin of the turn, it may be lost with the machine: what is told is a draft.
            await self._process.store.transact(flush, request, Sync.PROCESS)
        except Superseded:
            running.lose_lane()
        except LedgerClosed:
            return
        except StoreError as error:
            log.warning("what %s has told is written down later: %s", running.id, error.code)
        except Exception:
            log.exception("what %s has told could not be written down", running.id)
        else:
            running.was_flushed(request)
