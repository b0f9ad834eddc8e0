"""POST /v1/responses: every request is a turn, unless nothing of it is to be stored.

A response that is not stored runs as a turn of a ledger in memory, which nobody else sees, so that its
answer and its events are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec.structs import replace
from starlette.types import Scope

from turnledger.api.json import encode
from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.engine.attempt.outcome import TurnStatus, committed_turn
from turnledger.engine.history.context import Context
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.policies import OnDisconnect
from turnledger.engine.turn.preview import UnwrittenTurn
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.engine.turn.validation import TurnOptions
from turnledger.errors import (
    ConversationNotFound,
    InvalidId,
    NoNewInput,
    TurnNotFound,
)
from turnledger.model.event import Event, TurnFinished
from turnledger.model.flags import NOTHING_HIDDEN
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState, Turn, instructions_of
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.context_limit import tokens_of_tools
from turnledger.server.access.auth import Principal
from turnledger.server.errors import RequestRefused, error_details
from turnledger.server.models.models import ResolvedModel
from turnledger.server.models.redaction import redact_failure
from turnledger.server.requests.allowed_fields import length_field_of
from turnledger.server.requests.persistence import NOT_KEPT, UNKEPT
from turnledger.server.responses.input import input_items
from turnledger.server.responses.items import turn_of, turn_of_item
from turnledger.server.responses.lists import shown_items
from turnledger.server.responses.request import ResponseRequest, response_request
from turnledger.server.responses.response import ResponseFields, fields_of, may_reduce, show_status
from turnledger.server.responses.stream import ResponseStream, error_event
from turnledger.server.service import Service
from turnledger.server.turns.background import report_stored, store_turn
from turnledger.server.turns.run import EventSender, TurnApi, TurnExchange
from turnledger.server.wire.sse import redact_events


async def read(exchange: TurnExchange, raw: bytes) -> ResponseTurn | None:
    """Read a request. If it is for a background response, or nothing of it is stored, respond here, and
    return None."""
    service, principal = exchange.service, exchange.principal
    request = _request(service, principal, exchange.scope, raw)
    if not request.model:
        raise RequestRefused(400, "invalid_body", "model is missing. Name one.", param="model")
    field = length_field_of(service.models.find(request.model, principal))
    model, settings = exchange.resolve_model(
        request.model, request.with_length(request.settings, field), None
    )
    request = exchange.with_defaults(replace(request, settings=settings), request.model)
    items = await _input(service, principal, request)
    if not items:
        raise NoNewInput
    chat, after = await _previous(service, principal, request)
    options = _options(exchange, request, after)
    if not await _is_kept(exchange, request, chat):
        await _answer_unstored(exchange, request, model, items, chat, options)
        return None
    conversation = request.conversation if chat is None else chat.id
    if request.body.background:
        await _enqueue(exchange, request, items, conversation, options)
        return None
    return ResponseTurn(exchange, request, model, items, conversation, options)


def _request(service: Service, principal: Principal, scope: Scope, raw: bytes) -> ResponseRequest:
    names, base_url_name = service.names, scope["state"].get("base_url_name")
    passed = service.settings.passed_fields
    request = response_request(scope["path"], scope["headers"], raw, names, base_url_name, passed)
    scope["state"]["fields"] = {**scope["state"]["fields"], **request.fields}
    principal.check_chat_scope(request.scope)
    return request


async def _input(service: Service, principal: Principal, request: ResponseRequest) -> list[Item]:
    """Return the items of a request, with the stored ones that it refers to. Raises RequestRefused."""
    chats = service.chats(principal)
    known: dict[TurnId, Mapping[str, Item]] = {}
    items: list[Item] = []
    for number, given in enumerate(input_items(request.body.input, service.settings.limits.input_items)):
        item = await _stored_item(chats, given, known) if isinstance(given, str) else given
        if item is None:
            place = f"input[{number}].id"
            message = f"{place}: no stored item has this id. Send the item itself."
            raise RequestRefused(400, "item_not_found", message, param=place)
        items.append(item)
    return items


async def _stored_item(chats: Chats, id: str, known: dict[TurnId, Mapping[str, Item]]) -> Item | None:
    """Return an item that its user sees, by its id; None if there is none. `known` has the items of turns
    that were read before."""
    try:
        turn = turn_of_item(id)
        if turn not in known:
            chat = await chats.of_turn(turn)
            found = committed(await chat.status(turn))
            [hidden] = await chat.hidden([found])
            known[turn] = {each.id: each.item for each in shown_items(found, hidden.from_user)}
    except (InvalidId, TurnNotFound):
        return None
    return known[turn].get(id)


async def _previous(
    service: Service, principal: Principal, request: ResponseRequest
) -> tuple[Chat | None, TurnId | None]:
    """Return the chat and the turn that a request continues. Raises RequestRefused if the turn is not in the
    history."""
    id = request.body.previous_response_id
    if id is None:
        return None, None
    try:
        turn = turn_of(id)
        chat = await service.chats(principal).of_turn(turn)
        committed(await chat.status(turn))
    except (InvalidId, TurnNotFound):
        message = "No completed response has this previous_response_id. Send one from an earlier response."
        code = "previous_response_not_found"
        raise RequestRefused(400, code, message, param="previous_response_id") from None
    return chat, turn


def committed(status: TurnStatus) -> Turn:
    """Return a turn that is in the history. Raises TurnNotFound for any other, and for a deleted response."""
    if status.turn is None or status.is_deleted_response:
        raise TurnNotFound("There is no such response. Check its id.")
    return status.turn


def _options(exchange: TurnExchange, request: ResponseRequest, after: TurnId | None) -> TurnOptions:
    body = request.body
    options = exchange.turn_options(request, request.model, request.settings)
    options["details"] = {**(options["details"] or {}), **request.said}
    options["admits_answers"] = True
    if body.instructions is not None:
        options["instructions_once"] = body.instructions
    if body.truncation == "disabled" and request.context is None:
        options["context"] = Context.all()
    if after is not None:
        options["after"] = after
        if not request.names_busy:
            options.pop("on_busy", None)  # it waits for no other turn
    return options


async def _is_kept(exchange: TurnExchange, request: ResponseRequest, chat: Chat | None) -> bool:
    """Return whether the response is stored. Raises RequestRefused if it is not, and needs to be."""
    persistence, body = exchange.service.persistence, request.body
    is_kept = body.store is not False and not request.is_auxiliary
    if is_kept and not persistence.keeps_all:
        if chat is None and request.conversation is not None:
            chat = await exchange.service.chats(exchange.principal).conversation(request.conversation)
        scope = chat.scope if chat is not None else request.scope or exchange.principal.within.scope or ""
        if body.store or body.background or request.is_named:
            persistence.check(scope)
        is_kept = persistence.keeps(scope)
    if not is_kept and request.idempotency_key is not None:
        message = "Idempotency-Key: nothing is stored to replay. Omit it."
        raise RequestRefused(400, NOT_KEPT, message, param="Idempotency-Key")
    return is_kept


class _Streamed:
    """A response that is streamed while its turn runs: the events that those of the turn lead to."""

    def __init__(self, exchange: TurnExchange, running: RunningTurn, fields: ResponseFields) -> None:
        self._hides_failures = exchange.principal.is_narrowed
        self._running = running
        self.stream = ResponseStream(fields)
        exchange.encode_error = partial(stream_error, self.stream)

    def encode(self, events: Sequence[Event]) -> bytes:
        """Encode events. The end of a completed turn is sent by `_finish`."""
        sent, end = self.stream.from_events(events), events[-1] if events else None
        if not isinstance(end, TurnFinished) or end.state is AttemptState.COMPLETED:
            return sent
        failure = redact_failure(end.failure) if self._hides_failures else end.failure
        fields, turn = self.stream.fields, self._running.turn
        if turn is not None:
            return sent + self.stream.last(fields.show_turn(turn, failure))
        status = "failed" if failure is not None else "cancelled"
        return sent + self.stream.last(fields.show(status, failure=failure))


class ResponseTurn:
    def __init__(
        self,
        exchange: TurnExchange,
        request: ResponseRequest,
        model: ChatModel,
        items: Sequence[Item],
        conversation: str | None,
        options: TurnOptions,
    ) -> None:
        self._exchange = exchange
        self._request = request
        self._model = model
        self._events = EventSender(exchange, has_own_end=True)
        self.on_disconnect = request.policies.on_disconnect or OnDisconnect.YIELD
        # As for chat completions: many clients send single requests.
        self.title_model: ResolvedModel | None = None
        options["gives_way"] = self.on_disconnect is OnDisconnect.YIELD
        self.block: TurnBlock = exchange.chats(request.scope).turn(
            items,
            conversation=conversation,
            conversation_key=request.conversation_key,
            create=not request.must_exist,
            on_event=self._events.on_event if request.stream else None,
            **options,
        )
        if request.stream:
            exchange.keep_alive(self.block)

    async def answer(self, running: RunningTurn) -> None:
        conversation = running.conversation.id
        self._fields, self._stream = await _run(
            self._exchange, self._request, self._model, running, self._events, conversation
        )

    async def finish(self, running: RunningTurn, *, is_cancelled: bool = False) -> None:
        _finish(self._exchange, self._fields, self._stream, running, self._events)

    async def replay(self, turn: Turn) -> None:
        self._exchange.report_reduced(turn.details)
        await self.follow(turn.id)

    async def follow(self, turn: TurnId) -> None:
        exchange = self._exchange
        chat = await exchange.chat_of(turn)
        if not self._request.stream:
            committed_turn(await chat.outcome(turn))
            exchange.send_whole(encode(await read_response(chat, turn, exchange.principal)))
            return
        await _send_events(exchange, chat, turn)


async def _send_events(exchange: TurnExchange, chat: Chat, turn: TurnId) -> None:
    """Respond with the events of a turn that this request does not run."""
    stream = await open_stream(chat, turn)
    exchange.encode_error = partial(stream_error, stream)
    async for piece in response_events(chat, stream, exchange.principal):
        exchange.write(piece)
        await exchange.client.wait_for_room()
    exchange.end()


async def _run(
    exchange: TurnExchange,
    request: ResponseRequest,
    model: ChatModel,
    running: RunningTurn,
    events: EventSender,
    conversation: ConversationId | None,
) -> tuple[ResponseFields, ResponseStream | None]:
    """Run the model, and send its output as it comes; return what `_finish` needs of the response."""
    fields = ResponseFields(running.id, conversation, dict(running.details), request.body.instructions)
    streamed = _Streamed(exchange, running, fields) if request.stream else None
    if streamed is not None:
        events.begin(streamed.encode)
    runner = ChatRunner(
        model,
        request.settings,
        stream=request.stream,
        asks_usage=True,
        on_payloads=events.flush,
        on_reduced=exchange.report_reduced,
        memory=exchange.service.context_memory,
        reduces=may_reduce(running.details),
    )
    await runner(running)
    return fields, None if streamed is None else streamed.stream


def _finish(
    exchange: TurnExchange,
    fields: ResponseFields,
    stream: ResponseStream | None,
    running: RunningTurn,
    events: EventSender,
) -> None:
    """End the response of a committed turn."""
    turn = running.turn
    assert turn is not None  # noqa: S101 - it has just been committed
    shown = replace(fields, details=turn.details).show_turn(turn, None)
    if stream is not None:
        exchange.end(events.rest() + stream.last(shown))
    else:
        exchange.send_whole(encode(shown))


async def _answer_unstored(
    exchange: TurnExchange,
    request: ResponseRequest,
    model: ChatModel,
    items: Sequence[Item],
    chat: Chat | None,
    options: TurnOptions,
) -> None:
    """Respond with a turn that nothing is stored of. Ends when the client leaves."""
    service, principal = exchange.service, exchange.principal
    # Without a begin, nothing else checks that the caller is still authorized.
    await service.authenticator.admit(exchange.state["head"])
    unwritten = await _unwritten(service, principal, request, items, chat, options)
    shown = _alone(request, items) if unwritten is None else unwritten.items
    exchange.slot.begin()
    exchange.set_header(b"x-conversation-state", UNKEPT)
    events = EventSender(exchange, has_own_end=True)
    if request.stream:
        exchange.keep_alive()
    size = sum(len(item.raw) for item in shown)
    async with exchange.client.cancel_on_disconnect(), await service.host.temporary_ledger(size) as ledger:
        async with ledger.turn(
            shown,
            admits_answers=True,
            details=options["details"],
            on_event=events.on_event if request.stream else None,
        ) as running:
            if unwritten is not None:
                service.host.show_unwritten(running, unwritten)
            fields, stream = await _run(exchange, request, model, running, events, None)
        _finish(exchange, fields, stream, running, events)


async def _unwritten(
    service: Service,
    principal: Principal,
    request: ResponseRequest,
    items: Sequence[Item],
    chat: Chat | None,
    options: TurnOptions,
) -> UnwrittenTurn | None:
    """Return what a turn that is not stored runs on; None if it continues nothing. Raises
    ConversationNotFound."""
    if chat is None and request.is_named:
        chats = service.chats(principal, request.scope)
        key = request.conversation_key
        try:
            chat = await chats.conversation(request.conversation, conversation_key=key, create=False)
        except ConversationNotFound:
            if request.conversation is not None or request.must_exist:
                raise
    if chat is None:
        return None
    names = ("instructions_once", "context", "after", "admits_answers")
    seen = cast(TurnOptions, {name: options[name] for name in names if name in options})  # type: ignore[literal-required]
    return await service.host.unwritten(chat, items, **seen)


def _alone(request: ResponseRequest, items: Sequence[Item]) -> Sequence[Item]:
    """Return what the model is shown of a request that continues nothing."""
    given = instructions_of(None, request.body.instructions)
    return items if given is None else (*given.items, *items)


async def _enqueue(
    exchange: TurnExchange,
    request: ResponseRequest,
    items: Sequence[Item],
    conversation: str | None,
    options: TurnOptions,
) -> None:
    """Store a background response, and respond with it, or with its events as they come."""
    turn, is_new = await store_turn(
        exchange,
        request.scope,
        items,
        conversation=conversation,
        conversation_key=request.conversation_key,
        create=not request.must_exist,
        options=options,
    )
    chat = await exchange.chat_of(turn)
    status = await chat.status(turn)
    report_stored(exchange, turn, chat.id, status.state, is_new=is_new)
    if not request.stream:
        # A new one was queued when it was stored, however soon it began to run.
        shown = fields_of(turn, status).show("queued") if is_new else None
        exchange.send_whole(encode(shown or await read_response(chat, turn, exchange.principal)))
        return
    exchange.slot.begin()
    exchange.keep_alive()
    with exchange.service.token_watch.while_authorized(exchange.principal):
        async with exchange.client.cancel_on_disconnect():
            await _send_events(exchange, chat, turn)


async def count_input(service: Service, principal: Principal, scope: Scope, raw: bytes) -> int:
    """Return the tokens that the model of a response would be shown, as the server estimates them."""
    request = _request(service, principal, scope, raw)
    items = await _input(service, principal, request)
    chat, after = await _previous(service, principal, request)
    options: TurnOptions = {"admits_answers": True, "instructions_once": request.body.instructions}
    context = request.context or service.models.context(request.model, request.settings)
    if context is not None:
        options["context"] = context
    if after is not None:
        options["after"] = after
    unwritten = await _unwritten(service, principal, request, items, chat, options)
    shown = _alone(request, items) if unwritten is None else unwritten.items
    return (context or Context.all()).count_all(shown) + tokens_of_tools(request.settings)


async def read_response(chat: Chat, turn: TurnId, principal: Principal) -> dict[str, Any]:
    """Return the response of a turn in any state. Raises TurnNotFound, also if it was deleted."""
    status = await _status(chat, turn)
    [hidden] = await chat.hidden([status.turn]) if status.turn is not None else [NOTHING_HIDDEN]
    return show_status(turn, _seen_by(principal, status), hidden)


async def _status(chat: Chat, turn: TurnId) -> TurnStatus:
    status = await chat.status(turn)
    if status.is_deleted_response:
        raise TurnNotFound("There is no such response. Check its id.")
    return status


def _seen_by(principal: Principal, status: TurnStatus) -> TurnStatus:
    """Return the status of a turn without details of a failure for a narrowed caller."""
    if status.failure is None or not principal.is_narrowed:
        return status
    return dataclasses.replace(status, failure=redact_failure(status.failure))


async def open_stream(chat: Chat, turn: TurnId, after: int = -1) -> ResponseStream:
    """Return the stream of a response in any state, without the events up to the number `after`. Raises
    TurnNotFound, also if it was deleted."""
    return ResponseStream(fields_of(turn, await _status(chat, turn)), after)


async def response_events(chat: Chat, stream: ResponseStream, principal: Principal) -> AsyncIterator[bytes]:
    """Yield the events of a response, while its turn runs or from its log."""
    turn = stream.fields.turn
    if stream.fields.is_background and (sent := stream.queued()):
        yield sent
    done = (await _status(chat, turn)).turn
    [hidden] = await chat.hidden([done]) if done is not None else [NOTHING_HIDDEN]
    if done is not None and max(hidden.from_user, default=-1) >= len(done.input):
        for sent in stream.from_turn(done, hidden.from_user):
            if sent:
                yield sent
    else:
        async for event in redact_events(principal, chat.events(turn)):
            if not isinstance(event, TurnFinished) and (sent := stream.from_event(event)):
                yield sent
    if sent := stream.last(await read_response(chat, turn, principal)):
        yield sent


def stream_error(stream: ResponseStream | None, problem: BaseException) -> bytes:
    """Encode an error for a stream that has begun, and whose turn has not reported its end."""
    return error_event(error_details(problem), stream.number if stream is not None else 0)


RESPONSES = TurnApi(read, partial(stream_error, None))
