"""The state and services that all endpoints of one server share."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from starlette.requests import Request

from turnledger.api.json import decoder_of
from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.hosting import Host
from turnledger.ledger import Ledger
from turnledger.runners.context_limit import ContextMemory
from turnledger.server.access.audit_log import AuditLog
from turnledger.server.access.auth import Authenticator, Principal
from turnledger.server.access.cursors import ServerSeal
from turnledger.server.access.limits import Quotas
from turnledger.server.access.token_watch import TokenWatch
from turnledger.server.chat_page.files import BuiltPage, own_page
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.server.models.title_queue import Titles
from turnledger.server.ops.audience import Audience
from turnledger.server.ops.counters import LocalCounters, WorkerContext
from turnledger.server.ops.metrics import Metrics
from turnledger.server.ops.readiness import Readiness
from turnledger.server.requests.body import SMALL_BODY_BYTES, decode_body, read_body
from turnledger.server.requests.conversation_names import ConversationNames
from turnledger.server.requests.persistence import PersistencePolicy
from turnledger.server.requests.turn import PolicyDefaults
from turnledger.server.wire.sse import Streams

Body = TypeVar("Body")


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
        self.authenticator = Authenticator(ledger, host.tokens, settings, host.clock)
        self.cursor_seal = ServerSeal(host.tokens)
        self.settings = settings
        self.persistence = PersistencePolicy(settings.chats, host)
        has_names = settings.chats.named_by or settings.chats.skip_when_header
        self.names = ConversationNames(settings.chats) if has_names else None
        self.policy_defaults = PolicyDefaults(settings)
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

    async def chat_in(self, request: Request, principal: Principal | None = None) -> Chat:
        """Open the chat in the path of a request. `principal` is its caller, if looked up again meanwhile."""
        chats = self.chats(principal or request.state.principal)
        return await chats.conversation(request.path_params["chat"])

    async def read_request(
        self, request: Request, shape: type[Body], *, needs_body: bool = True, is_small: bool = True
    ) -> tuple[Body, Principal]:
        """Read a body, and look up the caller again: the token may have ended while the body arrived."""
        body = await self.read_body(request, shape, needs_body=needs_body, is_small=is_small)
        return body, await self.authenticator.admit(request.state.head)

    async def read_body(
        self, request: Request, shape: type[Body], *, needs_body: bool = True, is_small: bool = True
    ) -> Body:
        """Read and decode a body. Unless it `needs_body`, an empty one counts as `{}`. A small one, which
        holds no turn, has a lower limit, since many may arrive at once. Raises as `requests.body.read_body`
        and `decode_body` do."""
        limits = self.settings.limits
        limit = min(SMALL_BODY_BYTES, limits.body_bytes) if is_small else limits.body_bytes
        raw = await read_body(request.scope, request.receive, limit=limit, wait=limits.body_wait)
        return decode_body(raw if raw or needs_body else b"{}", decoder_of(shape))
