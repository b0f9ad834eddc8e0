"""POST /api/turns: a turn as a stream of events, or whole after its commit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from turnledger.api.json import encode
from turnledger.api.turns import TurnAnswer
from turnledger.api.views import show_listed, show_turn
from turnledger.engine.attempt.outcome import committed_turn
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import TurnledgerError
from turnledger.model.catalogue import Listed
from turnledger.model.event import Event, TurnFinished
from turnledger.model.ids import TurnId
from turnledger.model.turn import Turn
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.requests.turn import TurnRequest, turn_request
from turnledger.server.turns.run import TurnApi, TurnExchange
from turnledger.server.wire.shapes import without_words
from turnledger.server.wire.sse import error_event, event_bytes, seen_by


async def read(exchange: TurnExchange, body: bytes) -> NativeTurn:
    """Read a request. Raises Refused (409 `not_kept`) where chats are not stored."""
    scope, most = exchange.scope, exchange.service.settings.limits.input_items
    asked = turn_request(scope["path"], scope["headers"], body, most)
    exchange.who.check_chat_scope(asked.body.scope)
    model, settings = exchange.model(asked.body.model, asked.settings, asked.stream_options)
    await _check_kept(exchange, asked)
    return NativeTurn(exchange, replace(asked, settings=settings), model)


async def _check_kept(exchange: TurnExchange, asked: TurnRequest) -> None:
    service, who = exchange.service, exchange.who
    if service.keeping.keeps_all:
        return
    scope = asked.body.scope or who.within.scope or ""
    if asked.body.chat is not None:
        # A chat stays in the scope it was created in, whatever the request names.
        chat = await service.chats(who).conversation(asked.body.chat)
        scope = chat.scope
    service.keeping.check(scope)


class _Events:
    """Sends the events of the turn to the client. A separate class: the turn refers to it, and must not
    thereby refer to the request, or the two would form a reference cycle."""

    def __init__(self, exchange: TurnExchange) -> None:
        self._exchange = exchange
        self._early: list[Event] | None = []

    def hear(self, event: Event) -> None:
        """Send an event, or hold it until `begin`: the headers need the place of the turn."""
        if self._early is not None:
            self._early.append(event)
            return
        if not self._exchange.has_spoken:
            self._exchange.note_first_token()
        self.send(event)

    def begin(self) -> None:
        """Send the held events: the place of the turn is known."""
        early, self._early = self._early or (), None
        for event in early:
            self.send(event)

    def send(self, event: Event) -> None:
        # The last event reports how the turn ended, here as to every other reader.
        self._exchange.has_told_end = isinstance(event, TurnFinished)
        self._exchange.write(event_bytes(event))


class NativeTurn:
    def __init__(self, exchange: TurnExchange, asked: TurnRequest, model: ChatModel) -> None:
        body, who, options = asked.body, exchange.who, exchange.options(asked)
        self._exchange = exchange
        self._asked = asked
        self._model = model
        self._events = _Events(exchange)
        if body.instructions is not None:
            options["instructions"] = body.instructions
        if asked.primer:
            options["primer"] = asked.primer
        self.on_disconnect = asked.policies.on_disconnect
        self.block = exchange.service.chats(who, scope=body.scope or "").turn(
            body.input,
            conversation=body.chat,
            conversation_key=body.conversation_key,
            create=not asked.must_exist,
            replaces=body.replaces,
            regenerates=False if body.regenerates is None else body.regenerates,
            on_event=self._events.hear if asked.stream else None,
            **options,
        )
        if asked.stream:
            exchange.keep_alive(self._waiting)

    def _waiting(self) -> dict[bytes, str] | None:
        """Return headers with the place of a turn that waits for its lane; None if it does not wait."""
        conversation = self.block.waits_in
        if conversation is None:
            return None
        return {
            b"x-conversation-id": conversation,
            b"x-conversation-state": "branched" if self._asked.takes_a_place else "continued",
            b"x-turn-id": self.block.id,
        }

    async def answer(self, running: RunningTurn) -> None:
        self._events.begin()
        asked = self._asked
        runner = ChatRunner(
            self._model,
            asked.settings,
            stream=asked.stream,
            stream_options=asked.stream_options,
            asks_usage=True,
        )
        await runner(running)

    async def finish(self, running: RunningTurn, *, is_cancelled: bool = False) -> None:
        if self._asked.stream:
            self._exchange.end()
            return
        turn = running.turn
        assert turn is not None  # noqa: S101 - it has just been committed
        summary = Listed(running.conversation, turn.number, "", is_running=False)
        hidden: Sequence[int] = ()
        if not is_cancelled:
            # The chat after the commit: title, number of turns, last use. Items of a question that were
            # hidden stay hidden when it is regenerated.
            with suppress(TurnledgerError):  # deleted meanwhile; the turn is committed all the same
                chat = await self._exchange.chat_of(turn.id)
                summary = await chat.summary()
                [hidden] = await chat.hidden([turn])
        self._send_whole(turn, summary, hidden)

    async def replay(self, turn: Turn) -> None:
        if self._asked.stream:
            await self._send_events(turn.id)
            return
        chat = await self._exchange.chat_of(turn.id)
        [hidden] = await chat.hidden([turn])
        self._send_whole(turn, await chat.summary(), hidden)

    async def follow(self, turn: TurnId) -> None:
        if self._asked.stream:
            await self._send_events(turn)
            return
        chat = await self._exchange.chat_of(turn)
        await self.replay(committed_turn(await chat.outcome(turn)))

    async def _send_events(self, turn: TurnId) -> None:
        chat = await self._exchange.chat_of(turn)
        async for event in seen_by(self._exchange.who, chat.events(turn)):
            self._events.send(event)
            await self._exchange.client.room()
        self._exchange.end()

    def _send_whole(self, turn: Turn, chat: Listed, hidden: Sequence[int]) -> None:
        answer = TurnAnswer(
            turn=show_turn(turn, hidden),
            chat=without_words(self._exchange.who, show_listed(chat)),
            branch=turn.branch,
            state=self._exchange.began,
        )
        self._exchange.whole(encode(answer))


NATIVE = TurnApi(read, error_event)
