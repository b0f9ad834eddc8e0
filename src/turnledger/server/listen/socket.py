"""The listening socket, and the limit on open files, of which each connection is one."""

from __future__ import annotations

import errno
import os
import socket
import sys

from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import Settings

BACKLOG = 2048
VANISHED = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
"""Seconds of silence before the peer is probed, seconds between probes, their number; and milliseconds for
sent bytes to be acknowledged."""


class PortInUse(InvalidSettings):
    """Another process listens there."""


def bind(settings: Settings) -> socket.socket:
    """Bind a socket by the settings. Raises InvalidSettings with the remedy."""
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise InvalidSettings(f"--host: {host} is not known. Listen at 127.0.0.1, or ::1.") from None
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows, two servers could then share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _enable_keepalive(listening)
        listening.bind(address)
    except OSError as problem:
        listening.close()
        kind_of_error = PortInUse if problem.errno == errno.EADDRINUSE else InvalidSettings
        raise kind_of_error(_not_bound(problem, host, port)) from None
    return listening


def _enable_keepalive(listening: socket.socket) -> None:
    """Let the system detect vanished peers, for every connection of this socket."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in VANISHED.items():
        option = getattr(socket, name, None)  # missing on some systems
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
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


if sys.platform != "win32":
    import resource

OTHERS = 200
"""Files besides connections, with a reserve: the store, the log, libraries."""


def needed_for(requests: int) -> int:
    """Return the open files for this many requests, each of which may have an upstream connection."""
    return 2 * requests + OTHERS


def allow_open_files(wanted: int) -> int:
    """Raise the limit to `wanted`, or as far as this process may; return the limit."""
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _at_most(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return _at_most(wanted, soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS has a lower limit than it reports
        return soft
    return most


def allowed_files(wanted: int) -> int:
    """Return how many of the wanted files a server could open here."""
    if sys.platform == "win32":
        return wanted
    return _at_most(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _at_most(wanted: int, limit: int) -> int:
    return wanted if sys.platform == "win32" or limit == resource.RLIM_INFINITY else min(wanted, limit)
