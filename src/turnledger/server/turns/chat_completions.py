"""POST /v1/chat/completions: in a conversation every request is a turn; without one it is passed through.

The client receives the model's output byte for byte. Other readers, and later ones, receive chunks made from
the events or the committed turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from turnledger.api.json import encode
from turnledger.engine.attempt.outcome import committed_turn
from turnledger.engine.turn.policies import OnDisconnect
from turnledger.engine.turn.resent_request import OnDivergence
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import InvalidInput, ModelError, ServerUnavailable
from turnledger.model.event import (
    ArgumentsDelta,
    Event,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnResumed,
)
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, calls_left_open
from turnledger.model.messages.messages import CALL_BODIES, messages_of
from turnledger.model.turn import Turn, TurnKind
from turnledger.runners.chat_model import ChatModel, ModelRequest, failure_of_end, finish_reasons_of
from turnledger.runners.chat_runner import ChatRunner, RepeatFilter
from turnledger.server.errors import error_body
from turnledger.server.models.models import ResolvedModel
from turnledger.server.requests.body import FIELDS
from turnledger.server.requests.persistence import UNKEPT
from turnledger.server.requests.turn import ChatRequest, chat_request
from turnledger.server.turns.run import TurnApi, TurnExchange

_messages_decoder = msgspec.json.Decoder(list[dict[str, Any]])


async def read(exchange: TurnExchange, body: bytes) -> CompletionTurn | None:
    """Read a request. If nothing of it is stored, respond here, and return None."""
    service, principal = exchange.service, exchange.principal
    scope, base_url_name = exchange.scope, exchange.state.get("base_url_name")
    request = chat_request(scope["path"], scope["headers"], body, service.names, base_url_name)
    principal.check_chat_scope(request.scope)
    model, settings = exchange.resolve_model(request.model, request.settings, request.stream_options)
    if settings is not request.settings:
        request = replace(request, settings=settings)
    is_kept = request.has_conversation
    if request.opts_out or not service.persistence.keeps_all:
        is_kept = await service.persistence.is_kept(request, principal.owner, principal.within)
    if is_kept:
        return CompletionTurn(exchange, exchange.with_defaults(request, request.model), model)
    # Without a begin, nothing else checks that the caller is still authorized.
    await service.authenticator.admit(exchange.state["head"])
    exchange.slot.begin()
    is_turn = request.has_conversation or request.opts_out
    if is_turn:
        exchange.set_header(b"x-conversation-state", UNKEPT)
    question = ModelRequest(request.messages, request.settings, request.stream_options)
    failure = await pass_through(exchange, question, model, stream=request.stream, raises_failure=is_turn)
    if failure is not None:
        exchange.state["code"] = failure.code
    return None


class CompletionTurn:
    def __init__(self, exchange: TurnExchange, request: ChatRequest, model: ChatModel) -> None:
        policies = request.policies
        self._exchange = exchange
        self._request = request
        self._model = model
        self._last: list[bytes] = []
        """Sent after the commit: the end of the stream, or the whole completion."""
        self.on_disconnect = policies.on_disconnect or OnDisconnect.YIELD
        # Many of its clients send single requests, or ask for titles themselves.
        self.title_model: ResolvedModel | None = None
        options = exchange.turn_options(request, request.model, request.settings)
        options["gives_way"] = self.on_disconnect is OnDisconnect.YIELD
        self.block = exchange.chats(request.scope).resent(
            _messages(request.messages),
            conversation=request.conversation,
            conversation_key=request.conversation_key,
            create=not request.must_exist,
            sent=policies.messages,
            on_divergence=policies.on_divergence or OnDivergence.BRANCH,
            **options,
        )
        self._prefill = self.block.prefill
        """The beginning of the stored answer that the client has sent: it is not sent back."""

    async def answer(self, running: RunningTurn) -> None:
        request = self._request
        runner = ChatRunner(
            self._model,
            request.settings,
            stream=request.stream,
            stream_options=request.stream_options,
            on_payloads=self._send,
            on_reduced=self._exchange.report_reduced,
            memory=self._exchange.service.context_memory,
        )
        self._id, self._runner = running.id, runner
        try:
            await runner(running)
        finally:
            del self._runner  # its callback refers back to this: break the cycle
        last = runner.held if request.stream else [runner.completion]
        self._last = replace_ids(last, runner.answer_id, running.id)

    def _send(self, payloads: list[bytes]) -> None:
        """Send the model's chunks under the id of the turn."""
        runner, exchange = self._runner, self._exchange
        if not exchange.has_first_token and runner.has_output:
            exchange.record_first_token()
        exchange.write(encode_events(replace_ids(payloads, runner.answer_id, self._id)))

    async def finish(self, running: RunningTurn, *, is_cancelled: bool = False) -> None:
        if self._request.stream:
            self._exchange.end(encode_events(self._last) + DONE)
        else:
            self._exchange.send_whole(self._last[0])

    async def replay(self, turn: Turn) -> None:
        self._exchange.report_reduced(turn.details)
        if self._request.stream:
            await self.follow(turn.id)
        else:
            self._exchange.send_whole(completion(turn, self._prefill))

    async def follow(self, turn: TurnId) -> None:
        chat = await self._exchange.chat_of(turn)
        if not self._request.stream:
            await self.replay(committed_turn(await chat.outcome(turn)))
            return
        include_usage = self._request.include_usage
        chunks = Chunks(turn, self._request.model, include_usage=include_usage, prefill=self._prefill)
        async for event in chat.events(turn):
            if chunk := encode_events(chunks.from_event(event)):
                self._exchange.write(chunk)
                await self._exchange.client.wait_for_room()
        last = chunks.last(committed_turn(await chat.outcome(turn)))
        self._exchange.end(encode_events(last) + DONE)


def _messages(raw: msgspec.Raw) -> list[dict[str, Any]]:
    try:
        return _messages_decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise InvalidInput(
            f"messages must be a list of objects, each with a role: {problem}.", param="messages"
        ) from None


def replace_ids(payloads: Iterable[bytes], old_id: str, new_id: str) -> list[bytes]:
    """Replace the id in payloads, and leave everything else byte for byte."""
    old_prefix, new_prefix = b'{"id":"%s"' % old_id.encode(errors="replace"), b'{"id":"%s"' % new_id.encode()
    prefix_length = len(old_prefix)
    return [
        new_prefix + payload[prefix_length:]
        if old_id and payload.startswith(old_prefix)
        else _replace_id(payload, old_id, new_id)
        for payload in payloads
    ]


def _replace_id(payload: bytes, old_id: str, new_id: str) -> bytes:
    name = b'"id":"%s"' % old_id.encode(errors="replace")
    # Within a text the quotes would be escaped, so a single match is the id of the answer.
    if old_id and payload.count(name) == 1:
        return payload.replace(name, b'"id":"%s"' % new_id.encode())
    try:
        return encode({**FIELDS.decode(payload), "id": new_id})
    except msgspec.DecodeError:  # a lone surrogate, whose other half is in the next chunk
        return json.dumps({**json.loads(payload), "id": str(new_id)}).encode()


_finish_reasons = re.compile(rb'"finish_reason"\s*:\s*"([^"\n]*)"').findall
"""Within a text the quotes would be escaped. Ends with its line: a chunk that is cut off may be followed by
another one."""


async def pass_through(
    exchange: TurnExchange, request: ModelRequest, model: ChatModel, *, stream: bool, raises_failure: bool
) -> ModelError | None:
    """Call the model, and send its output to the client, without repeated roles and names. Ends when the
    client leaves. Raises the error to report, also for a stream without a `finish_reason`, which may have
    been cut off. A `finish_reason` by which a turn would fail is raised if `raises_failure`, otherwise
    returned: the client reads it in the answer."""
    async with exchange.client.cancel_on_disconnect():
        if not stream:
            body = await model.complete(request)
            failure = _failure(model, _finish_reasons(body))
            if failure is not None and raises_failure:
                raise failure
            exchange.send_whole(body)
            return failure
        is_whole, failure = False, None
        deltas = RepeatFilter()
        async with model.stream(request) as batches:
            async for payloads in batches:
                events, sent = encode_events(payloads), deltas.without_repeats(payloads)
                exchange.write(events if sent is payloads else encode_events(sent))
                # As they came: where repeats were removed, a reason may be escaped.
                if reasons := _finish_reasons(events):
                    is_whole, failure = True, failure or _failure(model, reasons)
                # No turn waits for a slow client here, and it has no other way to read.
                await exchange.client.wait_for_room()
        if not is_whole:
            raise failure_of_end(None)
        if failure is not None and raises_failure:
            raise failure
        exchange.end(DONE)
        return failure


def _failure(model: ChatModel, reasons: Iterable[bytes]) -> ModelError | None:
    complete_reasons = finish_reasons_of(model)
    reported = (reason.decode(errors="replace") for reason in reasons)
    unknown = next((reason for reason in reported if reason and reason not in complete_reasons), None)
    return None if unknown is None else failure_of_end(unknown)


DONE = b"data: [DONE]\n\n"


def encode_events(payloads: Iterable[bytes]) -> bytes:
    joined = b"\n\ndata: ".join(payloads)
    return b"data: %b\n\n" % joined if joined else b""


def completion(turn: Turn, prefill: str = "") -> bytes:
    answer = message_of(turn.output)
    if prefill:
        answer["content"] = (answer["content"] or "").removeprefix(prefill)
    details = turn.details
    choice = {
        "index": 0,
        "message": answer,
        "logprobs": None,
        "finish_reason": finish_reason(turn),
    }
    body = {
        "id": turn.id,
        "object": "chat.completion",
        "created": turn.created_at // 1000,
        "model": details.get("model", ""),
        "choices": [choice],
    }
    return encode(body | _usage(details))


def _usage(details: Mapping[str, Any]) -> dict[str, Any]:
    return {"usage": details["usage"]} if details.get("usage") is not None else {}


def message_of(output: Sequence[Item]) -> dict[str, Any]:
    """Return the output of a turn as the one message of a chat completion, without calls that were answered
    within the turn."""
    open_calls = calls_left_open(output)
    messages = [each for each in messages_of(output) if each["role"] == "assistant"]
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    for each in messages:
        for name, value in each.items():
            if name in ("content", "refusal") and isinstance(value, str):
                message[name] = (message[name] or "") + value
            elif name not in ("role", "tool_calls", "content", "refusal"):
                message[name] = value
    calls = [call for each in messages_of(open_calls) for call in each.get("tool_calls", ())]
    return {**message, "tool_calls": calls} if calls else message


def finish_reason(turn: Turn) -> str:
    """Return why the answer ended, as reported by the model or visible in the items. An interrupted turn has
    `length`, which clients know as an incomplete answer."""
    reason = turn.details.get("finish_reason")
    if isinstance(reason, str):
        return reason
    if turn.kind is TurnKind.INTERRUPTED:
        return "length"
    return "tool_calls" if calls_left_open(turn.output) else "stop"


_FIELDS = {TextDelta: "content", RefusalDelta: "refusal", ReasoningDelta: "reasoning_content"}


class Chunks:
    """The chunks of one answer, made from its events. Roles, ids and names come once."""

    def __init__(self, turn: TurnId, model: str, *, include_usage: bool, prefill: str = "") -> None:
        created = int.from_bytes(turn.raw[:6]) // 1000  # an id begins with its time
        self._head = {"id": turn, "object": "chat.completion.chunk", "created": created, "model": model}
        self._include_usage = include_usage
        self._unsent = len(prefill)
        """Characters at the beginning of the answer that are still to be left out."""
        self._has_begun = False
        self._open: set[str] = set()
        """The fields that were sent in pieces, and whose message has not come yet."""
        self._calls: dict[str | None, tuple[int, str]] = {}
        """The index and the type of each call that was sent, by its id."""

    def from_event(self, event: Event) -> Iterable[bytes]:
        """Yield the chunks of an event. The end comes from `last`, after the commit."""
        if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta):
            field = _FIELDS[type(event)]
            self._open.add(field)
            text = self._after_prefill(event.text) if field == "content" else event.text
            if text:
                yield self._chunk({field: text})
        elif isinstance(event, ItemAdded):
            yield self._call(_tool_call(Item(event.item)))
        elif isinstance(event, ArgumentsDelta):
            index, kind = self._calls[event.call_id]
            piece = {"index": index, kind: {CALL_BODIES[kind]: event.text}}
            yield self._chunk({"tool_calls": [piece]})
        elif isinstance(event, ItemDone):
            yield from self._from_item(Item(event.item))
        elif isinstance(event, TurnResumed) and self._has_begun:
            raise ServerUnavailable("The turn was resumed, and what was sent of it is void. Try again.")

    def _from_item(self, item: Item) -> Iterable[bytes]:
        if item.is_call and item.call_id in self._calls:
            others = _other_fields(_tool_call(item))
            if others:
                yield self._chunk({"tool_calls": [{"index": self._calls[item.call_id][0], **others}]})
        if item.role != "assistant":
            return
        field = "refusal" if item.is_refusal else "content"
        if field in self._open:  # already sent in pieces
            self._open.remove(field)
            return
        message = messages_of((item,))[0]
        delta = {name: message[name] for name in ("content", "refusal") if message.get(name)}
        if self._unsent and "content" in delta:
            delta["content"] = self._after_prefill(delta["content"])
        if delta:
            yield self._chunk(delta)

    def _after_prefill(self, text: str) -> str:
        cut = min(self._unsent, len(text))
        self._unsent -= cut
        return text[cut:]

    def last(self, turn: Turn) -> Iterable[bytes]:
        """Yield the end of a committed answer, with the calls left to the client that were not sent."""
        details = turn.details
        for item in calls_left_open(turn.output):
            if item.call_id not in self._calls:
                yield self._call(_tool_call(item))
        yield self._chunk({}, finish_reason(turn))
        if self._include_usage and details.get("usage") is not None:
            yield encode({**self._head, "choices": [], "usage": details["usage"]})

    def _call(self, call: dict[str, Any]) -> bytes:
        index = len(self._calls)
        self._calls[call["id"]] = index, call["type"]
        return self._chunk({"tool_calls": [{"index": index, **call}]})

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            delta = {"role": "assistant", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        usage = {"usage": None} if self._include_usage else {}
        return encode({**self._head, "choices": [choice], **usage})


def _tool_call(item: Item) -> dict[str, Any]:
    call: dict[str, Any] = messages_of((item,))[0]["tool_calls"][0]
    return call


def _other_fields(call: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a call that are known only when it is finished, such as a signature."""
    kind = call["type"]
    body = {name: value for name, value in call[kind].items() if name not in ("name", CALL_BODIES[kind])}
    others = {name: value for name, value in call.items() if name not in ("id", "type", kind)}
    return {**others, kind: body} if body else others


def error_chunk(problem: BaseException) -> bytes:
    return encode_events([error_body(problem)])


CHAT_COMPLETIONS = TurnApi(read, error_chunk)
