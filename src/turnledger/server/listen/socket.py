"""The listening socket, and the limit on open files, of which each connection is one."""

from __future__ import annotations

import errno
import os
import socket
import sys

from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import Settings

BACKLOG = 2048
KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
"""Seconds of silence before the peer is probed, seconds between probes, their number; and milliseconds for
sent bytes to be acknowledged."""


class PortInUse(InvalidSettings):
    """Another process listens there. Choose another port."""


def bind(settings: Settings) -> socket.socket:
    """Bind a socket by the settings. Raises InvalidSettings with the remedy."""
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise InvalidSettings(f"--host: unknown host {host}. Use 127.0.0.1 or ::1.") from None
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows, two servers could then share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _enable_keepalive(listener)
        listener.bind(address)
    except OSError as problem:
        listener.close()
        kind_of_error = PortInUse if problem.errno == errno.EADDRINUSE else InvalidSettings
        raise kind_of_error(_bind_error_message(problem, host, port)) from None
    return listener


def _enable_keepalive(listener: socket.socket) -> None:
    """Let the system detect vanished peers, for every connection of this socket."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE_OPTIONS.items():
        option = getattr(socket, name, None)  # missing on some systems
        if option is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)


def _bind_error_message(problem: OSError, host: str, port: int) -> str:
    if problem.errno == errno.EADDRINUSE:
        return (
            f"--port: {port} is in use, maybe by another server. Choose another port, or 0 for any free one."
        )
    if problem.errno == errno.EACCES:
        return f"--port: no permission to use {port}. Choose a port above 1023."
    return f"--host: {host} is not an address of this machine. Use 127.0.0.1."


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


if sys.platform != "win32":
    import resource

OTHER_FILES = 200
"""Files besides connections, with a reserve: the store, the log, libraries."""


def open_files_for(requests: int) -> int:
    """Return the open files for this many requests, each of which may have an upstream connection."""
    return 2 * requests + OTHER_FILES


def allow_open_files(wanted: int) -> int:
    """Raise the limit to `wanted`, or as far as this process may; return the limit."""
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _limited(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return _limited(wanted, soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # macOS has a lower limit than it reports
        return soft
    return target


def allowed_files(wanted: int) -> int:
    """Return how many of the wanted files a server could open here."""
    if sys.platform == "win32":
        return wanted
    return _limited(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _limited(wanted: int, limit: int) -> int:
    return wanted if sys.platform == "win32" or limit == resource.RLIM_INFINITY else min(wanted, limit)
