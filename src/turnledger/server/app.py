"""The server as an ASGI application: guard, routes, errors, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnledger.errors import InvalidId, TurnledgerError
from turnledger.ledger import Ledger
from turnledger.model.ids import ConversationId
from turnledger.server.access.auth import Principal
from turnledger.server.access.guard import RETRY_COUNT, Guard, RequestHead
from turnledger.server.chat_page.files import BuiltPage
from turnledger.server.config.settings import FORM_PATHS, PASSED_PATHS, Settings
from turnledger.server.errors import ClientGone, RequestRefused, name_field, send_error, shutdown_error
from turnledger.server.models.models import Models
from turnledger.server.openapi.document import with_document
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.ops.counters import WorkerContext
from turnledger.server.ops.logs import current_request, log, log_unexpected
from turnledger.server.requests.query import check_names
from turnledger.server.requests.turn import KEEP, KEY, unsupported_headers_error
from turnledger.server.routes import (
    branches,
    chat_history,
    chats,
    completions,
    conversations,
    events,
    flags,
    health,
    jobs,
    models,
    new_turn,
    page,
    passed_paths,
    responses,
    search,
    shares,
    tokens,
    transfer,
    turns,
)
from turnledger.server.service import Service
from turnledger.server.turns.background import BackgroundWork

CLIENT_LEFT = 499
"""Logged and counted in place of a status when the client left before the response."""
LOGGED_PATH_LENGTH = 200
NATIVE = "/api/"
"""Paths of our own API. On others, clients of other servers send parameters and headers that we ignore."""
IF_MATCH = b"if-match"
ROUTES: Sequence[tuple[str, Callable[[Service], list[Endpoint]]]] = (
    ("chat", completions.endpoints),
    ("upstream", passed_paths.endpoints),
    ("models", models.endpoints),
    ("turns", new_turn.endpoints),
    ("chats", flags.endpoints),
    ("turns", turns.endpoints),
    ("turns", jobs.endpoints),
    ("branches", branches.endpoints),
    ("chats", chat_history.endpoints),
    ("chats", chats.endpoints),
    ("chats", events.endpoints),
    ("chats", search.endpoints),
    ("transfer", transfer.endpoints),
    ("tokens", tokens.endpoints),
    ("shares", shares.endpoints),
    ("responses", responses.endpoints),
    ("conversations", conversations.endpoints),
    ("page", page.endpoints),
    ("health", health.endpoints),
)
"""The endpoints of each module, with the group under which the document lists them."""
_COUNT_DIGITS = 6
_CHATS = "/api/chats/"


def make_app(
    ledger: Ledger,
    available: Models,
    settings: Settings,
    worker_context: WorkerContext | None = None,
    chat_page: BuiltPage | None = None,
) -> App:
    """Make the application over an open ledger, which the caller closes. `worker_context` is for one of
    several workers. `chat_page` replaces the chat page of the package."""
    service = Service(ledger, available, settings, worker_context, chat_page)
    return App(service, all_endpoints(service))


def all_endpoints(service: Service) -> list[Endpoint]:
    made = [replace(each, tag=tag) for tag, endpoints in ROUTES for each in endpoints(service)]
    return with_document(made)


class App:
    """Serves requests until it is shut down.

    Endpoints find `head`, `principal`, `request_id`, `fields` and maybe `base_url_name` in `scope["state"]`,
    and may store `turn`, `conversation`, `retry` and the `code` of an error there, for the log.
    """

    def __init__(self, service: Service, endpoints: Sequence[Endpoint]) -> None:
        self.service = service
        self.background = BackgroundWork(service)
        """Runs background turns once it is started; `drain` ends it."""
        self.endpoints = endpoints
        self._guard = Guard(service.settings)
        self._routes = [(Route(each.path, each.handler, methods=[each.method]), each) for each in endpoints]
        self._direct = {
            (endpoint.method, endpoint.path): (route.app, endpoint)
            for route, endpoint in self._routes
            if "{" not in endpoint.path
        }
        self._pages = frozenset(endpoint.path for endpoint in endpoints if endpoint.page_policy is not None)
        # Also those that are switched off: their error says so.
        self._form_paths = frozenset(f"/v1/{path}" for path in FORM_PATHS)
        self._fixed_paths = {endpoint.path for endpoint in endpoints if endpoint.is_fixed_path}
        self._open: set[asyncio.Task[object]] = set()
        self._request_ended = asyncio.Event()
        self._is_cancelling = False
        self._closing_headers: tuple[tuple[bytes, bytes], ...] = ()
        self.is_tokenless = False
        """Whether the store had no token when the server started."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - for the type checker
            self._open.add(task)
            self.service.quotas.request_opened()
            try:
                await self._respond(scope, receive, send)
            finally:
                self._open.discard(task)
                self.service.quotas.request_closed()
                self._request_ended.set()
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def drain(self, grace: float, cleanup_time: float = 5.0) -> bool:
        """Accept no more requests, and wait until the open ones have ended. After `grace` seconds, or a call
        of `cancel_requests`, they are cancelled: turns end by their failure policy, streams with an error.
        Return whether all have ended within `cleanup_time` more seconds."""
        self.service.shutting_down.set()
        self.close_connections()
        await self.background.close()
        timer = asyncio.get_running_loop().call_later(grace, self.cancel_requests)
        try:
            while self._open and not self._is_cancelling:
                self._request_ended.clear()
                await self._request_ended.wait()
            async with asyncio.timeout(cleanup_time):
                while self._open:
                    self._request_ended.clear()
                    await self._request_ended.wait()
        except TimeoutError:
            return False
        finally:
            timer.cancel()
            if self.service.titles is not None:
                await self.service.titles.close()
            await self.service.authenticator.record_uses()
        return True

    def close_connections(self) -> None:
        """Close each connection after its next response: another worker serves the next request."""
        self._closing_headers = ((b"connection", b"close"),)

    def cancel_requests(self) -> None:
        """Cancel the open requests, each once, so that their cleanup is not cancelled."""
        if self._is_cancelling:
            return
        if self._open:
            log.warning("requests_cancelled", requests=len(self._open))
        self._is_cancelling = True
        self._request_ended.set()
        for task in self._open:
            task.cancel()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.background.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.drain(self.service.settings.grace)
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        head = RequestHead(scope)
        state = scope.setdefault("state", {})
        state["head"] = head
        if self.service.names is not None:
            self.service.names.split_path(scope)
        state["request_id"] = request_id = self._guard.request_id(head)
        current_request.set(request_id)
        headers = (
            *self._guard.response_headers(head),
            (b"x-request-id", request_id.encode()),
            *self._closing_headers,
        )
        response = ResponseSender(send, headers)
        endpoint: Endpoint | None = None
        try:
            is_page = scope["path"] in self._pages and scope["method"] == "GET"
            self._guard.check(head, is_page=is_page, takes_form=scope["path"] in self._form_paths)
            preflight = self._guard.preflight_headers(head) if scope["method"] == "OPTIONS" else None
            if preflight is not None:
                await _send_empty(response, preflight)
            else:
                endpoint, app = self._find(scope)
                state["fields"] = endpoint.fields
                if endpoint.page_policy is not None:
                    is_own = endpoint.is_own_frame
                    response.replace(self._guard.page_policy(endpoint.page_policy, is_own_frame=is_own))
                if endpoint.cache_control is not None:
                    response.cache_control = endpoint.cache_control
                if not endpoint.is_public:
                    state["principal"] = await self._admit(endpoint, head)
                    if endpoint.is_stream and self.service.audit.is_enabled:
                        self.service.audit.log_request(endpoint, scope, None)  # it may be open for days
                check_supported(endpoint, scope)
                if endpoint.is_public or endpoint.checks_version or endpoint.is_stream:
                    await app(scope, receive, response)
                else:
                    with self.service.quotas.admit_other(state["principal"].caller):
                        await app(scope, receive, response)
        except ClientGone:
            pass
        except asyncio.CancelledError:
            if not self.service.shutting_down.is_set():
                raise
            if not response.status:  # otherwise the endpoint has sent the error in its stream
                await send_error(response, shutdown_error(), request_id)
        except Exception as problem:
            if isinstance(problem, InvalidId):
                problem = explain_id(problem, scope)
            name_field(problem, state.get("fields", {}))
            if isinstance(problem, TurnledgerError):
                state["code"] = problem.code
            await self._send_problem(response, problem, request_id)
        finally:
            self._log_request(scope, response.status or CLIENT_LEFT, time.perf_counter() - began)
            is_audited = endpoint is not None and (not endpoint.is_public or "audit" in state)
            if endpoint is not None and is_audited and self.service.audit.is_enabled:
                self.service.audit.log_request(endpoint, scope, response.status or CLIENT_LEFT)

    async def _send_problem(self, response: ResponseSender, problem: BaseException, request_id: str) -> None:
        if not response.status:
            await send_error(response, problem, request_id)
        elif isinstance(problem, TurnledgerError):
            # A response that has begun cannot be undone: the server closes the connection.
            log.warning("answer_cut", code=problem.code)
        else:
            log_unexpected(problem, request_id=request_id)

    async def _admit(self, endpoint: Endpoint, head: RequestHead) -> Principal:
        authenticator = self.service.authenticator
        principal = authenticator.find_cached(head) if endpoint.checks_version or endpoint.is_stream else None
        if principal is not None and endpoint.is_stream:
            # Refuse from the cache, without the store; an admitted caller is looked up below.
            self.service.quotas.check_streams(principal.caller)
        if principal is None or not endpoint.checks_version or not principal.has(endpoint.needs):
            principal = await authenticator.admit(head)  # also before a 403: the token may have ended since
        if principal.token is not None or not endpoint.is_open_without_tokens:
            principal.check(endpoint.needs)
        if principal.is_reader and not endpoint.is_for_readers:
            message = "A link to a chat allows reading that chat only. Request it by its id."
            raise RequestRefused(403, "readers_only_read", message)
        return principal

    def _find(self, scope: Scope) -> tuple[Endpoint, ASGIApp]:
        method, path = scope["method"], scope["path"]
        found = self._direct.get((method, path))
        if found is None:
            found = self._match(scope)
        app, endpoint = found
        if self.service.shutting_down.is_set() and not endpoint.serves_while_ending:
            raise shutdown_error()
        if not endpoint.serves_while_ending:
            self.service.quotas.check_requests()
        return endpoint, app

    def _match(self, scope: Scope) -> tuple[ASGIApp, Endpoint]:
        allowed: set[str] = set()
        for route, endpoint in self._routes:
            if scope["path"] in self._fixed_paths and endpoint.path != scope["path"]:
                continue
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                scope.update(child_scope)
                return route.app, endpoint
            if match is Match.PARTIAL:
                allowed |= route.methods or set()
        if allowed:
            headers = [(b"allow", ", ".join(sorted(allowed)).encode())]
            message = (
                f"This path does not support {scope['method']}. Supported: {', '.join(sorted(allowed))}."
            )
            raise RequestRefused(405, "method_not_allowed", message, headers=headers)
        if scope["path"].startswith(_CHATS) and not scope["path"].startswith(_CHATS + ConversationId.prefix):
            # A conversation_key with slashes looks like a longer path.
            message = "Unknown path. Chats have ids (conv_…). To find one: GET /api/chats?conversation_key=…"
            raise RequestRefused(404, "unknown_url", message)
        if (passed := scope["path"].removeprefix("/v1/")) in PASSED_PATHS:
            message = (
                f"This path is switched off. List {passed!r} in `passed_paths` to pass it to the upstream."
            )
            raise RequestRefused(404, "unknown_url", message)
        raise RequestRefused(404, "unknown_url", "Unknown path. /openapi.json lists all paths.")

    def _log_request(self, scope: Scope, status: int, seconds: float) -> None:
        self.service.metrics.requests(status).inc()
        if log.is_enabled_for("info"):
            state = scope["state"]
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"][:LOGGED_PATH_LENGTH],
                status=status,
                ms=round(seconds * 1000, 1),
                **_retry_fields(state["head"]),
                **{name: state[name] for name in ("code", "retry", "turn", "conversation") if name in state},
            )


def _retry_fields(head: RequestHead) -> dict[str, object]:
    """Return what shows in the log that two requests are tries of one: the number of the try above 0, and a
    short digest of the idempotency key."""
    fields: dict[str, object] = {}
    count, key = head[RETRY_COUNT], head[KEY]
    if count.isdigit() and len(count) <= _COUNT_DIGITS and int(count):
        fields["try"] = int(count)
    if key:
        fields["key"] = hashlib.sha256(key).hexdigest()[:8]
    return fields


def explain_id(problem: InvalidId, scope: Scope) -> InvalidId:
    """Add the remedy if the error concerns the chat in the path: callers send its conversation_key there."""
    chat = scope.get("path_params", {}).get("chat")
    if chat is not None:
        try:
            ConversationId(chat)
        except InvalidId as invalid:
            return InvalidId(f"{invalid} To find a chat by its key: GET /api/chats?conversation_key=…")
    return problem


def check_supported(endpoint: Endpoint, scope: Scope) -> None:
    """Raise RequestRefused (400) for an unknown or repeated query parameter; InvalidInput or RequestRefused
    for a header that the endpoint does not support. A misspelt filter would list everything, and an ignored
    header would look like a promise."""
    if not endpoint.path.startswith(NATIVE):
        return
    if scope["query_string"]:
        check_names(scope["query_string"], endpoint.query)
    if endpoint.method != "GET":
        _check_headers(endpoint, scope)


def _check_headers(endpoint: Endpoint, scope: Scope) -> None:
    """Check the headers that matter without a turn; clients send others with every request."""
    checked = {name: value for name, value in scope["headers"] if name in (IF_MATCH, KEEP)}
    if not checked:
        return
    if checked.get(IF_MATCH, b"*").strip() != b"*" and IF_MATCH.title().decode() not in endpoint.headers:
        message = "If-Match works with PATCH on a chat only. Omit it here."
        raise RequestRefused(400, "invalid_if_match", message, param="If-Match")
    if KEEP in checked:
        raise unsupported_headers_error({KEEP})


class ResponseSender:
    """A `send` that adds the common headers to every response, and records its status. It adds no coroutine
    between a stream and its connection."""

    __slots__ = ("_headers", "_send", "cache_control", "status")

    def __init__(self, send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self._send = send
        self._headers = headers
        self.cache_control: bytes | None = None
        """How browsers may cache a successful response; None: not at all."""
        self.status = 0
        """0 until a response has begun."""

    def replace(self, header: tuple[bytes, bytes]) -> None:
        others = [each for each in self._headers if each[0] != header[0]]
        self._headers = (header, *others)

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.cache_control is not None and self.status < 400:
                self.replace((b"cache-control", self.cache_control))
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        return self._send(message)


async def _send_empty(send: Send, headers: Sequence[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b""})
