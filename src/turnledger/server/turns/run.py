"""A turn over HTTP, from the request to the last byte of its response, in either API.

The task of the request runs the turn: the model's output goes to the client as it comes, with no other task
in between. The event that reports the end is sent after the commit. Before the first byte an error is a
response of its own, later it is part of the stream: to the official client, a stream that just ends looks
complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.policies import OnDisconnect
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.engine.turn.validation import TurnOptions
from turnledger.errors import (
    ConversationBusy,
    ConversationUnavailable,
    InvalidInput,
    OutcomeUnknown,
    TurnAttached,
    TurnFailed,
    TurnledgerError,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.access.token import TokenScope
from turnledger.model.event import Event, TurnFinished
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import AttemptState, Turn
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.context_limit import REDUCED
from turnledger.server.access.auth import Principal
from turnledger.server.access.guard import RETRY_COUNT, RequestHead
from turnledger.server.access.limits import Slot
from turnledger.server.errors import (
    ClientGone,
    RequestRefused,
    error_body,
    kind_of,
    name_field,
    shutdown_error,
)
from turnledger.server.models.models import ResolvedModel
from turnledger.server.models.redaction import RedactedModel
from turnledger.server.ops import logs
from turnledger.server.requests.allowed_fields import restrict_settings
from turnledger.server.requests.body import read_body
from turnledger.server.requests.turn import RECORDED_FIELDS, TurnTerms
from turnledger.server.service import Service
from turnledger.server.wire.client_stream import ClientStream, Headers, cut_of
from turnledger.server.wire.events import COMMENT
from turnledger.server.wire.sse import EVENTS

_JSON = (b"content-type", b"application/json")

AnyTerms = TypeVar("AnyTerms", bound=TurnTerms)
ErrorBytes: TypeAlias = Callable[[BaseException], bytes]
"""Encodes an error for a stream that has begun."""


class TurnExchange:
    """A request and its response. Used once, by the task of the request."""

    def __init__(
        self, service: Service, scope: Scope, receive: Receive, send: Send, slot: Slot, error: ErrorBytes
    ) -> None:
        self.service = service
        self.scope = scope
        self.state: dict[str, Any] = scope["state"]
        self.principal: Principal = self.state["principal"]
        self.slot = slot
        self.client = ClientStream(send, receive, cut=cut_of(scope))
        self.turn: TurnId | None = None
        self.queued_in: ConversationId | None = None
        """The conversation in whose lane the turn waited."""
        self.conversation_state = ""
        """How the turn relates to its conversation, for the client: created, continued, branched."""
        self.began_at = 0.0
        self.is_successful = False
        self.has_sent_end = False
        """Whether the stream has reported the end of the turn: an error then adds nothing."""
        self.has_first_token = False
        self.encode_error = error
        """Encodes an error for a stream that has begun."""
        self._is_kept_alive = False
        self._is_stream = False
        self._headers: dict[bytes, bytes] = {}

    # The request.

    def resolve_model(
        self, requested: str, settings: Mapping[str, Any], stream_options: msgspec.Raw | None
    ) -> tuple[ChatModel, Mapping[str, Any]]:
        """Return the model and the fields for it. Raises RequestRefused if the caller may not use them."""
        return resolve_model(
            self.service, self.principal, requested, settings, stream_options, self.state["head"]
        )

    def with_defaults(self, request: AnyTerms, model: str) -> AnyTerms:
        """Return the request with the defaults of its policies; `model` is the name that the client knows."""
        policies = self.service.policy_defaults.complete(request.policies, self.principal, model)
        return replace(request, policies=policies) if policies is not request.policies else request

    def turn_options(self, request: TurnTerms, model: str, settings: Mapping[str, Any]) -> TurnOptions:
        """Return the options of the turn; `model` is the name that the client knows."""
        policies = request.policies
        options: TurnOptions = {"attach": True, "details": _details(model, settings)}
        context = request.context or self.service.models.context(model, settings)
        if context is not None:
            options["context"] = context
        if policies.on_busy is not None:
            options["on_busy"] = policies.on_busy
        if policies.on_stop is not None:
            options["on_stop"] = policies.on_stop
        if policies.on_failure is not None:
            options["on_failure"] = policies.on_failure
        if request.idempotency_key is not None:
            options["idempotency_key"] = request.idempotency_key
        if request.fingerprint:
            options["retry"] = Retry(request.fingerprint, request.retry)
        return options

    def chats(self, scope: str | None) -> Chats:
        """The chats that the turn may run on, while its caller stays authorized."""
        head, authenticator = self.state["head"], self.service.authenticator
        return authenticator.changeable_chats(self.principal, head, TokenScope.TURNS_RUN, scope or "")

    def chat_of(self, turn: TurnId) -> Awaitable[Chat]:
        return self.service.chats(self.principal).of_turn(turn)

    # The response.

    def set_header(self, name: bytes, value: str) -> None:
        """Set a header; has no effect once the response has begun."""
        self._headers[name] = value.encode("latin-1")

    def set_turn(self, conversation: ConversationId, state: str, turn: TurnId) -> None:
        self.set_header(b"x-conversation-id", conversation)
        self.set_header(b"x-conversation-state", state)
        self.set_header(b"x-turn-id", turn)
        self.turn, self.conversation_state = turn, state
        self.state["conversation"], self.state["turn"] = conversation, turn

    def record_retry(self, outcome: str) -> None:
        """Count a request that an earlier one answers, and mark it for the log."""
        self.service.metrics.turns(outcome).inc()
        self.state["retry"] = outcome

    def report_reduced(self, details: Mapping[str, Any]) -> None:
        """Set the header of an answer whose model had refused to be shown more, by the turn's details."""
        if REDUCED in details:
            self.set_header(b"x-context-reduced", f"last={details[REDUCED]['turns']}")

    def record_first_token(self) -> None:
        self.has_first_token = True
        self.service.metrics.first_token.observe(time.monotonic() - self.began_at)

    def keep_alive(self, block: TurnBlock | None = None, state: str = "continued") -> None:
        """Send comments while the stream is silent. The response may begin with one while its turn waits for
        its lane."""
        self._is_kept_alive = True
        self.service.streams.keep_alive(self.client, partial(self._waiting_headers, block, state))

    def _waiting_headers(self, block: TurnBlock | None, state: str) -> Headers | None:
        """Return the headers of a turn that waits for its lane; None if it does not wait."""
        if block is None or (conversation := block.waits_in) is None:
            return None
        return self._queued_headers(block.id, state, conversation)

    def begin_queued(self, turn: TurnId, state: str, conversation: ConversationId) -> None:
        """Begin the response while the turn waits for its lane: its client can then stop it by its id."""
        self.client.begin(200, self._queued_headers(turn, state, conversation))
        self.client.write(COMMENT)

    def _queued_headers(self, turn: TurnId, state: str, conversation: ConversationId) -> Headers:
        """Return the headers of a stream that begins before its turn."""
        self.queued_in = conversation
        values = {b"x-conversation-id": conversation, b"x-conversation-state": state, b"x-turn-id": turn}
        return [*((name, value.encode()) for name, value in values.items()), EVENTS]

    def send_whole(self, body: bytes, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        length = (b"content-length", b"%d" % len(body))
        self.is_successful = status < 400
        self.client.begin(status, [*self._headers.items(), _JSON, length, *headers])
        self.client.end(body)

    def begin(self, content_type: bytes) -> None:
        """Begin a response of any type."""
        self._is_stream = True
        self.service.metrics.streams.inc()
        self.client.begin(200, [*self._headers.items(), (b"content-type", content_type)])

    def write(self, body: bytes) -> None:
        if not self._is_stream:
            self._begin_stream()
        self.client.write(body)

    def end(self, body: bytes = b"") -> None:
        if not self._is_stream:
            self._begin_stream()
        self.is_successful = True
        self.client.end(body)

    @property
    def has_begun_stream(self) -> bool:
        """Whether the client was sent more of a stream than comments."""
        return self._is_stream

    def _begin_stream(self) -> None:
        self._is_stream = True
        self.service.metrics.streams.inc()
        if not self.client.has_begun:  # it has if the turn waited for its lane
            self.client.begin(200, [*self._headers.items(), EVENTS])
        if self._is_kept_alive:
            self.service.streams.keep_alive(self.client)

    def fail(self, problem: BaseException) -> None:
        """Send the error, in the stream if that has begun, and log its code."""
        name_field(problem, self.state["fields"])
        if isinstance(problem, TurnFailed) and self.principal.is_narrowed:
            problem = TurnFailed()  # without the words of an upstream that another caller's turn received
        if isinstance(problem, TurnledgerError):
            self.state["code"] = problem.code
            if problem.earlier is not None and self.turn is None:
                turn, self.state["conversation"] = problem.earlier
                if turn is not None:
                    self.state["turn"] = turn
                if is_repeat(problem):
                    self.record_retry("replayed")
        if self.client.has_begun:
            self.client.end(b"" if self.has_sent_end else self.encode_error(problem))
        else:
            kind = kind_of(problem)
            self.send_whole(error_body(problem), kind.status, kind.headers)

    async def close(self) -> bool:
        """Wait until everything is sent, or the client took too long; return whether it is."""
        try:
            return await self.client.close(self.service.settings.limits.send_wait)
        finally:  # also when this wait is cancelled
            if self._is_kept_alive:
                self.service.streams.stop_keep_alive(self.client)
            if self._is_stream:
                self.service.metrics.streams.dec()


class EventSender:
    """Sends the events of a turn to the client, those of one batch of chunks in one piece. A separate class:
    the turn refers to it, and must not thereby refer to the request, or the two would form a reference
    cycle. With `has_own_end`, the API ends the stream of a completed turn itself, after the `rest`."""

    def __init__(self, exchange: TurnExchange, *, has_own_end: bool = False) -> None:
        self._exchange = exchange
        self._has_own_end = has_own_end
        self._taken: list[Event] = []
        self._encode: Callable[[Sequence[Event]], bytes] | None = None

    def on_event(self, event: Event) -> None:
        """Take an event; none is sent before `begin`, since the headers need the place of the turn."""
        self._taken.append(event)
        if isinstance(event, TurnFinished) and self._encode is not None:
            if self._has_own_end and event.state is AttemptState.COMPLETED:
                return
            # The last event reports how the turn ended, here as to every other reader.
            self._exchange.has_sent_end = True
            self.flush()
            self._encode = None  # it may refer to the turn: break the cycle

    def begin(self, encode: Callable[[Sequence[Event]], bytes]) -> None:
        """Send what was taken: the place of the turn is known."""
        self._encode = encode
        if sent := self._take():
            self._exchange.write(sent)

    def flush(self, _: object = None) -> None:
        """Send what was taken; called with each batch of chunks that the model has sent."""
        if self._taken and self._encode is not None:
            if not self._exchange.has_first_token:
                self._exchange.record_first_token()
            self._exchange.write(self._take())

    def rest(self) -> bytes:
        """Return what is left to send of a completed turn."""
        sent, self._encode = self._take(), None
        return sent

    def _take(self) -> bytes:
        sent = self._encode(self._taken) if self._encode is not None else b""
        self._taken.clear()
        return sent


def resolve_model(
    service: Service,
    principal: Principal,
    requested: str,
    settings: Mapping[str, Any],
    stream_options: msgspec.Raw | None = None,
    head: RequestHead | None = None,
) -> tuple[ChatModel, Mapping[str, Any]]:
    """Return the model and the fields for it. Raises RequestRefused if the caller may not use them. `head` is
    that of the request, if its client waits."""
    found = service.models.find(requested, principal)
    service.models.check_fields(settings, principal)
    model = found.model if head is None else service.models.for_client(found.model, head)
    if principal.token is not None and principal.token.is_narrowed:
        server = service.settings
        max_length = server.limits.narrowed_max_tokens
        settings = restrict_settings(
            settings, stream_options, principal.token, server.passed_fields, max_length, found
        )
        model = RedactedModel(model)
    name = found.upstream_name
    return model, settings if name == requested else {**settings, "model": name}


def _details(model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a request beside its input; `recorded_settings` reads it."""
    details: dict[str, Any] = {"model": model}
    details |= {name: settings[name] for name in ("tools", "metadata") if name in settings}
    others = {name: settings[name] for name in settings if name in RECORDED_FIELDS and name not in details}
    return details | {"settings": others} if others else details


def recorded_settings(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for the model that were recorded with a turn."""
    others = details.get("settings")
    settings = dict(others) if isinstance(others, Mapping) else {}
    return settings | {name: details[name] for name in ("model", "tools", "metadata") if name in details}


class ApiTurn(Protocol):
    """A turn in the format of one API. It writes to the exchange, and calls nothing back."""

    block: TurnBlock
    on_disconnect: OnDisconnect
    title_model: ResolvedModel | None
    """The model that titles a new chat if the settings name none; None: its first words are the title."""

    async def answer(self, running: RunningTurn) -> None:
        """Run the model. Send output that the client may receive before the commit as it comes."""

    async def finish(self, running: RunningTurn, *, is_cancelled: bool = False) -> None:
        """End the response: the turn is committed. Does not wait if `is_cancelled`."""

    async def replay(self, turn: Turn) -> None:
        """Respond with a turn that was committed earlier, for the same request."""

    async def follow(self, turn: TurnId) -> None:
        """Respond with a turn that another request runs, while it runs."""


class TurnApi(NamedTuple):
    read: Callable[[TurnExchange, bytes], Awaitable[ApiTurn | None]]
    """Reads a request. Returns its turn to run, or None if it has responded without one."""
    error: ErrorBytes


class TurnEndpoint:
    """A plain ASGI application that runs turns."""

    def __init__(self, service: Service, api: TurnApi) -> None:
        self._service = service
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, limits = self._service, self._service.settings.limits
        principal: Principal = scope["state"]["principal"]
        slot = service.quotas.admit_turn(principal.caller)
        exchange = TurnExchange(service, scope, receive, send, slot, self._api.error)
        run: TurnRun | None = None
        try:
            turn = await self._api.read(
                exchange, await read_body(scope, receive, limit=limits.body_bytes, wait=limits.body_wait)
            )
            if turn is not None:
                run = TurnRun(exchange, turn)
                await run.run()
        except ClientGone:
            raise
        except TurnledgerError as problem:
            await self._fail(exchange, problem)
        except asyncio.CancelledError:
            if not exchange.is_successful:
                exchange.fail(shutdown_error())
            raise
        except Exception as problem:
            logs.log_unexpected(problem, request_id=exchange.state["request_id"])
            exchange.fail(problem)
        finally:
            slot.release()  # the turn has ended, even if the client is slow to read its end
            is_complete = await exchange.close()
            if run is not None:
                run.record_delivery(is_complete=is_complete)

    # Separate functions: a frame and an exception that refer to each other live until the next garbage
    # collection, and the request body with them.

    async def _fail(self, exchange: TurnExchange, problem: TurnledgerError) -> None:
        try:
            reported = (
                problem if exchange.turn is not None else await self._error_before_begin(exchange, problem)
            )
        except asyncio.CancelledError:  # a stream that has begun must not end without an error
            exchange.fail(shutdown_error())
            raise
        exchange.fail(reported)

    async def _error_before_begin(self, exchange: TurnExchange, problem: TurnledgerError) -> TurnledgerError:
        """Return the error to report when no begin has checked that the caller is still authorized: a revoked
        caller receives only the authorization error."""
        try:
            await self._service.authenticator.admit(exchange.state["head"])
        except TurnledgerError as refused:
            return refused
        return problem


class TurnRun:
    """Runs the turn of one exchange. Used once, by the task of the request."""

    def __init__(self, exchange: TurnExchange, turn: ApiTurn) -> None:
        self._exchange = exchange
        self._service = exchange.service
        self._turn = turn
        self._block = turn.block
        self._on_disconnect = turn.on_disconnect
        self._stopping: asyncio.Task[None] | None = None
        self._followed: TurnId | None = None
        self._following: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run the turn, and respond with it. Raises the error to report."""
        exchange, service, metrics = self._exchange, self._service, self._service.metrics
        running: RunningTurn | None = None
        requested_at = time.monotonic()
        exchange.client.watch(self._client_left)
        try:
            async with self._block as running:
                exchange.slot.begin()
                exchange.began_at = time.monotonic()
                metrics.lane_wait.observe(exchange.began_at - requested_at)
                self._set_turn(running.conversation.id, running.began, running.id)
                if self._stopping is not None:
                    # The client left while the turn began, too early to find and stop it.
                    running.stop(self._on_disconnect.value)
                    raise TurnStopped
                await self._turn.answer(running)
                commit_began_at = time.monotonic()
            metrics.commit.observe(time.monotonic() - commit_began_at)
            await self._turn.finish(running)
            metrics.turns("completed").inc()
            if service.titles is not None and running.number == 1 and running.turn is not None:
                service.titles.enqueue(running.conversation, running.turn, self._turn.title_model)
        except TurnReplayed as replay:
            exchange.record_retry("replayed")
            self._set_turn(replay.conversation, "continued", replay.turn.id)
            exchange.set_header(b"idempotency-replayed", "true")
            await self._turn.replay(replay.turn)
        except TurnAttached as attached:
            exchange.record_retry("joined")
            exchange.slot.begin()
            self._set_turn(attached.conversation, "continued", attached.turn)
            if not exchange.client.is_broken:
                await self._follow(attached.turn)
        except asyncio.CancelledError:
            # Cancelled during the commit, the turn may be committed, and the client must learn that. A turn
            # that was interrupted and kept is committed, too, but is not an answer.
            is_whole = running is not None and running.state is AttemptState.COMPLETED
            metrics.turns("completed" if is_whole else "failed").inc()
            if is_whole and running is not None:
                await self._turn.finish(running, is_cancelled=True)
            raise
        except BaseException as problem:
            if not is_repeat(problem):
                metrics.turns(outcome_of(problem)).inc()
            raise
        finally:
            self._stop_reading()
            if exchange.client.is_broken:
                service.audience.forget(self._block.id)
            if self._stopping is not None:
                await asyncio.wait((self._stopping,))

    def _set_turn(self, conversation: ConversationId, state: str, turn: TurnId) -> None:
        exchange = self._exchange
        # It waited under its own id; a chat that was deleted meanwhile left its key to another one.
        if exchange.client.has_begun and (turn, conversation) != (self._block.id, exchange.queued_in):
            raise moved_error()
        exchange.set_turn(conversation, state, turn)

    async def _follow(self, turn: TurnId) -> None:
        """Follow a turn that another request runs. The turn does not depend on this reader, so this request
        ends when its client leaves or its token ends."""
        self._service.audience.join(turn)
        self._followed = turn
        following = self._following = asyncio.create_task(self._turn.follow(turn), name="turnledger follower")
        try:
            with self._service.token_watch.while_authorized(self._exchange.principal):
                await asyncio.wait((following,))
        finally:
            following.cancel()
        if not following.cancelled():
            following.result()

    def record_delivery(self, *, is_complete: bool) -> None:
        """Record whether the client received its answer: if not, its next try counts as the same request. In
        doubt nothing is recorded, and the turn runs again."""
        if is_complete and self._exchange.is_successful:
            self._service.host.delivered(self._block)
        elif not self._exchange.is_successful or self._is_lost:
            self._service.host.lost(self._block)

    @property
    def _is_lost(self) -> bool:
        """Whether a client that has left certainly lost its answer, and may retry. One that does not count
        its tries only retries what has not begun: within an answer, a person has stopped it."""
        exchange = self._exchange
        is_stopped = exchange.has_begun_stream and not exchange.state["head"][RETRY_COUNT]
        return not (exchange.client.may_have_arrived or is_stopped)

    # When the client leaves.

    def _client_left(self) -> None:
        if self._is_lost:
            self._service.host.lost(self._block)
        self._stop_reading()
        if self._following is not None:
            self._following.cancel()
        if self._on_disconnect is OnDisconnect.YIELD:
            self._service.host.unread(self._block)
        elif self._on_disconnect is not OnDisconnect.CONTINUE:
            self._service.audience.when_gone(self._block.id, self._begin_to_stop)

    def _stop_reading(self) -> None:
        if self._followed is not None:
            self._service.audience.leave(self._followed)
            self._followed = None

    def _begin_to_stop(self) -> None:
        self._stopping = asyncio.create_task(self._stop(self._block.id), name="turnledger stop")

    async def _stop(self, turn: TurnId) -> None:
        with suppress(TurnledgerError):  # it has ended or not begun: nothing to stop
            chat = await self._exchange.chat_of(turn)
            await chat.stop(turn, policy=self._on_disconnect.value)


def moved_error() -> RequestRefused:
    """Return the error for a request that waited as one turn of one chat, and turned out to be another."""
    message = "The turn runs under another id or in another chat. Send the request again to follow it."
    return RequestRefused(503, "turn_moved", message)


def is_repeat(problem: BaseException) -> bool:
    """Return whether an earlier request with the same idempotency key was stopped, and nothing of it kept."""
    return isinstance(problem, TurnStopped) and problem.earlier is not None


def outcome_of(problem: BaseException) -> str:
    """Return the outcome of a turn whose block raised this, as a label of the metrics."""
    if isinstance(problem, TurnStopped):
        return "stopped"
    if isinstance(problem, OutcomeUnknown):
        return "unknown"
    is_refused = isinstance(problem, InvalidInput | ConversationUnavailable | ConversationBusy)
    return "refused" if is_refused else "failed"
