"""The state and services that all endpoints of one server share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request

from turnledger.api.json import decoder_of
from turnledger.chats import Chats
from turnledger.engine.turn.policies import NO_POLICIES, Policies, parse_policies
from turnledger.errors import InvalidInput
from turnledger.hosting import Authorization, Host
from turnledger.ledger import Ledger
from turnledger.model.access.token import PREFIX, TokenScope
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.context_limit import ContextMemory
from turnledger.server.access.audit_log import AuditLog
from turnledger.server.access.auth import Authenticator, Principal
from turnledger.server.access.cursors import ServerSeal
from turnledger.server.access.guard import RequestHead
from turnledger.server.access.limits import Quotas
from turnledger.server.access.token_watch import TokenWatch
from turnledger.server.chat_page.files import BuiltPage, own_page
from turnledger.server.config.settings import Settings
from turnledger.server.models.title_queue import Titles
from turnledger.server.ops.counters import Audience, LocalCounters, WorkerContext
from turnledger.server.ops.metrics import Metrics
from turnledger.server.ops.readiness import Readiness
from turnledger.server.requests.body import decode_body, read_small_body
from turnledger.server.requests.conversation_names import ConversationNames
from turnledger.server.requests.turn import RETRY_COUNT, PersistencePolicy
from turnledger.server.wire.sse import Streams

if TYPE_CHECKING:
    from turnledger.server.models.models import Models

Body = TypeVar("Body")
MOST_VIEWS = 256
"""Models held with the credentials of clients; of more clients, those that sent theirs last."""


class Service:
    def __init__(
        self,
        ledger: Ledger,
        models: Models,
        settings: Settings,
        worker_context: WorkerContext | None = None,
        page: BuiltPage | None = None,
    ) -> None:
        self.ledger = ledger
        host = self.host = Host(ledger)
        self.models = models
        self.context_memory = ContextMemory()
        self.page = own_page() if page is None else page
        self.authenticator = Authenticator(host.tokens, settings, host.clock)
        self.cursor_seal = ServerSeal(host.tokens)
        self.settings = settings
        self._credential_header = (settings.credential_header or "").lower().encode()
        self._view = lru_cache(MOST_VIEWS)(self._make_view)
        """Clients send the same credential with each request."""
        self.persistence = PersistencePolicy(settings.chats, host)
        has_names = settings.chats.named_by or settings.chats.skip_when_header
        self.names = ConversationNames(settings.chats) if has_names else None
        self._defaults = {
            name: model.defaults.over(settings.defaults)
            for name, model in settings.models.items()
            if model.defaults is not NO_POLICIES
        }
        self.counters = LocalCounters() if worker_context is None else worker_context.counters
        self.metrics = (
            Metrics()
            if worker_context is None
            else Metrics.shared(worker_context.metrics_folder, worker_context.part)
        )
        title_model = settings.chats.title_model
        titling = models.get(title_model) if title_model else None
        self.titles = None if title_model == "" else Titles(host, titling)
        self.audience = Audience(self.counters)
        self.quotas = Quotas(settings.limits, self.counters, self.metrics, host.clock)
        patience = settings.limits.send_wait
        self.token_watch = TokenWatch(host.tokens, host.clock)
        self.streams = Streams(self.token_watch, self.quotas, self.metrics, patience)
        self.readiness = Readiness(host.probe)
        self.audit = AuditLog(settings.audit_log, host.clock)
        self.shutting_down = asyncio.Event()
        """Set when the shutdown begins: endless streams then end by themselves."""
        self.metrics.count_taken_over(lambda: host.taken_over)
        export = self.metrics.export
        export("running_turns", "Running turns.", lambda: host.at_work().running)
        export("queue_length", "Turns in lane queues.", lambda: host.at_work().waiting)
        export("clock_in_doubt", "Workers whose wall clock has jumped.", lambda: not host.clock.is_trusted)
        export("event_readers", "Open event readers.", lambda: host.at_work().readers)

    def chats(self, principal: Principal, scope: str | None = None) -> Chats:
        """Return the chats that this caller may see."""
        return self.ledger.for_owner(principal.owner, scope=scope, within=principal.within)

    def for_client(self, model: ChatModel, head: RequestHead) -> ChatModel:
        """Return a model for this request: with the client's own credential for the upstream, if it sends
        one, and without retries, if the client has its own: they would multiply. Raises InvalidInput."""
        sent = head[self._credential_header] if self._credential_header else b""
        # The official clients count their retries; the AI SDK does not, and ignores x-should-retry.
        has_retries = bool(head[RETRY_COUNT]) or b"ai-sdk/" in head[b"user-agent"]
        if not (sent or has_retries):
            return model
        make_view = getattr(model, "for_client", None)
        if make_view is None:
            self._credential_in(sent)  # may raise
            return model
        return self._view(make_view, sent, has_retries)

    def _make_view(self, make_view: Callable[..., ChatModel], sent: bytes, has_retries: bool) -> ChatModel:
        return make_view(retries=not has_retries, api_key=self._credential_in(sent))

    def credential_of(self, head: RequestHead) -> str | None:
        """Return the client's own credential for the upstream, if the settings name a header for it. Raises
        InvalidInput for a token of this server, which no upstream may see."""
        return self._credential_in(head[self._credential_header]) if self._credential_header else None

    def _credential_in(self, sent: bytes) -> str | None:
        scheme, _, rest = sent.strip().partition(b" ")
        credential = (rest if scheme.lower() == b"bearer" else sent).decode("latin-1").strip()
        if credential.startswith(PREFIX):
            label = self.settings.credential_header
            raise InvalidInput(f"{label} has a token of Turnledger. Send the upstream's credential there.")
        return credential or None

    def with_defaults(self, given: Policies, principal: Principal, model: str = "") -> Policies:
        """Return the policies of a request with their defaults: those of its token, its model, the server."""
        defaults = self._defaults.get(model, self.settings.defaults)
        if principal.token is not None and principal.token.defaults:
            defaults = parse_policies(principal.token.defaults).over(defaults)
        return given if defaults is NO_POLICIES else given.over(defaults)

    def changeable_chats(
        self, principal: Principal, head: RequestHead, needed: TokenScope, scope: str | None = None
    ) -> Chats:
        """Return chats whose changes authorize the caller again if a token was revoked meanwhile."""
        readmit = partial(self.authenticator.readmit, head, needed)
        authorization = Authorization(principal.version, principal.expires_at, readmit, principal.token_id)
        owner, within = principal.owner, principal.within
        return self.ledger.for_owner(owner, scope=scope, within=within, authorization=authorization)

    async def read_request(
        self, request: Request, shape: type[Body], *, needs_body: bool = True
    ) -> tuple[Body, Principal]:
        """Read a small body, and look up the caller again: the token may have ended while the body
        arrived."""
        raw = await read_small_body(request.scope, request.receive, self.settings.limits)
        body = decode_body(raw if raw or needs_body else b"{}", decoder_of(shape))
        return body, await self.authenticator.admit(request.state.head)
