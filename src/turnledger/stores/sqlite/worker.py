"""A thread that drives the writer or the reader: whatever is queued while it works is its next batch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from enum import Enum
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol

from turnledger.errors import OutcomeUnknown
from turnledger.stores.sqlite.writer import Job

LARGEST_BATCH = 256
"""Jobs per transaction: the share of the sync that each pays is small by then, and the first still waits
for the last."""

logger = logging.getLogger(__name__)


class Driven(Protocol):
    """What a worker drives."""

    def run_batch(self, jobs: Sequence[Job]) -> None: ...
    def close(self) -> None: ...


class _Signal(Enum):
    WAKE = "wake"  # look at the poll again
    STOP = "stop"  # finish what is queued, then end


class Worker:
    """Owns a thread and what it drives; hands results to the event loop, one call per batch."""

    def __init__(self, name: str, driven: Driven, loop: asyncio.AbstractEventLoop) -> None:
        self._driven = driven
        self._loop = loop
        self._inbox: SimpleQueue[Job | _Signal] = SimpleQueue()
        self.submit: Callable[[Job], None] = self._inbox.put
        self._poll: Callable[[], None] | None = None
        self._poll_every: float | None = None
        # A daemon: a program that forgets to close its ledger must still be able to exit.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poll(self, poll: Callable[[], None], every: float) -> None:
        """Have `poll` called on the thread, between batches, about every so many seconds."""
        self._poll, self._poll_every = poll, every
        self._inbox.put(_Signal.WAKE)

    def stop(self) -> None:
        """Finish what is queued, close what is driven, and wait for the thread to end. Blocks."""
        self._inbox.put(_Signal.STOP)
        self._thread.join()

    def _run(self) -> None:
        polled_at = 0.0
        while (batch := self._next_batch()) is not None:
            if batch:
                self._run_batch(batch)
                self._hand_over(batch)
            if self._poll is not None and self._poll_every is not None:
                now = time.monotonic()
                if now - polled_at >= self._poll_every:
                    polled_at = now
                    self._poll()
        self._driven.close()

    def _run_batch(self, batch: Sequence[Job]) -> None:
        try:
            self._driven.run_batch(batch)
        except BaseException as problem:
            # A bug. Whoever waits must hear of it, and the thread must live for the others.
            for job in batch:
                if job.error is None:
                    job.error = OutcomeUnknown(f"The store failed in an unforeseen way: {problem!r}.")

    def _next_batch(self) -> list[Job] | None:
        """Wait for work; return all there is of it, nothing when it is time to poll, None at the end."""
        inbox = self._inbox
        try:
            first = inbox.get(timeout=self._poll_every)
        except Empty:
            return []
        if not isinstance(first, Job):
            return None if first is _Signal.STOP else []
        batch = [first]
        while len(batch) < LARGEST_BATCH and not inbox.empty():
            more = inbox.get_nowait()
            if isinstance(more, Job):
                batch.append(more)
            else:
                inbox.put(more)  # behind the jobs, where there can be none after STOP
                break
        return batch

    def _hand_over(self, batch: Sequence[Job]) -> None:
        try:
            self._loop.call_soon_threadsafe(_deliver, batch)
        except RuntimeError:
            # The loop was closed without closing the store: nobody is left to hear it.
            logger.warning("results of %d operations came after the event loop was closed", len(batch))


def _deliver(batch: Sequence[Job]) -> None:
    for job in batch:
        future = job.future
        if future is None:
            if job.error is not None:
                logger.warning("a write that nobody waits for failed: %s", job.error)
        elif not future.done():  # its caller may have been cancelled
            if job.error is None:
                future.set_result(job.result)
            else:
                future.set_exception(job.error)
