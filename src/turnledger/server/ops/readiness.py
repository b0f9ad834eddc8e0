"""Readiness: whether turns can run here, tested by a write at most once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from turnledger.errors import LedgerClosed, StoreError, TurnledgerError
from turnledger.server.ops.logs import log

FRESH = 1.0
"""Seconds for which a result is valid."""
PATIENCE = 2.0
"""Seconds that the store may take to answer before it counts as unavailable."""


class NotReady(msgspec.Struct, frozen=True):
    """Why no turn should be sent here: a word for programs, and a sentence for people. File names are only in
    the log."""

    code: str
    message: str


SHUTTING_DOWN = NotReady("shutting_down", "The server is shutting down. Use another one.")
NO_ANSWER = NotReady("store_unavailable", "The store does not respond. Wait, or check its disk.")


class Readiness:
    """The state of the store. `probe` writes to it, and raises if that fails."""

    def __init__(
        self, probe: Callable[[], Awaitable[None]], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._probe = probe
        self._now = now
        self._probe_task: asyncio.Task[None] | None = None
        self._probed_at: float | None = None
        self._problem: NotReady | None = None

    async def problem(self) -> NotReady | None:
        """Return why the store cannot be written to; None if it can. All callers share one probe at a time,
        also one that hangs."""
        if self._probed_at is not None and self._now() - self._probed_at < FRESH:
            return self._problem
        if self._probe_task is None:
            self._probe_task = asyncio.create_task(self._run_probe(), name="turnledger probe")
        done, _ = await asyncio.wait((self._probe_task,), timeout=PATIENCE)
        if not done:
            self._set_problem(NO_ANSWER, f"no answer within {PATIENCE:g} seconds")
        return self._problem

    async def _run_probe(self) -> None:
        try:
            await self._probe()
        except (StoreError, LedgerClosed) as problem:
            self._set_problem(reason_of(problem), str(problem))
        except Exception as problem:
            log.error("internal_error", exc_info=problem)
            self._set_problem(reason_of(StoreError()), type(problem).__name__)
        else:
            self._set_problem(None, "")
        finally:
            self._probed_at = self._now()
            self._probe_task = None

    def _set_problem(self, problem: NotReady | None, details: str) -> None:
        if problem is not None and problem != self._problem:
            log.error("not_ready", code=problem.code, details=details)
        elif problem is None and self._problem is not None:
            log.info("ready_again")
        self._problem = problem


def reason_of(problem: TurnledgerError) -> NotReady:
    """Describe a problem of the store by a text that names no files."""
    message = problem.for_clients() if isinstance(problem, StoreError) else str(type(problem)())
    return NotReady(problem.code, message)
