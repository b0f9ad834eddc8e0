"""Where an upstream is: the parts of its URL, checked once, so that no request can be made to say more."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from turnledger.errors import InvalidInput

_PORTS = {"http": 80, "https": 443}
_KEPT = "%!$&'()*+,;=:@/~?-._[]"
"""What stands in a path or a query as it is; an escape that is there stays one."""
_is_host = re.compile(r"[a-z0-9._~-]+|[0-9a-f:.]+(%[a-z0-9._~-]+)?", re.IGNORECASE).fullmatch
_is_token = re.compile(r"[\x21-\x7e]+").fullmatch


class Address(NamedTuple):
    """Where to connect to, and what to ask for there."""

    host: str
    port: int
    is_secure: bool
    authority: str
    """Host and port, as the Host header has them."""
    path: str
    query: str

    def target(self, below: str) -> str:
        """The target of a request for something below the URL, whose query is kept."""
        return f"{self.path}{below}{self.query}"


def address_of(base_url: str) -> Address:
    """Take a URL apart. Raises InvalidInput, which repeats no password."""
    shown = "This" if "@" in base_url else repr(base_url)
    not_one = InvalidInput(f"{shown} is no URL of a model. Give one like 'http://localhost:11434/v1'.")
    # urlsplit would drop ends of lines without a word.
    if any(each <= " " or each == "\x7f" for each in base_url):
        raise not_one
    try:
        parts = urlsplit(base_url)
        host, port = _ascii(parts.hostname or ""), parts.port
    except ValueError:
        raise not_one from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("The URL of a model must hold no password. Give an api_key instead.")
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


def checked_api_key(api_key: str) -> str:
    """The api_key, which a header can carry. Raises InvalidInput, which does not repeat it."""
    if not _is_token(api_key):
        raise InvalidInput(
            "The api_key holds a blank, an end of line or another character that no key has. Correct it."
        )
    return api_key


def _ascii(host: str) -> str:
    return host if ":" in host else host.encode("idna").decode()
