"""Proxies: which one a request goes through, and the tunnel that one opens."""

from __future__ import annotations

import asyncio
import re
import socket
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from turnledger.errors import InvalidInput
from turnledger.runners.http.address import Address, address_of
from turnledger.runners.upstream.failures import not_http, of_proxy

HEAD_BYTES = 64 * 1024
"""What a proxy may send before the tunnel is open."""
_exception = re.compile(
    r"(?:\[(?P<ipv6>[^\]]+)\]|(?P<name>[^:]+|[0-9a-f:.]+(?:/\d+)?))(?::(?P<port>\d+))?"
).fullmatch
_status_of = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]").match


class Proxy(NamedTuple):
    """Where a proxy listens, and what opens it."""

    host: str
    port: int
    fields: tuple[str, ...] = ()
    """Its credentials, as lines of a request's head."""

    def __repr__(self) -> str:
        return f"Proxy({self.host!r}, {self.port})"  # not the credentials


def proxy_for(address: Address, proxy: bool | str, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy on the way to an address: the one of this URL; the environment's for True; none for False.

    The environment names one in HTTPS_PROXY or HTTP_PROXY, by the scheme of the address, and exceptions in
    NO_PROXY; lower case comes first. A loopback address is never reached through it. Raises InvalidInput.
    """
    if isinstance(proxy, str):
        return _parsed(proxy, "`proxy`")
    name = "https_proxy" if address.is_secure else "http_proxy"
    url = environ.get(name) or environ.get(name.upper())
    if not proxy or not url or _is_direct(address, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    return _parsed(url, name.upper())


def _parsed(url: str, name: str) -> Proxy:
    wrong = InvalidInput(
        f"{name} is not the URL of an HTTP proxy. Give one like 'http://proxy.example:3128', or `false`."
    )
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        credentials, _, place = parts.netloc.rpartition("@")
        address = address_of(f"{parts.scheme}://{place}")
        credentials = unquote(credentials, errors="strict")
    except (InvalidInput, ValueError):
        raise wrong from None
    if address.is_secure or not url.isprintable():
        raise wrong
    if not credentials:
        return Proxy(address.host, address.port)
    if ":" not in credentials:
        credentials += ":"
    encoded = b64encode(credentials.encode()).decode()
    return Proxy(address.host, address.port, (f"Proxy-Authorization: Basic {encoded}",))


def _is_direct(address: Address, exceptions: str) -> bool:
    """Whether the environment wants no proxy there. An exception is `*`, a name that covers those below it,
    or an IP address or network; it may name a port."""
    host = address.host.partition("%")[0].rstrip(".")
    ip = _ip_of(host)
    if host == "localhost" or host.endswith(".localhost") or (ip is not None and ip.is_loopback):
        return True
    for each in re.split(r"[\s,]+", exceptions.lower()):
        parts = _exception(each)
        if parts is None or (parts["port"] or str(address.port)) != str(address.port):
            continue
        name = (parts["ipv6"] or parts["name"]).removeprefix("*.").strip(".")
        if name in ("*", host) or (host.endswith(f".{name}") if ip is None else _covers(name, ip)):
            return True
    return False


def _ip_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _covers(network: str, ip: IPv4Address | IPv6Address) -> bool:
    try:
        return ip in ip_network(network, strict=False)
    except ValueError:
        return False


async def open_tunnel(dialed: socket.socket, proxy: Proxy, address: Address) -> None:
    """Have a proxy connect this socket to an address. Raises BrokenOff, OSError."""
    loop = asyncio.get_running_loop()
    host = address.host.partition("%")[0]
    place = f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}", *proxy.fields, "", ""]
    await loop.sock_sendall(dialed, "\r\n".join(lines).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        if len(head) > HEAD_BYTES:
            raise not_http()
        piece = await loop.sock_recv(dialed, 4096)
        if not piece:
            raise of_proxy(None)
        head += piece
    status = _status_of(head)
    if status is None:
        raise not_http()
    if not status[1].startswith(b"2"):
        raise of_proxy(int(status[1]))
    if not head.endswith(b"\r\n\r\n"):
        raise not_http()  # the other end speaks second: this is no tunnel
