"""One request for a turn and the response to it, in whichever API.

An error is a response of its own while nothing has been sent, and part of the stream after that: to the
official client, a stream that just ends looks like one that ended well.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec
from starlette.types import Receive, Scope, Send

from turnledger.chat import Chat
from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.turn.validation import TurnOptions
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import ConversationId, TurnId
from turnledger.runners.chat_model import ChatModel
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import Slot
from turnledger.server.errors import error_body, kind_of
from turnledger.server.models.redacted import DiscreetModel
from turnledger.server.requests.allowed_fields import passed_on
from turnledger.server.requests.headers import Policies
from turnledger.server.service import Service
from turnledger.server.wire.client_stream import Headers, Outlet, cut_of
from turnledger.server.wire.sse import EVENTS

_JSON = (b"content-type", b"application/json")

ErrorBytes: TypeAlias = Callable[[BaseException], bytes]
"""How an API reports an error in a stream that has begun."""


class TurnAsked(Protocol):
    """What every request for a turn says of it."""

    @property
    def policies(self) -> Policies: ...
    @property
    def idempotency_key(self) -> str | None: ...
    @property
    def retry(self) -> int | None: ...
    @property
    def fingerprint(self) -> bytes: ...


class TurnExchange:
    """Used once, by the task that answers the request."""

    def __init__(
        self, service: Service, scope: Scope, receive: Receive, send: Send, slot: Slot, error: ErrorBytes
    ) -> None:
        self.service = service
        self.scope = scope
        self.state: dict[str, Any] = scope["state"]
        self.who: Principal = self.state["principal"]
        self.slot = slot
        self.outlet = Outlet(send, receive, cut=cut_of(scope))
        self.turn: TurnId | None = None
        self.began = ""
        """What became of the conversation when the turn began, as the client is told."""
        self.began_at = 0.0
        self.is_good = False
        """Whether the response ended well."""
        self.has_told_end = False
        """Whether the stream has told how the turn ended: then an error adds nothing."""
        self.has_spoken = False
        """Whether the model has said something."""
        self._error = error
        self._is_kept_alive = False
        self._is_stream = False
        self._headers: dict[bytes, bytes] = {}

    # The request.

    def model(
        self, named: str, settings: Mapping[str, Any], stream_options: msgspec.Raw | None
    ) -> tuple[ChatModel, Mapping[str, Any]]:
        """Return the model to ask, and what to ask it with. Raises Refused if the caller may not."""
        models, who = self.service.models, self.who
        found = models.find(named, who)
        models.check_fields(settings, who)
        model: ChatModel = found.model
        if who.token is not None and who.token.is_narrowed:
            asked = self.service.settings
            longest = asked.limits.narrowed_max_tokens
            settings = passed_on(settings, stream_options, who.token, asked.passed_fields, longest, found)
            model = DiscreetModel(model)
        name = found.upstream_name
        return model, settings if name == named else {**settings, "model": name}

    def options(self, asked: TurnAsked) -> TurnOptions:
        """Return what the request says of its turn besides the input."""
        policies = asked.policies
        options: TurnOptions = {
            "attach": True,
            "admitted": self.who.version,
            "admitted_until": self.who.until,
            "readmit": partial(self.service.admission.readmit, self.state["head"], TokenScope.TURNS_RUN),
        }
        if policies.on_busy is not None:
            options["on_busy"] = policies.on_busy
        if policies.on_stop is not None:
            options["on_stop"] = policies.on_stop
        if policies.on_failure is not None:
            options["on_failure"] = policies.on_failure
        if asked.idempotency_key is not None:
            options["idempotency_key"] = asked.idempotency_key
            options["body_digest"] = asked.fingerprint
        elif asked.retry is not None:
            options["retry"] = Retry(asked.fingerprint, asked.retry)
        return options

    def chat_of(self, turn: TurnId) -> Awaitable[Chat]:
        """Find the chat of a turn that this caller may see."""
        return self.service.ledger.chat_of(turn, owner=self.who.owner, within=self.who.within)

    # The response.

    def header(self, name: bytes, value: str) -> None:
        """Set a header; in vain once the response has begun."""
        self._headers[name] = value.encode("latin-1")

    def place(self, conversation: ConversationId, state: str, turn: TurnId) -> None:
        """Tell the client, and the log, which turn this is."""
        self.header(b"x-conversation-id", conversation)
        self.header(b"x-conversation-state", state)
        self.header(b"x-turn-id", turn)
        self.turn, self.began = turn, state
        self.state["conversation"], self.state["turn"] = conversation, turn

    def note_first_token(self) -> None:
        """Measure how long the model took to say something."""
        self.has_spoken = True
        self.service.metrics.first_token(time.monotonic() - self.began_at)

    def keep_alive(self, waiting: Callable[[], Mapping[bytes, str] | None]) -> None:
        """Send comments while the stream is silent. It may begin with one once `waiting` returns headers:
        those of a turn that waits for others."""

        def headers() -> Headers | None:
            told = waiting()
            return None if told is None else [*_encoded(told), EVENTS]

        self._is_kept_alive = True
        self.service.streams.keep_alive(self.outlet, headers)

    def whole(self, body: bytes, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Answer with one JSON object."""
        length = (b"content-length", b"%d" % len(body))
        self.is_good = status == 200
        self.outlet.begin(status, [*self._headers.items(), _JSON, length, *headers])
        self.outlet.end(body)

    def write(self, body: bytes) -> None:
        """Answer with the next bytes of a stream."""
        if not self._is_stream:
            self._begin_stream()
        self.outlet.write(body)

    def end(self, body: bytes = b"") -> None:
        """End a stream well."""
        if not self._is_stream:
            self._begin_stream()
        self.is_good = True
        self.outlet.end(body)

    def _begin_stream(self) -> None:
        self._is_stream = True
        self.service.metrics.stream_opened()
        if not self.outlet.has_begun:  # it has where the turn waited for others
            self.outlet.begin(200, [*self._headers.items(), EVENTS])
        if self._is_kept_alive:
            self.service.streams.keep_alive(self.outlet)

    def fail(self, problem: BaseException) -> None:
        """Answer with an error."""
        if self.outlet.has_begun:
            self.outlet.end(b"" if self.has_told_end else self._error(problem))
        else:
            kind = kind_of(problem)
            self.whole(error_body(problem), kind.status, kind.headers)

    async def close(self) -> bool:
        """Wait until the client has everything, or has taken too long; return whether it has."""
        try:
            return await self.outlet.close(self.service.settings.limits.send_wait)
        finally:  # also when this wait is cancelled
            if self._is_kept_alive:
                self.service.streams.let_go(self.outlet)
            if self._is_stream:
                self.service.metrics.stream_closed()


def _encoded(headers: Mapping[bytes, str]) -> Headers:
    return [(name, value.encode("latin-1")) for name, value in headers.items()]
