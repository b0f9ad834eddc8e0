"""Changes to the caller's chats, followed across connections."""

from __future__ import annotations

from msgspec.structs import replace

from turnledger.api.events import Change
from turnledger.client.core.exchange import Retries, RetryCount
from turnledger.client.core.sse import EventParser, SentEvent
from turnledger.client.core.steps import READ, Broken, Give, Open, Pause, Reply, Request, Steps
from turnledger.client.errors import Told, told_by, told_in_stream
from turnledger.client.shapes import decoded
from turnledger.errors import InvalidInput, RequestFailed, ServerUnavailable


class FeedFollower:
    """Follows the changes for one reader. Reconnects behind the last change."""

    def __init__(self, trying: RetryCount, retries: Retries, after: str | None) -> None:
        if after is not None and not _is_header(after):
            raise InvalidInput("Invalid position. Pass the position of a change, or as_of of a page.")
        self.position = after
        self._trying = trying
        self._retries = retries
        self._has_heard = False

    def steps(self) -> Steps[None]:
        """Yield the changes, without end. Raises the server's final errors, and ServerUnavailable if it never
        answered."""
        while True:
            opened: Reply | Broken = yield Open(self._request())
            trouble: Told | Broken
            if isinstance(opened, Broken):
                trouble = opened
            elif opened.status == 200:
                trouble = yield from self._listen(opened)
            else:
                trouble = told_by(opened)
            if isinstance(trouble, Told) and not trouble.is_passing:
                raise trouble.error
            yield Pause(self._pause_after(trouble))

    def _request(self) -> Request:
        headers = {"accept": "text/event-stream"}
        if self.position:
            headers["last-event-id"] = self.position
        return Request(method="GET", path="/api/events", headers=headers)

    def _listen(self, opened: Reply) -> Steps[Told | Broken]:
        if not opened.headers.get("content-type", "").startswith("text/event-stream"):
            raise RequestFailed("This is not a Turnledger server. Check base_url.")
        parser, request_id = EventParser(), opened.headers.get("x-request-id")
        while True:
            chunk: bytes | Broken = yield READ
            if isinstance(chunk, Broken):
                return chunk
            if not chunk:
                return Broken("the stream ended")
            self._trying.failed = 0
            self._has_heard = True
            given: list[Change] = []
            problem = None
            for event in parser.feed(chunk):
                if event[1] == b"error":
                    problem = told_in_stream(event[2], request_id)
                    break
                if change := self._change_of(event):
                    given.append(change)
            if given:
                yield Give(given)
            if problem is not None:
                return problem

    def _change_of(self, event: SentEvent) -> Change | None:
        id, _, data = event
        if id and _is_header(position := id.decode("utf-8", "replace")):
            self.position = position
        if not data:
            return None  # it only advances the position
        return replace(decoded(Change, data), position=self.position or "")

    def _pause_after(self, trouble: Told | Broken) -> float:
        is_hopeless = isinstance(trouble, Broken) and trouble.is_hopeless
        asked = None if isinstance(trouble, Broken) else trouble.retry_after
        seconds = None if is_hopeless else self._trying.pause(asked)
        if seconds is not None:
            return seconds
        if self._has_heard and self._retries.times and not is_hopeless:
            return self._trying.longest(asked)  # a feed waits for the server to come back
        if isinstance(trouble, Told):
            raise trouble.error
        raise ServerUnavailable(f"The server did not answer: {trouble.reason}. Check that it is running.")


def _is_header(position: str) -> bool:
    return position.isascii() and position.isprintable()
