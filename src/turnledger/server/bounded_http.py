"""uvicorn's HTTP, with a bound on what it keeps in memory before it knows whom it has to do with."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 1024 * 1024
"""Bytes that may come without completing the headers of a request. Far above what clients send: what comes at
once is counted whole, whatever it holds besides."""


class BoundedHttp(HttpToolsProtocol):
    """A connection. The guard sees a request when its headers are complete; these are bounded here."""

    _is_in_head = False
    _head_bytes = 0

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are complete."""
        self._is_in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Take what has come, and hang up on a request that only ever begins."""
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.logger.warning("The headers of a request were too large.")
                self.send_400_response("The headers are too large.")
