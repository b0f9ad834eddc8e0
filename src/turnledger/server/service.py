"""The state and services that all endpoints of one server share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request

from turnledger.api.json import decoder_of
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
        self.models = models
        self.page = own_page() if page is None else page
        self.admission = Authenticator(ledger.tokens, settings, ledger.clock)
        self.sealing = ServerSeal(ledger.tokens)
        self.settings = settings
        self.keeping = PersistencePolicy(settings.chats, ledger)
        self.board = OwnBoard() if sharing is None else sharing.board
        self.metrics = Metrics() if sharing is None else Metrics.shared(sharing.metrics_folder, sharing.part)
        namer = settings.chats.title_model and models.named(settings.chats.title_model)
        self.titles = Titles(ledger, namer) if namer else None
        self.audience = Audience(self.board)
        self.quotas = Quotas(settings.limits, self.board, self.metrics, ledger.clock)
        patience = settings.limits.send_wait
        self.streams = Streams(ledger.tokens, ledger.clock, self.quotas, self.metrics, patience)
        self.readiness = Readiness(ledger.probe)
        self.audit = AuditLog(settings.audit_log, ledger.clock)
        self.shutting_down = asyncio.Event()
        """Set when the shutdown begins: endless streams then end by themselves."""
        watch = self.metrics.watch
        watch("running_turns", "Turns that run.", lambda: ledger.at_work().running)
        watch("queue_length", "Turns that wait for others.", lambda: ledger.at_work().waiting)
        watch("clock_in_doubt", "Workers whose wall clock has jumped.", lambda: not ledger.clock.is_trusted)
        watch("event_readers", "Streams of events that are read.", lambda: ledger.at_work().readers)

    async def asked(self, request: Request, shape: type[Body]) -> tuple[Body, Principal]:
        """Read a small body, which may be empty, and look up the caller again: the token may have ended while
        the body arrived."""
        body = await read_small_body(request.scope, request.receive, self.settings.limits)
        asked = decode_body(body if body.strip() else b"{}", decoder_of(shape))
        return asked, await self.admission.admit(request.state.head)
