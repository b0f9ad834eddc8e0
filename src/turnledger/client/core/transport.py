"""The use of httpx2 that both edges share.

Loading httpx2 takes as long as the rest of a client, so this module is loaded with the first client. The
edges reach it through their Address.
"""

from __future__ import annotations

import ipaddress
import ssl
from typing import Any

import httpx2

from turnledger.client.core.exchange import Timeouts
from turnledger.client.core.steps import ConnectionFailure, Request
from turnledger.errors import InvalidInput

_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_HOPELESS = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.TooManyRedirects)
PROBLEMS = (httpx2.RequestError, httpx2.StreamError)
"""Raised by httpx2 for a request without a complete response."""
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0)
"""No stream waits for another's connection. Idle connections are dropped before servers drop them."""


class Address:
    """The address of a server, and the headers of every request to it."""

    problems = PROBLEMS

    def __init__(
        self, base_url: str, api_key: str | None, timeouts: Timeouts, *, allow_http: bool = False
    ) -> None:
        self.base_url = _check_url(base_url)
        if api_key is not None and not allow_http:
            _check_private(self.base_url)
        self._headers = {"user-agent": "turnledger-python", "accept-encoding": "identity"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {_check_api_key(api_key)}"
        self._timeout = httpx2.Timeout(
            connect=timeouts.connect, read=timeouts.silence, write=timeouts.write, pool=timeouts.connect
        )

    @property
    def http_options(self) -> dict[str, Any]:
        """Options of an httpx2 client. A loopback server is reached without the environment's proxy: it
        refuses proxied requests."""
        url = httpx2.URL(self.base_url)
        if url.scheme == "http" and _is_loopback(url.host):
            # Reading all root certificates takes longer than most requests.
            empty_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            return {"limits": LIMITS, "trust_env": False, "verify": empty_context}
        return {"limits": LIMITS, "trust_env": True}

    def __repr__(self) -> str:
        return f"Address({self.base_url!r})"  # the api_key is not shown

    def arguments(self, request: Request) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "method": request.method,
            "url": self.base_url + request.path,
            "headers": {**self._headers, **request.headers},
            "timeout": self._timeout,
        }
        if request.query:
            arguments["params"] = list(request.query)
        if request.body is not None:
            arguments["content"] = request.body
        return arguments

    @staticmethod
    def failure_of(problem: Exception) -> ConnectionFailure:
        text = str(problem) or type(problem).__name__
        return ConnectionFailure(
            text[:1].lower() + text[1:].rstrip("."),
            may_have_arrived=not isinstance(problem, _NEVER_SENT),
            is_hopeless=isinstance(problem, _HOPELESS) or _is_untrusted(problem),
        )

    def client(self) -> httpx2.Client:
        return httpx2.Client(**self.http_options)

    def async_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(**self.http_options)


def _check_url(base_url: str) -> str:
    try:
        url = httpx2.URL(base_url)
    except (httpx2.InvalidURL, TypeError) as problem:
        raise InvalidInput(f"Invalid base_url: {problem}. Use one like http://127.0.0.1:8383.") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput("base_url must be the URL of a server, for example http://127.0.0.1:8383.")
    if url.port is not None and not 0 < url.port < 2**16:
        raise InvalidInput("The port of base_url must be 1 to 65535.")
    if url.userinfo or url.query or url.fragment:
        raise InvalidInput("base_url must not contain credentials. Pass the token as api_key.")
    return str(url).rstrip("/")


def _check_private(base_url: str) -> None:
    """Refuse to send a token unencrypted over a network."""
    url = httpx2.URL(base_url)
    if url.scheme == "http" and not _is_loopback(url.host):
        raise InvalidInput(
            f"The token would go to {url.host} unencrypted. Use https://, or set allow_http=True "
            "(TURNLEDGER_ALLOW_HTTP=1 for commands)."
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_api_key(api_key: str) -> str:
    if not api_key.isascii() or not api_key.isprintable() or not api_key.strip() or " " in api_key:
        raise InvalidInput("The api_key must be one line. Check that it was copied completely.")
    return api_key


def _is_untrusted(problem: BaseException | None) -> bool:
    """Whether the server's certificate was refused: another try cannot succeed."""
    while problem is not None:
        if isinstance(problem, ssl.SSLCertVerificationError):
            return True
        problem = problem.__cause__ or problem.__context__
    return False
