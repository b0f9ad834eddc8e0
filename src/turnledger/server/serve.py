"""Running the server: a socket, a loop, and an end that leaves nothing half."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
from collections.abc import Callable, Mapping
from types import FrameType

import uvicorn

from turnledger.engine.limits import Limits
from turnledger.ledger import Ledger
from turnledger.server.app import App, make_app
from turnledger.server.bounded_http import bounded_http
from turnledger.server.guard import is_loopback
from turnledger.server.logs import log
from turnledger.server.models import make_models
from turnledger.server.open_files import allow_open_files, needed_for
from turnledger.server.settings import ServerLimits, Settings
from turnledger.server.settings_file import InvalidSettings

CLEANING = 5.0
"""Seconds in which cancelled requests have ended, unless something is badly wrong."""
FLUSHING = 1.0
"""Seconds that clients have to read the last of their answers."""
VANISHED = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
"""After so many seconds of silence the other end is asked, every so often, so many times, whether it is still
there; what was sent to it must be acknowledged within so many milliseconds."""

Announce = Callable[[str, list[str]], None]
"""Called with the server's URL and the names of its models once it can be asked."""


def serve(settings: Settings, environ: Mapping[str, str], announce: Announce) -> None:
    """Serve until the process is told to end. Raises InvalidSettings or a StoreError if it cannot begin."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, environ, announce))


async def _serve(settings: Settings, environ: Mapping[str, str], announce: Announce) -> None:
    with bind(settings) as listening:
        allow_open_files(needed_for(settings.limits.requests))
        ledger = await Ledger.open(settings.store, limits=engine_limits(settings.limits))
        try:
            await check_guarded(ledger, settings, listening)
            models = make_models(settings, environ)
            try:
                app = make_app(ledger, models, settings)
                await serve_app(app, listening, lambda url: announce(url, models.names))
            finally:
                await models.close()
        finally:
            await ledger.close()


def engine_limits(limits: ServerLimits) -> Limits:
    """What the ledger is told of a server's limits. Of the memory for histories, each form has its share."""
    usual = Limits()
    share = limits.cached_bytes / (usual.cached_bytes + usual.chat_bytes + usual.shown_bytes)
    return Limits(
        queue_length=limits.queue_length,
        queue_wait=limits.queue_wait,
        readers=limits.readers,
        cached_bytes=int(usual.cached_bytes * share),
        chat_bytes=int(usual.chat_bytes * share),
        shown_bytes=int(usual.shown_bytes * share),
    )


async def check_guarded(ledger: Ledger, settings: Settings, listening: socket.socket) -> None:
    """Raise InvalidSettings where other machines could reach a server that asks nobody for a token."""
    bound = listening.getsockname()[0]
    if settings.insecure or is_loopback(bound) or (await ledger.tokens.find(None)).any_tokens:
        return
    raise InvalidSettings(
        f"--host: other machines can reach {bound}, and there is no token yet to tell users apart. Make one "
        "(turnledger tokens create --help), listen at 127.0.0.1, or say --insecure if everybody who reaches "
        "it may use it."
    )


async def serve_app(app: App, listening: socket.socket, announce: Callable[[str], None]) -> None:
    """Serve an application at a bound socket until the process is told to end: then open requests may end
    within the grace time, and are cancelled after it or when the process is told again."""
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
    server = _Server(config, app, lambda: announce(url_of(listening)))
    await server.serve(sockets=[listening])
    await server.ended()


class _Server(uvicorn.Server):
    """uvicorn, but for how it ends."""

    def __init__(self, config: uvicorn.Config, app: App, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._on_start = on_start
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        _spare_what_stays()
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A signal may come between any two instructions; what it asks for is done between two callbacks.
        self._loop.call_soon_threadsafe(self._told_to_end)

    def _told_to_end(self) -> None:
        self.should_exit = True
        if self._ending is None:
            log.info("shutting_down", grace=self._app.service.settings.grace)
            self._ending = self._loop.create_task(self._end())
        else:
            log.warning("told_again")
            self._app.hurry()

    async def _end(self) -> None:
        if not await self._app.drain(self._app.service.settings.grace, CLEANING):
            log.error("requests_do_not_end")
        await self._flushed()
        # Whoever has not read his answer by now holds up nobody any longer.
        self.force_exit = True
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _flushed(self) -> None:
        deadline = self._loop.time() + FLUSHING
        # The set is uvicorn's, which tells nobody of its changes.
        while self.server_state.connections and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def ended(self) -> None:
        """Wait until all requests have ended."""
        if self._ending is not None:
            await self._ending


def bind(settings: Settings) -> socket.socket:
    """A socket bound to where the settings say; raises InvalidSettings with the remedy if that fails."""
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise InvalidSettings(f"--host: {host} is not known. Listen at 127.0.0.1, or ::1.") from None
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _notice_the_vanished(listening)
        listening.bind(address)
    except OSError as problem:
        listening.close()
        raise InvalidSettings(_not_bound(problem, host, port)) from None
    return listening


def _notice_the_vanished(listening: socket.socket) -> None:
    """Have the system find out when the machine at the other end of a connection is no more: it says nothing
    by itself. What is set here holds for every connection that comes."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in VANISHED.items():
        option = getattr(socket, name, None)  # not every system has them all
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


def _not_bound(problem: OSError, host: str, port: int) -> str:
    if problem.errno == errno.EADDRINUSE:
        return (
            f"--port: {port} is in use. Is a server running already? Choose another, or 0 for any free one."
        )
    if problem.errno == errno.EACCES:
        return f"--port: {port} needs rights that this process does not have. Choose one above 1023."
    return f"--host: {host} is no address of this machine. Listen at 127.0.0.1."


def url_of(listening: socket.socket) -> str:
    """Where the server can be asked."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _spare_what_stays() -> None:
    """Modules and settings stay for good: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return None
    return uvloop.new_event_loop
