"""A worker as its supervisor sees it: a process, its reports, and the orders to it."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Self

from turnledger.errors import TurnledgerError
from turnledger.server.listen.channel import Channel, Failed, Handover, Order, Ready, reports

BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]\n"
    "from turnledger.server.listen.worker import main; main(int(sys.argv[1]))"
)
"""Run by the interpreter, which finds modules where we do, whatever is in the current folder."""
_HELD = {signal.SIGINT, signal.SIGHUP}


class WorkerFailed(TurnledgerError):
    """A worker could not start."""

    code = "worker_failed"


def failed_with(code: str, message: str) -> WorkerFailed:
    """The error of a worker, under its own code."""
    kind: type[WorkerFailed] = type("WorkerFailed", (WorkerFailed,), {"code": code})
    return kind(message)


class WorkerProcess:
    """Started with `start`. It has ended when `poll` says so; nothing else may ask the system."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, part: int) -> None:
        self._process = process
        self._channel = channel
        self.part = part
        self.began_at = asyncio.get_running_loop().time()
        self.heard_at = self.began_at
        """Its last sign of life."""
        self.is_spent = False
        """Whether it takes too much memory, and is to be replaced."""
        self.is_leaving = False
        """Whether it was told to end."""
        self.ended = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, hand_over: Callable[[], Handover], environ: Mapping[str, str]) -> Self:
        """Start the same interpreter with the same module path, and hand over to it. Raises what `hand_over`
        does, and OSError; then nothing was started."""
        ours, theirs = socket.socketpair()
        with theirs:
            channel = await Channel.over(ours)
            # From here on nothing waits: whoever is cancelled has a process to look after, or there is none.
            try:
                handover = hand_over()
                process = _start(theirs.fileno(), (handover.listening, handover.board), environ)
            except BaseException:
                await channel.close()
                raise
        channel.send(handover)
        return cls(process, channel, handover.part)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, or the negative number of the signal that killed it."""
        return self._process.returncode

    async def ready(self) -> Ready:
        """Wait until it accepts requests. Raises WorkerFailed, or ModuleNotFoundError for a missing
        package."""
        report = await self._channel.receive(reports)
        if isinstance(report, Ready):
            return report
        if report is None:
            await self.ended.wait()
            told = f"A worker ended before it could be asked ({self.code}). The log above may say why."
            raise WorkerFailed(told)
        if not isinstance(report, Failed):
            raise WorkerFailed("A worker reported out of order.")
        if report.missing is not None:
            raise ModuleNotFoundError(report.message, name=report.missing)
        raise failed_with(report.code, report.message)

    async def listen(self) -> None:
        """Note the signs of life of a ready worker until it is gone."""
        while await self._channel.receive(reports) is not None:
            self.heard_at = asyncio.get_running_loop().time()

    def tell(self, order: Order) -> None:
        """Send an order; does nothing if it is dead."""
        self._channel.send(order)

    def end(self, order: Order, within: float) -> None:
        """Order it to end; kill it if it has not ended within so many seconds."""
        self.is_leaving = True
        self.tell(order)
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(within, self.kill)

    def kill(self) -> None:
        self._process.kill()

    def poll(self) -> bool:
        """Whether it has just been found to have ended; sets `ended`."""
        if self.ended.is_set() or self._process.poll() is None:
            return False
        self.ended.set()
        return True

    async def close(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        await self._channel.close()


def _start(channel: int, others: tuple[int, ...], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A Ctrl-C in the terminal shall not end it before it has learned to leave that to us.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", BOOT, str(channel), *sys.path],
            pass_fds=(channel, *others),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=dict(environ),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
