"""From the URL of an upstream to a connected socket, through a proxy if one is set.

The URL is parsed and checked once, so that it cannot inject into a request. A host may have addresses that do
not answer, often those of IPv6: the next one is tried after a moment, and the first to answer wins.
"""

from __future__ import annotations

import asyncio
import re
import socket
from base64 import b64encode
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import chain, zip_longest
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from turnledger.errors import InvalidInput
from turnledger.runners.upstream.failures import not_http, of_proxy

_PORTS = {"http": 80, "https": 443}
_KEPT = "%!$&'()*+,;=:@/~?-._[]"
"""Characters that stay in a path or a query; existing escapes stay."""
_is_host = re.compile(r"[a-z0-9._~-]+|[0-9a-f:.]+(%[a-z0-9._~-]+)?", re.IGNORECASE).fullmatch
_is_token = re.compile(r"[\x21-\x7e]+").fullmatch


class Address(NamedTuple):
    host: str
    port: int
    is_secure: bool
    authority: str
    """Host and port, as in the Host header."""
    path: str
    query: str

    def target(self, below: str) -> str:
        """Return the target of a request below the URL, whose query is kept."""
        return f"{self.path}{below}{self.query}"


def address_of(base_url: str) -> Address:
    """Parse a URL. Raises InvalidInput, without a password in its message."""
    shown = "This" if "@" in base_url else repr(base_url)
    not_one = InvalidInput(f"{shown} is not the URL of a model. Use one like 'http://localhost:11434/v1'.")
    # urlsplit would silently drop line ends.
    if any(each <= " " or each == "\x7f" for each in base_url):
        raise not_one
    try:
        parts = urlsplit(base_url)
        host, port = _ascii(parts.hostname or ""), parts.port
    except ValueError:
        raise not_one from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("The URL of a model must not contain a password. Use api_key instead.")
    if parts.scheme not in _PORTS or not _is_host(host) or port == 0:
        raise not_one
    name = f"[{host.partition('%')[0]}]" if ":" in host else host
    usual = _PORTS[parts.scheme]
    return Address(
        host,
        port or usual,
        parts.scheme == "https",
        name if port in (None, usual) else f"{name}:{port}",
        quote(parts.path.rstrip("/"), safe=_KEPT),
        f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "",
    )


def check_api_key(api_key: str) -> str:
    """Return the api_key if a header can carry it. Raises InvalidInput, without the key in its message."""
    if not _is_token(api_key):
        raise InvalidInput("The api_key contains whitespace or another invalid character. Check it.")
    return api_key


def _ascii(host: str) -> str:
    return host if ":" in host else host.encode("idna").decode()


HEAD_START = 0.25
"""Seconds before the next address is tried, too."""

_Address: TypeAlias = "tuple[int, int, int, str, Any]"


async def dial(host: str, port: int, *, head_start: float = HEAD_START) -> socket.socket:
    """Connect; the caller owns the socket. If no address answers, raises the OSError of the first."""
    loop = asyncio.get_running_loop()
    found = interleave(await resolve_host(host, port))
    if len(found) == 1:
        return await _connect(loop, found[0])
    return await _race(loop, found, head_start)


async def resolve_host(host: str, port: int) -> Sequence[_Address]:
    """Return the addresses of a host, at least one, the best first. Raises OSError."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def interleave(addresses: Sequence[_Address]) -> list[_Address]:
    """Interleave the addresses of both families, each in its order."""
    first = [each for each in addresses if each[0] == addresses[0][0]]
    others = [each for each in addresses if each[0] != addresses[0][0]]
    return [each for each in chain.from_iterable(zip_longest(first, others)) if each is not None]


async def _race(
    loop: asyncio.AbstractEventLoop, addresses: Sequence[_Address], head_start: float
) -> socket.socket:
    tries: list[asyncio.Task[socket.socket]] = []
    left = list(addresses)
    try:
        while left or not all(each.done() for each in tries):
            if left:
                tries.append(loop.create_task(_connect(loop, left.pop(0))))
            running = [each for each in tries if not each.done()]
            await asyncio.wait(
                running, timeout=head_start if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in tries:
                if each.done() and each.exception() is None:
                    tries.remove(each)
                    return each.result()
        raise tries[0].exception() or OSError("There is no address.")
    finally:
        for each in tries:
            each.add_done_callback(_close)
            each.cancel()


def _close(lost: asyncio.Task[socket.socket]) -> None:
    if not lost.cancelled() and lost.exception() is None:
        lost.result().close()


async def _connect(loop: asyncio.AbstractEventLoop, address: _Address) -> socket.socket:
    family, kind, protocol, _, place = address
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A model may think for minutes: middleboxes must not drop the connection meanwhile.
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await loop.sock_connect(connecting, place)
    except BaseException:
        connecting.close()
        raise
    return connecting


HEAD_BYTES = 64 * 1024
"""Bytes that a proxy may send before the tunnel is open."""
_exception = re.compile(
    r"(?:\[(?P<ipv6>[^\]]+)\]|(?P<name>[^:]+|[0-9a-f:.]+(?:/\d+)?))(?::(?P<port>\d+))?"
).fullmatch
_status_of = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]").match


class Proxy(NamedTuple):
    host: str
    port: int
    fields: tuple[str, ...] = ()
    """Its credentials, as header lines."""

    def __repr__(self) -> str:
        return f"Proxy({self.host!r}, {self.port})"  # without the credentials


def proxy_for(address: Address, proxy: bool | str, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for an address: the one of this URL; the environment's for True; none for False.

    The environment names it in HTTPS_PROXY or HTTP_PROXY, by the scheme of the address, and exceptions in
    NO_PROXY; lower case takes precedence. Loopback addresses never use it. Raises InvalidInput.
    """
    if isinstance(proxy, str):
        return _parse_proxy(proxy, "`proxy`")
    name = "https_proxy" if address.is_secure else "http_proxy"
    url = environ.get(name) or environ.get(name.upper())
    if not proxy or not url or _is_direct(address, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    return _parse_proxy(url, name.upper())


def _parse_proxy(url: str, name: str) -> Proxy:
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
    """Whether NO_PROXY exempts the address. An exception is `*`, a name that covers its subdomains, or an IP
    address or network; it may name a port."""
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
    """Connect this socket to an address through its proxy. Raises UpstreamFailure, OSError."""
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
        raise not_http()  # the client speaks first in a tunnel
