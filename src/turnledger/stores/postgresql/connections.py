"""Connections to PostgreSQL: their URL, their settings, and the pool."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
    """A connection that operations return to the pool as they found it."""

    is_dropped = False

    @property
    def is_usable(self) -> bool:
        return not self.is_dropped and not self.is_closed()

    def _cancel_current_command(self, waiter: object, cancel_waiter: object = None) -> None:
        """Drop the connection after a timeout. A cancelled COMMIT would no longer wait for the synchronous
        standby: others would see, and acknowledge, a turn that a failover loses."""
        self.is_dropped = True
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
        "timeout": settings.wait if settings.connect_timeout is None else settings.connect_timeout or None,
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


async def connect(settings: DatabaseSettings) -> QuietConnection:
    """Open a connection, for the pool or beside it."""
    connection: QuietConnection = await asyncpg.connect(**arguments(settings))
    await prepare(connection)
    return connection
