"""The server process: its event loop, its socket, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from types import FrameType

import uvicorn

from turnledger.engine.limits import Limits
from turnledger.hosting import Host
from turnledger.ledger import Ledger
from turnledger.server.access.guard import is_loopback
from turnledger.server.app import App, make_app
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import MIN_WORKER_BYTES, ServerLimits, Settings
from turnledger.server.listen.accept import Acceptor
from turnledger.server.listen.channel import ReadyReport
from turnledger.server.listen.protocol import BoundedHttp, bounded_http
from turnledger.server.listen.socket import BACKLOG, allow_open_files, bind, open_files_for, url_of
from turnledger.server.models.models import make_models
from turnledger.server.ops.counters import Counters, LocalCounters, WorkerContext
from turnledger.server.ops.logs import log
from turnledger.server.ops.watchdog import Remedy, Watchdog, machine_bytes

CLEANUP_TIME = 5.0
"""Seconds in which cancelled requests should end."""
FLUSH_TIME = 1.0
"""Seconds for clients to read the end of their responses."""
LINGER_TIME = 2.0
"""Seconds for clients to send a last request on their connection to a worker that is replaced."""
MEMORY_SHARE = 3 / 4
"""Share of the machine's memory for all workers together by default."""
RESTART = 75
"""Exit code of a server that exits to be restarted: "try again" in sysexits.h."""
DATE_EVERY = 1.0
"""Seconds between updates of the Date header."""

Announce = Callable[[str, ReadyReport], None]
"""Called with the server's URL once it accepts requests."""


def serve(settings: Settings, environ: Mapping[str, str], announce: Announce) -> int:
    """Serve until the process is signalled to end; return its exit code. Raises InvalidSettings or a
    StoreError if it cannot start."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings, environ, announce))


async def _serve(settings: Settings, environ: Mapping[str, str], announce: Announce) -> int:
    with bind(settings) as listener:
        async with open_app(settings, environ, listener) as app:
            ready = ReadyReport(app.service.models.names, app.is_tokenless)
            return await serve_app(app, listener, lambda url: announce(url, ready))


@asynccontextmanager
async def open_app(
    settings: Settings,
    environ: Mapping[str, str],
    listener: socket.socket,
    worker_context: WorkerContext | None = None,
) -> AsyncIterator[App]:
    """Open the store, and make the application of the settings. Raises a StoreError if the store cannot be
    opened, and InvalidSettings if the server would be open to everyone."""
    allow_open_files(open_files_for(settings.limits.requests))
    ledger = await Ledger.open(settings.store, limits=engine_limits(settings))
    try:
        is_tokenless = await check_exposure(ledger, settings, listener)
        models = make_models(settings, environ)
        try:
            app = make_app(ledger, models, settings, worker_context)
            app.is_tokenless = is_tokenless
            try:
                yield app
            finally:
                await app.background.close()
                app.service.audit.close()
        finally:
            await models.close()
    finally:
        await ledger.close()


def engine_limits(settings: Settings) -> Limits:
    """Return the ledger's part of a server's limits. Histories and database pages share the memory."""
    defaults, limits, chats = Limits(), settings.limits, settings.chats
    share = limits.cached_bytes / ServerLimits().cached_bytes
    return Limits(
        queue_length=limits.queue_length,
        queue_wait=limits.queue_wait,
        owner_bytes=limits.owner_bytes,
        owner_chats=limits.owner_chats,
        input_items=limits.input_items,
        turn_bytes=limits.turn_bytes,
        readers=limits.streams + limits.turns,  # the ledger must not refuse a reader that the server admits
        **chats.limits,
        retain_for=chats.retain_for,
        retain_bytes=chats.retain_bytes,
        cached_bytes=int(defaults.cached_bytes * share),
        page_bytes=int(defaults.page_bytes * share),
    )


def worker_ceiling(settings: Settings) -> int | None:
    """Return the memory limit of a worker: from the settings, or its share of the machine's; None if that is
    unknown."""
    if settings.limits.worker_bytes is not None:
        return settings.limits.worker_bytes
    memory = machine_bytes()
    return None if memory is None else max(int(memory * MEMORY_SHARE / settings.workers), MIN_WORKER_BYTES)


async def check_exposure(ledger: Ledger, settings: Settings, listener: socket.socket) -> bool:
    """Return whether there is no token. Raises InvalidSettings if other machines could then reach the
    server."""
    address = listener.getsockname()[0]
    if (await Host(ledger).tokens.find(None)).any_tokens:
        return False
    if settings.insecure or is_loopback(address):
        return True
    raise InvalidSettings(
        f"--host: {address} is reachable from outside without a token. Run `turnledger tokens create`, "
        "listen on 127.0.0.1, or pass --insecure."
    )


async def serve_app(app: App, listener: socket.socket, announce: Callable[[str], None]) -> int:
    """Serve an application at a bound socket until the process is signalled. Open requests then have the
    grace time to end; after it, or on a second signal, they are cancelled. Return the exit code: 0, or
    RESTART if the server ended itself."""
    server = Server(app, lambda: announce(url_of(listener)))
    await server.serve([listener])
    return server.code


class Server(uvicorn.Server):
    """uvicorn with another shutdown: its own polls ten times a second, and then waits another tenth of a
    second for nothing."""

    def __init__(self, app: App, on_start: Callable[[], None], counters: Counters | None = None) -> None:
        config = uvicorn.Config(
            app,
            loop="none",
            http=bounded_http(app.service.settings.limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=None,
        )
        super().__init__(config)
        self.servers = []
        self._app = app
        self._on_start = on_start
        self._counters = counters or LocalCounters()
        self._loop = asyncio.get_running_loop()
        self._is_over = asyncio.Event()
        self._end_task: asyncio.Task[None] | None = None
        self.code = 0

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with Watchdog(worker_ceiling(self._app.service.settings), self.remedy()).watch():
            await super().serve(sockets)

    def remedy(self) -> Remedy | None:
        """Return what to do when this process grows or stalls; None where a supervisor handles that."""
        stall_wait = self._app.service.settings.limits.stall_wait
        return Remedy(
            partial(self._loop.call_soon_threadsafe, self.request_restart),
            partial(os._exit, RESTART),
            stall_wait,
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.listen(sockets)
        self._app.background.start()
        _freeze_garbage_collection()
        self._on_start()

    async def listen(self, sockets: list[socket.socket] | None) -> None:
        """Accept connections from now on; each worker its share."""
        if sys.platform == "win32":
            await super().startup(sockets)
            return
        # Not by the loop: libuv accepts and silently closes connections when it runs out of files.
        acceptor: Acceptor
        settings = self._app.service.settings
        kind = bounded_http(settings.limits)

        class Connection(kind):  # type: ignore[valid-type, misc]
            def connection_made(self, transport: asyncio.Transport) -> None:
                acceptor.connection_opened()
                super().connection_made(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                acceptor.connection_closed()

        def connection() -> Connection:
            return Connection(self.config, self.server_state, self.lifespan.state)

        listener = (sockets or [])[0]
        listener.listen(BACKLOG)
        acceptor = Acceptor(listener, connection, self._counters, settings.workers)
        self.servers = [acceptor]  # type: ignore[list-item]
        self.started = True

    async def main_loop(self) -> None:
        """Update the Date header until the server ends."""
        while not self._is_over.is_set():
            await self.on_tick(0)
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_EVERY):
                    await self._is_over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and close each open one after its response."""
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self._end_task is not None:
            await self._end_task
        for server in self.servers:
            await server.wait_closed()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A signal may arrive between any two instructions; handle it between two callbacks.
        self._loop.call_soon_threadsafe(self.handle_signal, signal.Signals(sig))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            if threading.current_thread() is not threading.main_thread() or not _dies_on_hangup():
                yield
                return
            signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def handle_signal(self, number: signal.Signals) -> None:
        """Handle a signal: the first ends the server, the second cancels open requests. A closed terminal may
        send several."""
        if self._end_task is None or number not in (signal.SIGINT, signal.SIGTERM):
            self.end()
        else:
            log.warning("signalled_again")
            self.cancel_requests()

    def end(self) -> None:
        """Accept no more requests, and end when the open ones have."""
        self._is_over.set()
        if self._end_task is None:
            log.info("shutting_down", grace=self._app.service.settings.grace)
            self._end_task = self._loop.create_task(self._end())

    def request_restart(self) -> None:
        """Shut down with the exit code that requests a restart."""
        if self._end_task is None:
            self.code = RESTART
            self.end()

    def leave(self) -> None:
        """End unnoticed by clients while other workers listen at the same socket: accept no more connections,
        and give open ones time for a last request."""
        if self._end_task is None:
            log.info("leaving", grace=self._app.service.settings.grace)
            self._end_task = self._loop.create_task(self._leave())

    def cancel_requests(self) -> None:
        self._app.cancel_requests()

    async def _leave(self) -> None:
        for server in self.servers:
            server.close()
        self._app.close_connections()
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedHttp) and connection.is_responding:
                connection.shutdown()  # after its response
        await self._wait_closed(LINGER_TIME)
        self._is_over.set()
        await self._end()

    async def _end(self) -> None:
        if not await self._app.drain(self._app.service.settings.grace, CLEANUP_TIME):
            log.error("requests_do_not_end")
        await self._wait_closed(FLUSH_TIME)
        # A client that has not read its response must not delay the server any longer.
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _wait_closed(self, patience: float) -> None:
        """Wait up to `patience` seconds until all connections are closed."""
        deadline = self._loop.time() + patience
        # uvicorn's set does not report changes.
        while self.server_state.connections and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _dies_on_hangup() -> bool:
    """Return whether SIGHUP would kill this process; not under nohup, or in a worker."""
    return hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not available for Windows
        return None
    return uvloop.new_event_loop


def _freeze_garbage_collection() -> None:
    """Exclude modules and settings, which are permanent, from garbage collection. All threads wait for a
    collection: the usual ones visit at most 20,000 new objects, and one of everything is rare."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 4, 1_000)
