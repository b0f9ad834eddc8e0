"""uvicorn's HTTP, with a bound on what it keeps in memory before it knows whom it has to do with; and with
answers to clients that would rather speak another protocol."""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 1024 * 1024
"""Bytes that may come without completing the headers of a request. Far above what clients send: what comes at
once is counted whole, whatever it holds besides."""

_ABOUT_UPGRADES = frozenset({b"connection", b"upgrade", b"http2-settings"})


class BoundedHttp(HttpToolsProtocol):
    """A connection. The guard sees a request when its headers are complete; these are bounded here.

    Some clients ask with every request whether the server speaks HTTP/2 (`Upgrade: h2c`, as Java's does). The
    parser takes that for the end of HTTP, and the body for something else: such a request is read once more,
    as if it had not asked.
    """

    _is_in_head = False
    _head_bytes = 0
    _declined: bytes | None = None
    """The head of a request that asked for another protocol, without that."""

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered."""
        # Before the first one there is none, whatever its type says.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are complete."""
        self._is_in_head = False
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._declined = self._head_without_upgrade()
        else:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Its body is complete."""
        if self._declined is None:
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Take what has come, and hang up on a request that only ever begins."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._declined is not None:
                self._go_on_with(data[upgrade.args[0] :])
                return
        except httptools.HttpParserError:
            self._refuse("Invalid HTTP request received.")
            return
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse("The headers of a request were too large.")

    def _go_on_with(self, rest: bytes) -> None:
        head, self._declined = self._declined or b"", None
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(head + rest)

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % each for each in self.headers if each[0] not in _ABOUT_UPGRADES]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, why: str) -> None:
        self.logger.warning(why)
        self.send_400_response(why)
