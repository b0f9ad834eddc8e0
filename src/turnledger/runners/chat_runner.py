"""The chat runner: puts a chat model's answer into a turn, and only a complete one.

    turn = await ledger.run(ChatRunner(DemoModel(), {"model": "demo"}), "Hello")

Tool calls and reasoning are collected from the pieces of a stream; servers name reasoning `reasoning_content`
(DeepSeek and its followers) or `reasoning`. Clients join the deltas of a stream, so roles, and ids and names
of calls, may be sent only once: chunks of models that repeat them are rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from turnledger.engine.events.live_log import EmittedText
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import MalformedAnswer, MalformedItems, ModelRefused
from turnledger.model.item import Item, is_unicode
from turnledger.model.messages.messages import items_of_messages
from turnledger.runners.chat_model import (
    ChatChunk,
    ChatModel,
    ChunkChoice,
    Delta,
    ModelRequest,
    chunk_of,
    completion_of,
    failure_of,
    failure_of_end,
    finish_reasons_of,
)

_BODIES = {"function": "arguments", "custom": "input"}


_CALL_OVERHEAD = 500


class CallDeltas:
    """Collects calls by their index. Ids, types and names arrive once, arguments in pieces; of other fields
    the last value counts. `count` is called with the bytes of each piece, and may raise."""

    def __init__(self, count: Callable[[int], None] = lambda _: None) -> None:
        self._count = count
        self._calls: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}

    def add(self, deltas: list[dict[str, Any]]) -> None:
        """Add the pieces of one chunk. Raises MalformedAnswer."""
        for delta in deltas:
            index = delta.get("index", 0)
            if type(index) is not int:
                raise MalformedAnswer("The model sent a tool call whose index is not a number.")
            call = self._calls.get(index)
            if call is None:
                self._count(_CALL_OVERHEAD)
                call = self._calls[index] = {"type": "function"}
                self._pieces[index] = []
            self._merge(index, call, delta)

    def whole(self) -> list[dict[str, Any]]:
        """Return the calls of a message, ordered by index. Raises MalformedAnswer for a call that cannot be
        answered."""
        calls = []
        for index, call in sorted(self._calls.items()):
            kind = call["type"]
            body = call.get(kind) if isinstance(kind, str) and kind in _BODIES else None
            if not call.get("id") or body is None or not body.get("name"):
                raise MalformedAnswer("The model called a tool without an id, a known type or a name.")
            calls.append({**call, kind: {**body, _BODIES[kind]: "".join(self._pieces[index])}})
        return calls

    def _merge(self, index: int, call: dict[str, Any], delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if name == "index" or value is None or value == "":
                continue
            if name in _BODIES:
                self._merge_body(index, call.setdefault(name, {}), _BODIES[name], value)
            elif name == "id" and call.setdefault("id", value) != value:
                raise MalformedAnswer(f"The model sent two tool calls with the index {index}.")
            else:
                self._keep(call, name, value)

    def _merge_body(self, index: int, body: dict[str, Any], growing: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise MalformedAnswer("The model sent a tool call that is not an object.")
        for name, each in value.items():
            if each is None or each == "":
                continue
            if name == growing:
                if not isinstance(each, str):
                    raise MalformedAnswer(f"The model sent a tool call whose {growing} is not a text.")
                self._count(len(each) + 50)  # the size of a one-character string
                self._pieces[index].append(each)
            elif name != "name" or "name" not in body:
                self._keep(body, name, each)

    def _keep(self, kept: dict[str, Any], name: str, value: Any) -> None:
        if name not in kept or kept[name] != value:
            self._count(len(name) + len(json.dumps(value)))
            kept[name] = value


class ReasoningText:
    __slots__ = ("_most", "_taken", "_text")

    def __init__(self, most: int) -> None:
        self._most = most
        self._text = EmittedText()
        self._taken = 0

    def __bool__(self) -> bool:
        return self._text.length > self._taken

    def add(self, delta: Delta) -> None:
        """Add a piece. Raises MalformedItems if it is too much. If both fields are set, they hold the same
        text; anything but text is only passed on."""
        given = delta.reasoning_content or delta.reasoning
        if not isinstance(given, str):
            return
        if self._text.length + len(given) > self._most:
            raise MalformedItems(f"The turn has grown past {self._most} bytes.")
        self._text.append(given)

    def take(self) -> tuple[Item, ...]:
        """Return all of it as one item, and clear it; no item if there is none."""
        text = self._text.between(self._taken, self._text.length)
        self._taken = self._text.length
        if not text:
            return ()
        if not is_unicode(text):  # halves of characters whose other halves never arrived
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        content = {"type": "reasoning_text", "text": text}
        return (Item.of({"type": "reasoning", "summary": [], "content": [content]}),)


MOST_NAMES = 20_000


class RepeatFilter:
    """Remembers the roles, ids and names sent in one streamed answer."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[tuple[Any, ...]] = set()

    def without_repeats(self, payload: bytes) -> bytes:
        """Return the next chunk without repeats; the same bytes if there are none, or if they are not a
        chunk."""
        if b'"role"' not in payload and b'"tool_calls"' not in payload:
            return payload
        try:
            chunk = chunk_of(payload)
        except MalformedAnswer:
            return payload
        removals = [self.remove_repeats(choice) for choice in chunk.choices or ()]
        return rewrite_payload(payload, chunk) if any(removals) else payload

    def remove_repeats(self, choice: ChunkChoice) -> bool:
        """Remove repeats from the delta of a choice; return whether there were any."""
        delta = choice.delta
        if delta is None or not (delta.role or delta.tool_calls):
            return False
        repeats = False
        if delta.role and self._is_repeat(choice.index, "role"):
            delta.role = None
            repeats = True
        for call in delta.tool_calls or ():
            repeats = self._remove_call_repeats(choice.index, call) or repeats
        return repeats

    def _remove_call_repeats(self, choice: int, call: dict[str, Any]) -> bool:
        index = str(call.get("index", 0))
        repeats = False
        if call.get("id") and self._is_repeat(choice, index, "id"):
            del call["id"]
            repeats = True
        for kind in _BODIES:
            body = call.get(kind)
            if isinstance(body, dict) and body.get("name") and self._is_repeat(choice, index, "name"):
                del body["name"]
                repeats = True
        return repeats

    def _is_repeat(self, *name: Any) -> bool:
        if name in self._seen:
            return True
        if len(self._seen) >= MOST_NAMES:
            raise MalformedAnswer(f"The model made more than {MOST_NAMES // 2} tool calls in one answer.")
        self._seen.add(name)
        return False


def rewrite_payload(payload: bytes, chunk: ChatChunk) -> bytes:
    """Return a payload with the roles and calls left in its chunk, and all else as it was."""
    fields = json.loads(payload)
    for choice, left in zip(fields["choices"], chunk.choices or (), strict=True):
        if left.delta is not None:
            _rewrite(choice["delta"], left.delta)
    # Half a character, sent by models that count UTF-16, stays escaped.
    return json.dumps(fields, separators=(",", ":")).encode()


def _rewrite(delta: dict[str, Any], left: Delta) -> None:
    if left.role is None:
        delta.pop("role", None)
    if left.tool_calls:
        delta["tool_calls"] = left.tool_calls


OnPayloads = Callable[[list[bytes]], None]

_OVERHEAD = 50
"""Bytes of a text or its place in a list, beside its characters."""


class ChatRunner:
    """Sends the messages of the turn to a model. Its text is emitted as it arrives; tool calls, which the
    client answers, and refusals end the turn. Reasoning before the text becomes one item in front of it;
    reasoning between texts is passed on, and not stored.

    Raises a ModelError for an incomplete answer: one without a known `finish_reason` (FINISH_REASONS, or the
    model's own `finish_reasons`). The turn then fails, and the history is unchanged. `turn.details` holds the
    `model`, as the answer names it, or else the request, the `finish_reason` and, if reported, `usage`. With
    `asks_usage`, a stream without `stream_options` requests it, unless the model refuses that.

    `on_payloads` is called with the chunks of a stream, as many as have arrived, up to the one with the
    `finish_reason`. From there on they wait in `held`, to be sent when the turn is committed. They are as the
    model sent them, except for repeated roles, and ids or names of calls. A runner runs one turn at a time.
    """

    def __init__(
        self,
        model: ChatModel,
        settings: Mapping[str, Any],
        *,
        stream: bool = True,
        stream_options: Any = None,
        asks_usage: bool = False,
        on_payloads: OnPayloads | None = None,
    ) -> None:
        self._model = model
        self._settings = settings
        self._stream = stream
        self._asks_usage = asks_usage and stream_options is None
        self._stream_options = {"include_usage": True} if self._asks_usage else stream_options
        self._on_payloads = on_payloads
        self.answer_id = ""
        """The id of the answer; empty if the model gave none."""
        self.held: list[bytes] = []
        """The payloads of a stream from the one with the `finish_reason` on."""
        self.completion = b""
        """The complete answer, as the model sent it, if it was not streamed."""
        self._answer: _Answer | None = None

    @property
    def has_output(self) -> bool:
        """Whether text, a refusal or a call has arrived, not only its announcement."""
        return self._answer is not None and self._answer.has_output

    async def __call__(self, turn: RunningTurn, /) -> None:
        self.held = []
        self.completion = b""
        request = ModelRequest(
            msgspec.Raw(await turn.read_messages_json()), self._settings, self._stream_options
        )
        self._answer = answer = _Answer(turn, finish_reasons_of(self._model))
        if self._stream:
            await self._stream_answer(request, answer)
        else:
            self.completion = await self._model.complete(request)
            await answer.add_completion(self.completion)
        answer.end()
        model = self._settings.get("model")
        if isinstance(model, str):
            turn.details.setdefault("model", model)
        self.answer_id = answer.id

    async def _stream_answer(self, request: ModelRequest, answer: _Answer) -> None:
        try:
            await self._read_stream(request, answer)
        except ModelRefused as refused:  # before any output
            if not self._asks_usage or "stream_options" not in str(refused.error):
                raise
            await self._read_stream(msgspec.structs.replace(request, stream_options=None), answer)

    async def _read_stream(self, request: ModelRequest, answer: _Answer) -> None:
        on_payloads, held = self._on_payloads, self.held
        async with self._model.stream(request) as batches:
            async for payloads in batches:
                shown: list[bytes] = []
                try:
                    for payload in payloads:
                        chunk = chunk_of(payload)
                        if answer.add_reasoning(chunk):
                            await answer.flush_reasoning()
                        sent = rewrite_payload(payload, chunk) if answer.add_chunk(chunk) else payload
                        if answer.finish_reason is None:
                            shown.append(sent)
                        else:
                            answer.count(len(sent) + _OVERHEAD)
                            held.append(sent)
                finally:  # also those before an error
                    if shown and on_payloads is not None:
                        self.answer_id = answer.id
                        on_payloads(shown)


class _Answer:
    __slots__ = (
        "_bytes_left",
        "_calls",
        "_finish_reasons",
        "_has_text",
        "_model",
        "_reasoning",
        "_refusal",
        "_repeat_filter",
        "_turn",
        "_usage",
        "finish_reason",
        "id",
    )

    def __init__(self, turn: RunningTurn, finish_reasons: Collection[str]) -> None:
        self._turn = turn
        self._finish_reasons = finish_reasons
        self._bytes_left = turn.most_bytes
        self._has_text = False
        self._repeat_filter = RepeatFilter()
        self._refusal: list[str] = []
        self._calls: CallDeltas | None = None
        self._reasoning: ReasoningText | None = None
        self._model: str | None = None
        self._usage: dict[str, Any] | None = None
        self.finish_reason: str | None = None
        self.id = ""

    @property
    def has_output(self) -> bool:
        return self._has_text or self._calls is not None or bool(self._refusal)

    def add_reasoning(self, chunk: ChatChunk) -> bool:
        """Add the reasoning in a chunk; return whether other output begins here after reasoning."""
        delta = chunk.choices[0].delta if chunk.choices else None
        if delta is None:
            return False
        if delta.reasoning_content or delta.reasoning:
            self._collect_reasoning(delta)
        if not self._reasoning or self.has_output:
            return False
        return bool(delta.content or delta.refusal or delta.tool_calls)

    async def flush_reasoning(self) -> None:
        """Add the reasoning so far to the turn, in front of the output."""
        if self._reasoning is not None:
            await self._turn.add(*self._reasoning.take())

    def _collect_reasoning(self, delta: Delta) -> None:
        if self._reasoning is None:
            self._reasoning = ReasoningText(self._turn.most_bytes)
        self._reasoning.add(delta)

    def count(self, size: int) -> None:
        """Count bytes kept in memory beside text and reasoning, which have their own bounds. Raises
        MalformedAnswer if there are too many."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise MalformedAnswer(f"The model's answer is longer than {self._turn.most_bytes} bytes.")

    def add_chunk(self, chunk: ChatChunk) -> bool:
        """Add one chunk of a stream; return whether repeats were removed from it."""
        choices = chunk.choices
        repeats = False
        if chunk.error is not None:
            if choices and choices[0].delta is not None:
                self._add_output(choices[0].delta)
            raise failure_of(chunk.error)
        if choices:
            choice = choices[0]
            if len(choices) > 1 or choice.index:
                raise MalformedAnswer("The model sent several answers; a conversation keeps one. Send n=1.")
            delta = choice.delta
            if delta is not None:
                self._add_output(delta)
                if delta.role is not None or delta.tool_calls:
                    repeats = self._repeat_filter.remove_repeats(choice)
            if choice.finish_reason:
                self._end_with(choice.finish_reason)
        if self._model is None:
            self._model = chunk.model
            self.id = chunk.id or self.id
        if chunk.usage is not None:
            self._usage = chunk.usage
        return repeats

    async def add_completion(self, body: bytes) -> None:
        """Add an answer that was not streamed."""
        completion = completion_of(body)
        if completion.error is not None:
            raise failure_of(completion.error)
        choices = completion.choices or []
        if len(choices) != 1:
            raise MalformedAnswer(f"The model gave {len(choices)} answers; a conversation keeps one.")
        message = choices[0].message
        for number, call in enumerate(message.tool_calls or []):
            call.setdefault("index", number)
        self._collect_reasoning(message)
        if self._reasoning and (message.content or message.refusal or message.tool_calls):
            await self.flush_reasoning()
        self._add_output(message)
        if choices[0].finish_reason:
            self._end_with(choices[0].finish_reason)
        self._model, self._usage = completion.model, completion.usage
        self.id = completion.id or ""

    def _end_with(self, finish_reason: str) -> None:
        if finish_reason not in self._finish_reasons:
            raise failure_of_end(finish_reason)
        self.finish_reason = finish_reason

    def _add_output(self, delta: Delta) -> None:
        if delta.content:
            self._has_text = True
            self._turn.emit(delta.content)
        if delta.refusal:
            self.count(len(delta.refusal) + _OVERHEAD)
            self._refusal.append(delta.refusal)
        if delta.tool_calls:
            if self._calls is None:
                self._calls = CallDeltas(self.count)
            self._calls.add(delta.tool_calls)
        if delta.function_call is not None:
            raise MalformedAnswer("The model made a call without an id: send `tools`, not `functions`.")

    def end(self) -> None:
        """End the stream: the answer is complete if there was a `finish_reason`."""
        if self.finish_reason is None:
            raise failure_of_end(None)
        items = self._final_items()
        if not items and not self._has_text:
            problem = "reasoning but no answer" if self._reasoning else "an empty answer"
            raise MalformedAnswer(f"The model returned {problem} (finish_reason {self.finish_reason}).")
        self._turn.put(*items)
        details = self._turn.details
        if self._model is not None:
            details["model"] = self._model
        details["finish_reason"] = self.finish_reason
        if self._usage is not None:
            details["usage"] = self._usage

    def _final_items(self) -> tuple[Item, ...]:
        parts: list[dict[str, Any]] = []
        if self._refusal:
            parts.append({"role": "assistant", "content": None, "refusal": "".join(self._refusal)})
        if self._calls is not None:
            parts.append({"role": "assistant", "content": None, "tool_calls": self._calls.whole()})
        if not parts:
            return ()
        reasoning = self._reasoning.take() if self._reasoning is not None else ()
        try:
            return (*reasoning, *items_of_messages(parts))
        except MalformedItems as problem:
            raise MalformedAnswer(f"The model's answer cannot be kept: {problem}") from None
