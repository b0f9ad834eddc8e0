"""One worker of several: a process that a supervisor started, and that ends with it.

It inherits the listening socket, the shared counters, and one end of a channel for everything else: no
settings are on the command line or in a file.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

from turnledger.errors import TurnledgerError
from turnledger.hosting import Host
from turnledger.ledger import Ledger
from turnledger.server.listen.channel import (
    NOT_STARTED,
    Channel,
    FailureReport,
    Handover,
    Heartbeat,
    Order,
    ReadyReport,
    handovers,
    orders,
)
from turnledger.server.listen.serve import Server, loop_factory, open_app
from turnledger.server.ops.counters import SharedCounters, WorkerContext
from turnledger.server.ops.logs import configure, log
from turnledger.server.ops.metrics import Metrics
from turnledger.server.ops.watchdog import CHECK_EVERY

REFRESH_EVERY = 1.0
"""Seconds between updates of the gauges that other workers also report."""


def main(channel: int) -> None:
    # A terminal sends these to all processes at once. The supervisor decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        has_served = runner.run(_work(socket.socket(fileno=channel)))
    sys.exit(0 if has_served else NOT_STARTED)


async def _work(end: socket.socket) -> bool:
    end.set_inheritable(False)
    channel = await Channel.open(end)
    try:
        handover = await channel.receive(handovers)
        if handover is not None:
            await Worker(channel, handover).run()
        return handover is not None
    except ModuleNotFoundError as problem:
        channel.send(FailureReport("missing", str(problem), problem.name))
    except TurnledgerError as problem:
        channel.send(FailureReport(problem.code, str(problem)))
    except OSError as problem:
        channel.send(FailureReport("worker_failed", f"A worker could not start: {problem}"))
    finally:
        await channel.close()
    return False


class Worker:
    def __init__(self, channel: Channel, handover: Handover) -> None:
        self._channel = channel
        self._handover = handover
        self._is_orphan = False

    async def run(self) -> None:
        """Serve until ordered to end, or until the supervisor is gone. Raises if it cannot start."""
        handover, folder = self._handover, Path(self._handover.metrics_folder)
        configure(handover.log_format, handover.settings.log_level, sys.stderr, worker=handover.part)
        for descriptor in (handover.listening, handover.counters):
            os.set_inheritable(descriptor, False)  # subprocesses must not inherit them
        counters = SharedCounters(handover.counters, handover.part)
        try:
            with socket.socket(fileno=handover.listening) as listener:
                await self._serve(listener, WorkerContext(counters, folder, handover.part))
        finally:
            counters.close()
            if self._is_orphan:
                # No supervisor is left to do it, and other workers keep their open files.
                shutil.rmtree(folder, ignore_errors=True)

    async def _serve(self, listener: socket.socket, worker_context: WorkerContext) -> None:
        async with open_app(self._handover.settings, os.environ, listener, worker_context) as app:
            ready = ReadyReport(app.service.models.names, app.is_tokenless)
            server = WorkerServer(app, lambda: self._channel.send(ready), worker_context.counters)
            # Until it listens, the default handler applies; then the server's; afterwards it is ending.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tasks = [
                asyncio.create_task(
                    self._follow_orders(server, app.service.ledger), name="turnledger orders"
                ),
                asyncio.create_task(_refresh(app.service.metrics), name="turnledger metrics"),
                asyncio.create_task(self._report(), name="turnledger signs of life"),
            ]
            try:
                await server.serve([listener])
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY)
            self._channel.send(Heartbeat())

    async def _follow_orders(self, server: Server, ledger: Ledger) -> None:
        while (order := await self._channel.receive(orders)) is not None:
            match order:
                case Order.END:
                    server.end()
                case Order.LEAVE:
                    server.leave()
                case Order.HURRY:
                    server.cancel_requests()
                case Order.RECOVER:
                    if not await Host(ledger).recover():
                        log.info("recovered", turns=0)  # by another process
        self._is_orphan = True
        log.warning("supervisor_gone")
        server.end()


class WorkerServer(Server):
    """A server that shares its socket, and that only its supervisor hurries, never a signal."""

    def remedy(self) -> None:
        """Return None: the supervisor replaces this process."""

    def handle_signal(self, number: signal.Signals) -> None:
        """Ignore repeats: service managers send SIGTERM to all processes at once."""
        if number is signal.SIGTERM:
            self.end()


async def _refresh(metrics: Metrics) -> None:
    while True:
        metrics.refresh()
        await asyncio.sleep(REFRESH_EVERY)
