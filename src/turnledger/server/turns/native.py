"""POST /api/turns: a turn as a stream of events, or whole after its commit."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from turnledger.api.json import encode
from turnledger.api.turns import TurnAnswer
from turnledger.api.views import show_listed, show_turn
from turnledger.engine.attempt.outcome import committed_turn
from turnledger.engine.history.context import context_of
from turnledger.engine.turn.policies import OnDisconnect
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.engine.turn.validation import TurnOptions
from turnledger.errors import InvalidInput, TurnledgerError
from turnledger.model.catalogue import ChatEntry
from turnledger.model.event import TurnFinished
from turnledger.model.flags import NOTHING_HIDDEN, HiddenItems
from turnledger.model.ids import TurnId
from turnledger.model.reset_policy import policy_of
from turnledger.model.turn import Turn
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.models.models import ResolvedModel
from turnledger.server.requests.turn import TurnRequest, turn_request
from turnledger.server.turns import background
from turnledger.server.turns.run import EventSender, TurnApi, TurnExchange
from turnledger.server.wire.events import error_event, event_bytes, events_bytes
from turnledger.server.wire.shapes import without_content
from turnledger.server.wire.sse import redact_events


async def read(exchange: TurnExchange, body: bytes) -> NativeTurn | None:
    """Read a request; respond to one for a background turn. Raises RequestRefused (409 `not_kept`) where
    chats are not stored."""
    scope, most = exchange.scope, exchange.service.settings.limits.input_items
    request = turn_request(scope["path"], scope["headers"], body, most)
    exchange.principal.check_chat_scope(request.body.scope)
    model, settings = exchange.resolve_model(request.body.model, request.settings, request.stream_options)
    await _check_persistence(exchange, request)
    on_disconnect = request.policies.on_disconnect
    request = exchange.with_defaults(replace(request, settings=settings), request.body.model)
    # Never by default: clients of this API, such as tabs in the background, let go of their streams.
    request = replace(request, policies=replace(request.policies, on_disconnect=on_disconnect))
    options = _turn_options(exchange, request)
    if not request.body.background:
        return NativeTurn(exchange, request, model, options)
    await background.enqueue(exchange, request, options)
    return None


def _turn_options(exchange: TurnExchange, request: TurnRequest) -> TurnOptions:
    body, options = request.body, exchange.turn_options(request, request.body.model, request.settings)
    options["interaction"] = body.interaction
    if body.instructions is not None:
        options["instructions"] = body.instructions
    if request.primer:
        options["primer"] = request.primer
    if body.context is not None:
        if request.context is not None:
            raise InvalidInput("Send X-Context or `context`, not both.")
        options["context"] = context_of(body.context.last, body.context.budget)
    if body.after is not None:
        options["after"] = body.after
    return options


async def _check_persistence(exchange: TurnExchange, request: TurnRequest) -> None:
    service, principal = exchange.service, exchange.principal
    if service.persistence.keeps_all:
        return
    scope = request.body.scope or principal.within.scope or ""
    if request.body.chat is not None:
        # A chat stays in the scope it was created in, whatever the request names.
        chat = await service.chats(principal).conversation(request.body.chat)
        scope = chat.scope
    service.persistence.check(scope)


def _title_model(exchange: TurnExchange, name: str, model: ChatModel) -> ResolvedModel | None:
    """Return the model of a turn as the one for its title, with the client's own credential, if it sent one.
    None for a token with a bound on the length of answers: a title would be one without it."""
    found, token = exchange.service.models.get(name), exchange.principal.token
    if found is None or not found.writes_titles or (token is not None and token.bounds.max_tokens):
        return None
    return found._replace(model=model)


class NativeTurn:
    def __init__(
        self, exchange: TurnExchange, request: TurnRequest, model: ChatModel, options: TurnOptions
    ) -> None:
        body = request.body
        self._exchange = exchange
        self._request = request
        self._model = model
        self._events = EventSender(exchange)
        self.on_disconnect = request.policies.on_disconnect or OnDisconnect.CONTINUE
        self.title_model = _title_model(exchange, body.model, model)
        options["gives_way"] = self.on_disconnect is OnDisconnect.YIELD
        self.block = exchange.chats(body.scope).turn(
            body.input,
            conversation=body.chat,
            conversation_key=body.conversation_key,
            create=not request.must_exist,
            reset=policy_of(body.reset),
            replaces=body.replaces,
            regenerates=False if body.regenerates is None else body.regenerates,
            on_event=self._events.on_event if request.stream else None,
            **options,
        )
        if request.stream:
            state = "branched" if request.replaces_turn else "continued"
            self.block.when_queued(partial(exchange.begin_queued, self.block.id, state))
            exchange.keep_alive(self.block, state)

    async def answer(self, running: RunningTurn) -> None:
        self._events.begin(events_bytes)
        request = self._request
        runner = ChatRunner(
            self._model,
            request.settings,
            stream=request.stream,
            stream_options=request.stream_options,
            asks_usage=True,
            on_payloads=self._events.flush,
            on_reduced=self._exchange.report_reduced,
            memory=self._exchange.service.context_memory,
        )
        await runner(running)

    async def finish(self, running: RunningTurn, *, is_cancelled: bool = False) -> None:
        if self._request.stream:
            self._exchange.end()
            return
        turn = running.turn
        assert turn is not None  # noqa: S101 - it has just been committed
        summary = ChatEntry(running.conversation, turn.number, "", is_running=False)
        hidden = NOTHING_HIDDEN
        if not is_cancelled:
            # The chat after the commit: title, number of turns, last use. Items of a question that were
            # hidden stay hidden when it is regenerated.
            with suppress(TurnledgerError):  # deleted meanwhile; the turn is committed all the same
                chat = await self._exchange.chat_of(turn.id)
                summary = await chat.summary()
                [hidden] = await chat.hidden([turn])
        self._send_whole(turn, summary, hidden)

    async def replay(self, turn: Turn) -> None:
        self._exchange.report_reduced(turn.details)
        if self._request.stream:
            await self._send_events(turn.id)
            return
        chat = await self._exchange.chat_of(turn.id)
        [hidden] = await chat.hidden([turn])
        self._send_whole(turn, await chat.summary(), hidden)

    async def follow(self, turn: TurnId) -> None:
        if self._request.stream:
            await self._send_events(turn)
            return
        chat = await self._exchange.chat_of(turn)
        await self.replay(committed_turn(await chat.outcome(turn)))

    async def _send_events(self, turn: TurnId) -> None:
        chat = await self._exchange.chat_of(turn)
        async for event in redact_events(self._exchange.principal, chat.events(turn)):
            self._exchange.has_sent_end = isinstance(event, TurnFinished)
            self._exchange.write(event_bytes(event))
            await self._exchange.client.wait_for_room()
        self._exchange.end()

    def _send_whole(self, turn: Turn, chat: ChatEntry, hidden: HiddenItems) -> None:
        answer = TurnAnswer(
            turn=show_turn(turn, hidden),
            chat=without_content(self._exchange.principal, show_listed(chat)),
            branch=turn.branch,
            state=self._exchange.conversation_state,
        )
        self._exchange.send_whole(encode(answer))


NATIVE = TurnApi(read, error_event)
