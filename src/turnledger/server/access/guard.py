"""The guard: checks on every request before its body is read or its caller is looked up.

A server on loopback has no password, so it must distinguish its user's programs from web pages in the user's
browser. Browsers declare where a request comes from, in headers that pages cannot change.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.types import Scope

from turnledger.model.ids import SystemEntropy
from turnledger.server.config.settings import HOST, Settings
from turnledger.server.errors import RequestRefused

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
POLICY = b"content-security-policy"
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)
EXPOSED_HEADERS = (
    b"x-conversation-id, x-conversation-state, x-turn-id, x-request-id, idempotency-replayed, retry-after, "
    b"x-should-retry, x-context-reduced"
)
RETRY_COUNT = b"x-stainless-retry-count"
METHODS = b"GET, POST, PUT, PATCH, DELETE"

_SINGLE_HEADERS = (
    b"host",
    b"origin",
    b"content-type",
    b"content-length",
    b"sec-fetch-site",
    b"authorization",
)
_BODY_TYPES = (b"application/json", b"application/x-ndjson")
FORM = "multipart/form-data"
_PROXY_HEADERS = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-real-ip",
        b"cf-connecting-ip",
        b"true-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"x-envoy-external-address",
        b"x-original-forwarded-for",
        b"cdn-loop",
    }
)
"""Headers that proxies add and clients have no reason to send, besides `X-Forwarded-…`."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9_, -]{1,4096}")


_random_bits = SystemEntropy()


def new_request_id() -> str:
    return f"req_{_random_bits(96):024x}"


def is_loopback(host: str) -> bool:
    """Return whether an address to bind to is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class RequestHead:
    __slots__ = ("_headers", "host", "is_unambiguous", "origin", "proxied_by")

    def __init__(self, scope: Scope) -> None:
        raw_headers = scope["headers"]
        headers: dict[bytes, bytes] = dict(raw_headers)
        self._headers = headers
        self.host = headers.get(b"host")
        self.origin = headers.get(b"origin")
        # Of two contradicting values, one could be checked and the other used.
        self.is_unambiguous = len(headers) == len(raw_headers) or not any(
            sum(name == each for name, _ in raw_headers) > 1 for each in _SINGLE_HEADERS
        )
        # By default nginx calls its upstreams in HTTP/1.0, with a loopback Host and no header of its own:
        # only the version reveals it.
        self.proxied_by = "HTTP/1.0" if scope.get("http_version") == "1.0" else _proxied_by(headers)

    def __getitem__(self, name: bytes) -> bytes:
        """Return the value of a header; empty if it is missing."""
        return self._headers.get(name, b"")

    @property
    def authorization(self) -> bytes:
        return self[b"authorization"]

    @property
    def has_retries(self) -> bool:
        """Whether the client tries again by itself. The official ones count their tries; the AI SDK does not,
        and ignores x-should-retry."""
        return bool(self[RETRY_COUNT]) or b"ai-sdk/" in self[b"user-agent"]

    @property
    def has_body(self) -> bool:
        return self._headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self._headers


class Guard:
    def __init__(self, settings: Settings) -> None:
        self._names = {*LOOPBACK_NAMES, *(name.lower() for name in settings.hosts)}
        self._origins = frozenset(origin.encode() for origin in settings.origins)
        # DNS cannot send a browser from a foreign page to a literal address, so these need no list.
        self._allows_addresses = not is_loopback(settings.host)
        ancestors = " ".join(settings.frame_ancestors).encode()
        self._framing = b"; frame-ancestors " + (ancestors or b"'none'")
        # Every page around a frame must be allowed, including ours and one that embeds ours.
        self._own_framing = b"; frame-ancestors " + b" ".join([b"'self'", ancestors]).strip()
        self._headers = ((POLICY, b"default-src 'none'" + self._framing), *SECURITY_HEADERS)

    def request_id(self, head: RequestHead) -> str:
        """Return the id that the request brought, if it is safe to print anywhere; otherwise a new one."""
        sent = head[b"x-request-id"]
        return sent.decode() if sent and _REQUEST_ID.fullmatch(sent) else new_request_id()

    def check(self, head: RequestHead, *, is_page: bool = False, takes_form: bool = False) -> None:
        """Raise RequestRefused if the request may not pass. Pages skip the check of the origin: they are the
        same for everyone, and requesting one changes nothing."""
        if not head.is_unambiguous:
            message = "A header that may appear only once is repeated. Send it once."
            raise RequestRefused(400, "ambiguous_headers", message, headers=[(b"connection", b"close")])
        self._check_host(head)
        if not is_page:
            self._check_origin(head)
        if head.has_body:
            check_body_type(head[b"content-type"], takes_form=takes_form)

    def response_headers(self, head: RequestHead) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers of every response to the request; for pages of configured origins, with CORS."""
        if head.origin is not None and self._is_configured(head):
            return (
                *self._headers,
                (b"access-control-allow-origin", head.origin),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
                (b"vary", b"origin"),
            )
        return self._headers

    def page_policy(self, allowed: bytes, *, is_own_frame: bool = False) -> tuple[bytes, bytes]:
        return POLICY, allowed + (self._own_framing if is_own_frame else self._framing)

    def preflight_headers(self, head: RequestHead) -> list[tuple[bytes, bytes]] | None:
        """Return the response headers to a preflight from a configured origin; None for any other request."""
        if not head[b"access-control-request-method"] or not self._is_configured(head):
            return None
        headers = [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-max-age", b"600"),
        ]
        requested = head[b"access-control-request-headers"]
        if _HEADER_NAMES.fullmatch(requested):
            headers.append((b"access-control-allow-headers", requested))
        return headers

    def _is_configured(self, head: RequestHead) -> bool:
        return head.is_unambiguous and head.origin in self._origins

    def _check_host(self, head: RequestHead) -> None:
        if head.host is not None:
            found = HOST.fullmatch(head.host.decode("latin-1").lower())
            if found and (found[1] in self._names or (self._allows_addresses and _is_address(found[1]))):
                return
        raise RequestRefused(
            403,
            "host_not_allowed",
            "Unknown host name. Use localhost, or add the name to `hosts` (serve --allow-host).",
        )

    def _check_origin(self, head: RequestHead) -> None:
        if self._is_configured(head):
            return
        if head.origin is not None and head.origin != b"http://" + (head.host or b""):
            raise RequestRefused(
                403,
                "origin_not_allowed",
                "This web page may not call the server. Add its origin with the port "
                "to `origins` (serve --origin).",
            )
        if head[b"sec-fetch-site"] in {b"cross-site", b"same-site"}:
            raise RequestRefused(
                403,
                "cross_site_request",
                "A browser sent this request for another site. To allow it, add the origin to `origins`.",
            )


def check_body_type(body_type: bytes, *, takes_form: bool = False) -> None:
    """Raise RequestRefused unless a body is declared as JSON or lines of JSON: pages of other sites can send
    most other types without a preflight. Where a form is expected, only the origin protects from them."""
    if body_type == b"application/json":
        return
    kind, _, rest = body_type.lower().partition(b";")
    if takes_form and kind.strip() == FORM.encode():
        return
    charset = rest.replace(b" ", b"").replace(b'"', b"")
    if kind.strip() not in _BODY_TYPES or charset not in {b"", b"charset=utf-8"}:
        message = "Bodies must be JSON in UTF-8. Send the header `Content-Type: application/json`."
        raise RequestRefused(415, "unsupported_media_type", message)


def _proxied_by(headers: Iterable[bytes]) -> str | None:
    for name in headers:
        if name[:12] == b"x-forwarded-" or name in _PROXY_HEADERS:
            return name.decode("latin-1")
    return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
