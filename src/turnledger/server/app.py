"""The server as an ASGI application: guard, routes, errors, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from urllib.parse import parse_qsl

from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnledger.errors import TurnledgerError
from turnledger.ledger import Ledger
from turnledger.server.access.auth import Principal
from turnledger.server.access.guard import Guard, RequestHead
from turnledger.server.chat_page.built import BuiltPage
from turnledger.server.config.settings import Settings
from turnledger.server.errors import ClientGone, Refused, answer_error, shutting_down
from turnledger.server.models.models import Models
from turnledger.server.openapi.document import with_description
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.ops.counters import Sharing
from turnledger.server.ops.logs import current_request, log, unexpected
from turnledger.server.requests.turn import KEEP, not_for_this
from turnledger.server.routes import (
    branches,
    catalogue,
    chats,
    completions,
    create_turn,
    deletion,
    events,
    health,
    models,
    page,
    search,
    shares,
    tokens,
    transfer,
    turns,
)
from turnledger.server.service import Service

CLIENT_LEFT = 499
"""Logged and counted in place of a status when the client left before the response."""
LOGGED_PATH = 200
NATIVE = "/api/"
"""Paths of our own API. On others, clients of other servers send parameters and headers that we ignore."""
CONDITION = b"if-match"
_SHOWN = 40


def make_app(
    ledger: Ledger,
    known: Models,
    settings: Settings,
    sharing: Sharing | None = None,
    built: BuiltPage | None = None,
) -> App:
    """Make the application over an open ledger, which the caller closes. `sharing` is for one of several
    workers. `built` replaces the chat page of the package."""
    service = Service(ledger, known, settings, sharing, built)
    return App(service, all_endpoints(service))


def all_endpoints(service: Service) -> list[Endpoint]:
    return with_description(
        [
            *completions.endpoints(service),
            *models.endpoints(service),
            *create_turn.endpoints(service),
            *turns.endpoints(service),
            *branches.endpoints(service),
            *catalogue.endpoints(service),
            *chats.endpoints(service),
            *deletion.endpoints(service),
            *events.endpoints(service),
            *search.endpoints(service),
            *transfer.endpoints(service),
            *tokens.endpoints(service),
            *shares.endpoints(service),
            *page.endpoints(service),
            *health.endpoints(service),
        ]
    )


class App:
    """Serves requests until it is shut down.

    Endpoints find `head`, `principal` and `request_id` in `scope["state"]`, and may store `turn`,
    `conversation` and the `code` of an error there, for the log.
    """

    def __init__(self, service: Service, endpoints: Sequence[Endpoint]) -> None:
        self.service = service
        self.endpoints = endpoints
        self._guard = Guard(service.settings)
        self._routes = [(Route(each.path, each.answer, methods=[each.method]), each) for each in endpoints]
        self._direct = {
            (endpoint.method, endpoint.path): (route.app, endpoint)
            for route, endpoint in self._routes
            if "{" not in endpoint.path
        }
        self._pages = frozenset(endpoint.path for endpoint in endpoints if endpoint.page_policy is not None)
        self._apart = {endpoint.path for endpoint in endpoints if endpoint.is_apart}
        self._open: set[asyncio.Task[object]] = set()
        self._request_ended = asyncio.Event()
        self._hurries = False
        self._parting: tuple[tuple[bytes, bytes], ...] = ()
        self.is_tokenless = False
        """Whether the store had no token when the server started."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - for the type checker
            self._open.add(task)
            self.service.quotas.request_opened()
            try:
                await self._answer(scope, receive, send)
            finally:
                self._open.discard(task)
                self.service.quotas.request_closed()
                self._request_ended.set()
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def drain(self, grace: float, cleaning: float = 5.0) -> bool:
        """Accept no more requests, and wait until the open ones have ended. After `grace` seconds, or a call
        of `hurry`, they are cancelled: turns end by their failure policy, streams with an error. Return
        whether all have ended within `cleaning` more seconds."""
        self.service.shutting_down.set()
        self.part()
        timer = asyncio.get_running_loop().call_later(grace, self.hurry)
        try:
            while self._open and not self._hurries:
                self._request_ended.clear()
                await self._request_ended.wait()
            async with asyncio.timeout(cleaning):
                while self._open:
                    self._request_ended.clear()
                    await self._request_ended.wait()
        except TimeoutError:
            return False
        finally:
            timer.cancel()
            if self.service.titles is not None:
                await self.service.titles.close()
            await self.service.admission.note_uses()
        return True

    def part(self) -> None:
        """Close each connection after its next response: another worker serves the next request."""
        self._parting = ((b"connection", b"close"),)

    def hurry(self) -> None:
        """Cancel the open requests, each once, so that their cleanup is not cancelled."""
        if self._hurries:
            return
        if self._open:
            log.warning("requests_cancelled", requests=len(self._open))
        self._hurries = True
        self._request_ended.set()
        for task in self._open:
            task.cancel()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.drain(self.service.settings.grace)
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        head = RequestHead(scope)
        state = scope.setdefault("state", {})
        state["head"] = head
        state["request_id"] = request_id = self._guard.request_id(head)
        current_request.set(request_id)
        headers = (*self._guard.answer_headers(head), (b"x-request-id", request_id.encode()), *self._parting)
        answer = Outgoing(send, headers)
        endpoint: Endpoint | None = None
        try:
            self._guard.check(head, is_page=scope["path"] in self._pages and scope["method"] == "GET")
            preflight = self._guard.preflight_headers(head) if scope["method"] == "OPTIONS" else None
            if preflight is not None:
                await _answer_empty(answer, preflight)
            else:
                endpoint, app = self._find(scope)
                if endpoint.page_policy is not None:
                    is_own = endpoint.is_own_frame
                    answer.replace(self._guard.page_policy(endpoint.page_policy, is_own_frame=is_own))
                if endpoint.caching is not None:
                    answer.caching = endpoint.caching
                if not endpoint.is_public:
                    state["principal"] = await self._admit(endpoint, head)
                    if endpoint.is_stream and self.service.audit.is_wanted:
                        self.service.audit.request(endpoint, scope, None)  # it may be open for days
                check_understood(endpoint, scope)
                if endpoint.is_public or endpoint.checks_version or endpoint.is_stream:
                    await app(scope, receive, answer)
                else:
                    await self._answer_counted(app, scope, receive, answer)
        except ClientGone:
            pass
        except asyncio.CancelledError:
            if not self.service.shutting_down.is_set():
                raise
            if not answer.status:  # otherwise the endpoint has sent the error in its stream
                await answer_error(answer, shutting_down(), request_id)
        except Exception as problem:
            if isinstance(problem, TurnledgerError):
                state["code"] = problem.code
            await self._answer_problem(answer, problem, request_id)
        finally:
            self._note(scope, answer.status or CLIENT_LEFT, time.perf_counter() - began)
            is_audited = endpoint is not None and (not endpoint.is_public or "audit" in state)
            if endpoint is not None and is_audited and self.service.audit.is_wanted:
                self.service.audit.request(endpoint, scope, answer.status or CLIENT_LEFT)

    async def _answer_counted(self, app: ASGIApp, scope: Scope, receive: Receive, answer: Outgoing) -> None:
        who: Principal = scope["state"]["principal"]
        place = self.service.quotas.other(who.counted_as, is_tokenless=who.token is None, link=who.link)
        try:
            await app(scope, receive, answer)
        finally:
            place.leave()

    async def _answer_problem(self, answer: Outgoing, problem: BaseException, request_id: str) -> None:
        if not answer.status:
            await answer_error(answer, problem, request_id)
        elif isinstance(problem, TurnledgerError):
            # A response that has begun cannot be undone: the server closes the connection.
            log.warning("answer_cut", code=problem.code)
        else:
            unexpected(problem, request_id=request_id)

    async def _admit(self, endpoint: Endpoint, head: RequestHead) -> Principal:
        admission = self.service.admission
        principal = admission.recall(head) if endpoint.checks_version or endpoint.is_stream else None
        if principal is not None and endpoint.is_stream:
            # Refuse from the cache, without the store; an admitted caller is looked up below.
            is_tokenless = principal.token is None
            self.service.quotas.look_at_streams(
                principal.owner, is_tokenless=is_tokenless, link=principal.link
            )
        if principal is None or not endpoint.checks_version or not principal.has(endpoint.needs):
            principal = await admission.admit(head)  # also before a 403: the token may have ended since
        if principal.token is not None or not endpoint.is_open_at_first:
            principal.check(endpoint.needs)
        if principal.is_reader and not endpoint.is_for_readers:
            message = "A link to a chat allows reading that chat only. Request it by its id."
            raise Refused(403, "readers_only_read", message)
        return principal

    def _find(self, scope: Scope) -> tuple[Endpoint, ASGIApp]:
        method, path = scope["method"], scope["path"]
        found = self._direct.get((method, path))
        if found is None:
            found = self._match(scope)
        app, endpoint = found
        if self.service.shutting_down.is_set() and not endpoint.while_ending:
            raise shutting_down()
        if not endpoint.while_ending:
            self.service.quotas.look_at_requests()
        return endpoint, app

    def _match(self, scope: Scope) -> tuple[ASGIApp, Endpoint]:
        allowed: set[str] = set()
        for route, endpoint in self._routes:
            if scope["path"] in self._apart and endpoint.path != scope["path"]:
                continue
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                scope.update(child_scope)
                return route.app, endpoint
            if match is Match.PARTIAL:
                allowed |= route.methods or set()
        if allowed:
            headers = [(b"allow", ", ".join(sorted(allowed)).encode())]
            message = f"This path does not take {scope['method']}, but {', '.join(sorted(allowed))}."
            raise Refused(405, "method_not_allowed", message, headers=headers)
        raise Refused(404, "unknown_url", "Unknown path. /openapi.json lists all paths.")

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        self.service.metrics.answered(status)
        if log.is_enabled_for("info"):
            state = scope["state"]
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"][:LOGGED_PATH],
                status=status,
                ms=round(seconds * 1000, 1),
                **{name: state[name] for name in ("code", "turn", "conversation") if name in state},
            )


def check_understood(endpoint: Endpoint, scope: Scope) -> None:
    """Raise Refused (400) for an unknown or repeated query parameter; InvalidInput or Refused for a header
    that the endpoint does not support. A misspelt filter would list everything, and an ignored header would
    look like a promise."""
    if not endpoint.path.startswith(NATIVE):
        return
    if scope["query_string"]:
        _check_query(endpoint, scope["query_string"])
    if endpoint.method != "GET":
        _check_headers(endpoint, scope)


def _check_query(endpoint: Endpoint, query: bytes) -> None:
    names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    for name in names:
        if name not in endpoint.query:
            known = ", ".join(endpoint.query)
            remedy = f"Known: {known}." if known else "This path takes none."
            message = f"Unknown query parameter {name[:_SHOWN]!r}. {remedy}"
            raise Refused(400, "unknown_parameter", message, param=name[:_SHOWN])
        if names.count(name) > 1:
            raise Refused(
                400, "repeated_parameter", f"{name}: given more than once. Send it once.", param=name
            )


def _check_headers(endpoint: Endpoint, scope: Scope) -> None:
    """Check the headers that matter without a turn; clients send others with every request."""
    asked = {name: value for name, value in scope["headers"] if name in (CONDITION, KEEP)}
    if not asked:
        return
    if asked.get(CONDITION, b"*").strip() != b"*" and CONDITION.title().decode() not in endpoint.headers:
        message = "If-Match works with PATCH on a chat only. Omit it here."
        raise Refused(400, "invalid_if_match", message, param="If-Match")
    if KEEP in asked:
        raise not_for_this({KEEP})


class Outgoing:
    """A `send` that adds the common headers to every response, and records its status. It adds no coroutine
    between a stream and its connection."""

    __slots__ = ("_headers", "_send", "caching", "status")

    def __init__(self, send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self._send = send
        self._headers = headers
        self.caching: bytes | None = None
        """How browsers may cache a successful response; None: not at all."""
        self.status = 0
        """0 until a response has begun."""

    def replace(self, header: tuple[bytes, bytes]) -> None:
        others = [each for each in self._headers if each[0] != header[0]]
        self._headers = (header, *others)

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.caching is not None and self.status < 400:
                self.replace((b"cache-control", self.caching))
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        return self._send(message)


async def _answer_empty(send: Send, headers: Sequence[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b""})
