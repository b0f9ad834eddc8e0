"""The state and services that all endpoints of one server share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request

from turnledger.api.json import decoder_of
from turnledger.chats import Chats
from turnledger.hosting import Host
from turnledger.ledger import Ledger
from turnledger.server.access.audit_log import AuditLog
from turnledger.server.access.auth import Authenticator, Principal
from turnledger.server.access.cursors import ServerSeal
from turnledger.server.access.limits import Quotas
from turnledger.server.chat_page.built import BuiltPage, own_page
from turnledger.server.config.settings import Settings
from turnledger.server.models.titles import Titles
from turnledger.server.ops.counters import Audience, OwnBoard, Sharing
from turnledger.server.ops.metrics import Metrics
from turnledger.server.ops.readiness import Readiness
from turnledger.server.requests.body import decode_body, read_small_body
from turnledger.server.requests.persistence import PersistencePolicy
from turnledger.server.wire.sse import Streams

if TYPE_CHECKING:
    from turnledger.server.models.models import Models

Body = TypeVar("Body")


class Service:
    def __init__(
        self,
        ledger: Ledger,
        models: Models,
        settings: Settings,
        sharing: Sharing | None = None,
        page: BuiltPage | None = None,
    ) -> None:
        self.ledger = ledger
        host = self.host = Host(ledger)
        self.models = models
        self.page = own_page() if page is None else page
        self.admission = Authenticator(host.tokens, settings, host.clock)
        self.sealing = ServerSeal(host.tokens)
        self.settings = settings
        self.keeping = PersistencePolicy(settings.chats, host)
        self.board = OwnBoard() if sharing is None else sharing.board
        self.metrics = Metrics() if sharing is None else Metrics.shared(sharing.metrics_folder, sharing.part)
        namer = settings.chats.title_model and models.named(settings.chats.title_model)
        self.titles = Titles(host, namer) if namer else None
        self.audience = Audience(self.board)
        self.quotas = Quotas(settings.limits, self.board, self.metrics, host.clock)
        patience = settings.limits.send_wait
        self.streams = Streams(host.tokens, host.clock, self.quotas, self.metrics, patience)
        self.readiness = Readiness(host.probe)
        self.audit = AuditLog(settings.audit_log, host.clock)
        self.shutting_down = asyncio.Event()
        """Set when the shutdown begins: endless streams then end by themselves."""
        watch = self.metrics.watch
        watch("running_turns", "Turns that run.", lambda: host.at_work().running)
        watch("queue_length", "Turns that wait for others.", lambda: host.at_work().waiting)
        watch("clock_in_doubt", "Workers whose wall clock has jumped.", lambda: not host.clock.is_trusted)
        watch("event_readers", "Streams of events that are read.", lambda: host.at_work().readers)

    def chats(self, who: Principal, scope: str | None = None) -> Chats:
        """The chats that this caller may see."""
        return self.ledger.for_owner(who.owner, scope=scope, within=who.within)

    async def asked(self, request: Request, shape: type[Body]) -> tuple[Body, Principal]:
        """Read a small body, which may be empty, and look up the caller again: the token may have ended while
        the body arrived."""
        body = await read_small_body(request.scope, request.receive, self.settings.limits)
        asked = decode_body(body if body.strip() else b"{}", decoder_of(shape))
        return asked, await self.admission.admit(request.state.head)
