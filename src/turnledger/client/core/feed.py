"""Changes to the caller's chats, followed across connections."""

from __future__ import annotations

from msgspec.structs import replace

from turnledger.api.events import Change
from turnledger.client.core.exchange import Retries, RetryCount
from turnledger.client.core.sse import EventParser, SentEvent
from turnledger.client.core.steps import READ, ConnectionFailure, Emit, Open, Pause, Reply, Request, Steps
from turnledger.client.errors import ErrorReport, error_in_reply, error_in_stream
from turnledger.client.shapes import decode_shape
from turnledger.errors import InvalidInput, RequestFailed, ServerUnavailable


class FeedFollower:
    """Follows the changes for one reader. Reconnects after the last change."""

    def __init__(self, retry_count: RetryCount, retries: Retries, after: str | None) -> None:
        if after is not None and not _is_header(after):
            raise InvalidInput("Invalid position. Pass the position of a change, or as_of of a page.")
        self.position = after
        self._retry_count = retry_count
        self._retries = retries
        self._has_received = False

    def steps(self) -> Steps[None]:
        """Yield the changes, without end. Raises the server's final errors, and ServerUnavailable if it never
        answered."""
        while True:
            opened: Reply | ConnectionFailure = yield Open(self._request())
            failure: ErrorReport | ConnectionFailure
            if isinstance(opened, ConnectionFailure):
                failure = opened
            elif opened.status == 200:
                failure = yield from self._listen(opened)
            else:
                failure = error_in_reply(opened)
            if isinstance(failure, ErrorReport) and not failure.is_temporary:
                raise failure.error
            yield Pause(self._pause_after(failure))

    def _request(self) -> Request:
        headers = {"accept": "text/event-stream"}
        if self.position:
            headers["last-event-id"] = self.position
        return Request(method="GET", path="/api/events", headers=headers)

    def _listen(self, opened: Reply) -> Steps[ErrorReport | ConnectionFailure]:
        if not opened.headers.get("content-type", "").startswith("text/event-stream"):
            raise RequestFailed("This is not a Turnledger server. Check base_url.")
        parser, request_id = EventParser(), opened.headers.get("x-request-id")
        while True:
            chunk: bytes | ConnectionFailure = yield READ
            if isinstance(chunk, ConnectionFailure):
                return chunk
            if not chunk:
                return ConnectionFailure("the stream ended")
            self._retry_count.failed = 0
            self._has_received = True
            changes: list[Change] = []
            problem = None
            for event in parser.feed(chunk):
                if event[1] == b"error":
                    problem = error_in_stream(event[2], request_id)
                    break
                if change := self._change_of(event):
                    changes.append(change)
            if changes:
                yield Emit(changes)
            if problem is not None:
                return problem

    def _change_of(self, event: SentEvent) -> Change | None:
        id, _, data = event
        if id and _is_header(position := id.decode("utf-8", "replace")):
            self.position = position
        if not data:
            return None  # it only advances the position
        return replace(decode_shape(Change, data), position=self.position or "")

    def _pause_after(self, failure: ErrorReport | ConnectionFailure) -> float:
        is_hopeless = isinstance(failure, ConnectionFailure) and failure.is_hopeless
        requested = None if isinstance(failure, ConnectionFailure) else failure.retry_after
        seconds = None if is_hopeless else self._retry_count.pause(requested)
        if seconds is not None:
            return seconds
        if self._has_received and self._retries.times and not is_hopeless:
            return self._retry_count.longest_pause(requested)  # a feed waits for the server to come back
        if isinstance(failure, ErrorReport):
            raise failure.error
        raise ServerUnavailable(f"The server did not answer: {failure.reason}. Check that it is running.")


def _is_header(position: str) -> bool:
    return position.isascii() and position.isprintable()
