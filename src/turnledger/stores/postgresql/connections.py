"""Connections to PostgreSQL: their URL, their settings, hosts that do not answer, and the pool."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg

from turnledger.errors import NotAStore

AnyConnection: TypeAlias = "asyncpg.Connection[Any]"

OLDEST = 16
"""The oldest major version of PostgreSQL that is tested."""

OWN = ("pool", "wait", "timeout", "pgbouncer", "connect_timeout")
"""Settings in a URL that are not passed on."""

DRIVER = re.compile(
    "application_name|database|dbname|gsslib|host|krbsrvname|options|passfile|password|port|service|"
    "sslcert|sslcrl|sslkey|sslmode|sslnegotiation|sslpassword|sslrootcert|ssl_max_protocol_version|"
    "ssl_min_protocol_version|target_session_attrs|user"
)
"""Those that the driver or the server understands as libpq does."""
LIBPQ = re.compile(
    "channel_binding|client_encoding|fallback_application_name|gssdelegation|gssencmode|hostaddr|keepalives|"
    "keepalives_(?:count|idle|interval)|load_balance_hosts|(?:max|min)_protocol_version|replication|"
    "require_auth|requirepeer|servicefile|sslcertmode|sslcompression|sslcrldir|sslsni|tcp_user_timeout"
)
"""Those that the driver lacks. Any other may be part of a password, and is not repeated."""

HEAD_START = 0.3
"""Seconds after which the next host of a cluster is tried beside the one before it."""
LONG, PAUSE = 1.0, 0.5
"""Seconds of an attempt after which a host counts as silent, and between two attempts to reach it."""
SILENT = "the host does not answer"

_ESCAPE, _NUL, _ITSELF = "\ue000", "\ue000\ue001", "\ue000\ue002"


def encoded(text: str) -> bytes:
    """Return the bytes of a text without NUL, which PostgreSQL cannot store in a text."""
    if _ESCAPE in text:
        text = text.replace(_ESCAPE, _ITSELF)
    return (text.replace("\x00", _NUL) if "\x00" in text else text).encode()


def decoded(raw: bytes) -> str:
    text = raw.decode()
    return text.replace(_NUL, "\x00").replace(_ITSELF, _ESCAPE) if _ESCAPE in text else text


@dataclass(frozen=True)
class DatabaseSettings:
    """Where the database is, and how to use it."""

    dsn: str
    place: str
    """Host and database, without user and password: for messages."""
    pool: int = 20
    """The most connections of this process."""
    wait: float = 5.0
    """Seconds that an operation waits for a connection."""
    timeout: float = 30.0
    """Seconds that a statement may take."""
    pgbouncer: bool = False
    """Whether a pooler in transaction mode is in between: no prepared statements, no notifications."""
    connect_timeout: float | None = None
    """Seconds that a new connection may take, 0 for any; None: as `wait`."""
    application_name: str = "turnledger"
    hosts: list[tuple[str, int | None]] = field(default_factory=list)
    """Several hosts of a cluster with their ports, the one that answered last first."""

    @property
    def patience(self) -> float | None:
        """Seconds to wait for a host that does not answer; None for any number."""
        return self.wait if self.connect_timeout is None else self.connect_timeout or None


def settings_of(url: str) -> DatabaseSettings:
    """Parse the URL. Raises NotAStore for settings that are not known; never repeats the URL, which may hold
    a password."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in given if name in OWN}
    rest = [(name, value) for name, value in given if name not in own]
    for name, _ in rest:
        if LIBPQ.fullmatch(name):
            raise NotAStore(f"`{name}` in a postgresql URL is not supported. Remove it.")
    try:
        settings: dict[str, Any] = {
            "pool": int(own.get("pool", DatabaseSettings.pool)),
            "wait": float(own.get("wait", DatabaseSettings.wait)),
            "timeout": float(own.get("timeout", DatabaseSettings.timeout)),
            "pgbouncer": {"on": True, "off": False}[own.get("pgbouncer", "off")],
            "connect_timeout": float(own["connect_timeout"]) if "connect_timeout" in own else None,
            "application_name": dict(rest).get("application_name", DatabaseSettings.application_name),
        }
        # Of a cluster, the URL names several.
        hosts = [urlsplit(f"//{each}") for each in parts.netloc.rpartition("@")[2].split(",")]
        if "@" in parts.path or parts.fragment or any(each.port == 0 for each in hosts):
            raise ValueError
        if not all(DRIVER.fullmatch(name) for name, _ in rest):
            raise NotAStore(
                "A postgresql URL has an unknown setting. Correct it; those of the server go into `options`. "
                "Percent-encode the password."
            )
        host = ",".join(each.hostname or "" for each in hosts) or dict(rest).get("host", "")
        if len(hosts) > 1 and not {"host", "port"} & dict(rest).keys():
            settings["hosts"] = [(each.hostname or "localhost", each.port) for each in hosts]
        place = f"postgresql://{host}{parts.path}"
    except (ValueError, KeyError):
        raise NotAStore(
            "In a postgresql URL, percent-encode the password; `pool`, `wait`, `timeout` and "
            "`connect_timeout` are numbers, `pgbouncer` is on or off."
        ) from None
    if settings["pool"] < 2 or settings["wait"] <= 0 or settings["timeout"] <= 0:
        raise NotAStore("`pool` must be 2 or more, `wait` and `timeout` (in seconds) above 0.")
    if (settings["connect_timeout"] or 0) < 0:
        raise NotAStore("`connect_timeout` must be a number of seconds, or 0 for no limit.")
    dsn = urlunsplit(parts._replace(query=urlencode(rest, quote_via=quote)))
    return DatabaseSettings(dsn, place, **settings)


class QuietConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that is returned to the pool as it is: operations leave nothing behind."""

    def get_reset_query(self) -> str:
        return ""

    def _cancel_current_command(self, waiter: object, cancel_waiter: object = None) -> None:
        """Drop the connection after a timeout. A cancelled COMMIT would no longer wait for the synchronous
        standby: others would see, and acknowledge, a turn that a failover loses."""
        self._loop.call_soon(self.terminate)


async def prepare(connection: AnyConnection) -> None:
    await connection.set_type_codec(
        "text", schema="pg_catalog", encoder=encoded, decoder=decoded, format="binary"
    )


def arguments(settings: DatabaseSettings) -> dict[str, Any]:
    """Return the arguments for a connection."""
    given: dict[str, Any] = {
        "dsn": settings.dsn,
        "connection_class": QuietConnection,
        "command_timeout": settings.timeout,
        "timeout": settings.patience,
    }
    if settings.pgbouncer:
        given["statement_cache_size"] = 0
    else:
        given["server_settings"] = {
            "application_name": settings.application_name,
            # A holder that is gone must not keep its locks: the server notices within half a minute.
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "5",
            "tcp_keepalives_count": "3",
            "idle_in_transaction_session_timeout": "30s",
            "client_connection_check_interval": "10s",
            "lock_timeout": "20s",
            "standard_conforming_strings": "on",
        }
    return given


def server_version(connection: AnyConnection) -> str:
    version = connection.get_server_version()
    return f"{version.major}.{version.micro}"


def check_server(connection: AnyConnection, settings: DatabaseSettings) -> None:
    """Raise NotAStore for a server that is too old."""
    if connection.get_server_version().major < OLDEST:
        raise NotAStore(
            f"{settings.place} is PostgreSQL {server_version(connection)}. Use version {OLDEST} or newer."
        )


async def connect(settings: DatabaseSettings) -> AnyConnection:
    """Open a connection beside the pool."""
    connection = await open_connection(settings)
    await prepare(connection)
    return connection


async def open_connection(settings: DatabaseSettings) -> AnyConnection:
    """Open a connection to the database: of several hosts, to the first that answers and is as wanted. The
    driver would wait for a silent one until its time is over."""
    hosts, tries, errors = list(settings.hosts), [], []
    if not hosts:
        return _bounded(await asyncpg.connect(**arguments(settings)), settings)
    waiting: set[asyncio.Task[AnyConnection]] = set()
    try:
        while hosts or waiting:
            if hosts:
                host, port = hosts.pop(0)
                opening = asyncpg.connect(**arguments(settings), host=host, port=port)
                tries.append(asyncio.create_task(opening, name=host))
                waiting.add(tries[-1])
            done, waiting = await asyncio.wait(
                waiting, timeout=HEAD_START if hosts else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                error = each.exception()
                if error is None:
                    best = settings.hosts[tries.index(each)]
                    settings.hosts.sort(key=lambda other: other != best)
                    return _bounded(tries.pop(tries.index(each)).result(), settings)
                errors.append(error)
        refused = [each for each in errors if isinstance(each, asyncpg.PostgresError)]
        raise (refused or errors)[-1]
    finally:
        for each in tries:
            each.cancel()
            each.add_done_callback(_drop)


def _drop(opening: asyncio.Task[AnyConnection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().terminate()


def _bounded(connection: AnyConnection, settings: DatabaseSettings) -> AnyConnection:
    """Let the kernel end the connection when the host no longer acknowledges what was sent to it: a slow
    statement has all of `timeout`, a machine without power has not."""
    made = connection._transport.get_extra_info("socket")
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if settings.patience and option is not None and made.family != socket.AF_UNIX:
        with made.dup() as same:
            same.setsockopt(socket.IPPROTO_TCP, option, round(settings.patience * 1000))
    return connection


class Connector:
    """Opens the connections of a pool. After an attempt that took long and failed, as to a machine without
    power, others fail at once, while one task tries until an attempt succeeds or fails soon."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._long = min((settings.patience or LONG) / 2, LONG)
        self._connected_at = 0.0
        self._trying: asyncio.Task[None] | None = None

    async def connect(self, *_: object, **__: object) -> AnyConnection:
        """Open a connection, with the arguments of the pool."""
        if self._trying is not None:
            raise ConnectionError(SILENT)
        began = monotonic()
        try:
            connection = await open_connection(self._settings)
        except BaseException as error:  # also because the caller waits no longer
            is_long = monotonic() - began >= self._long and self._connected_at < began
            if is_long and self._trying is None:
                self._trying = asyncio.create_task(self._try_again(), name="turnledger-connect")
            if isinstance(error, TimeoutError):
                raise ConnectionError(SILENT) from error
            raise
        self._connected_at = monotonic()
        return connection

    async def _try_again(self) -> None:
        settings = self._settings
        if settings.patience is None:
            settings = replace(settings, connect_timeout=settings.wait)
        while True:
            began = monotonic()
            try:
                (await open_connection(settings)).terminate()
                break
            except Exception:
                if monotonic() - began < self._long:
                    break
            await asyncio.sleep(PAUSE)
        self._trying = None

    async def close(self) -> None:
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.wait((self._trying,))


async def open_pool(settings: DatabaseSettings, connector: Connector) -> asyncpg.Pool[Any]:
    pool: asyncpg.Pool[Any] = await asyncpg.create_pool(
        connect=connector.connect,
        connection_class=QuietConnection,
        init=prepare,
        min_size=0,
        max_size=settings.pool,
        max_inactive_connection_lifetime=300.0,
    )
    return pool
