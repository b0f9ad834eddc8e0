"""The chat runner: puts a chat model's answer into a turn, and only a complete one.

    turn = await ledger.run(ChatRunner(DemoModel(), {"model": "demo"}), "Hello")

Text, reasoning, refusals and the arguments of calls are emitted as they arrive; servers name reasoning
`reasoning_content` (DeepSeek and its followers) or `reasoning`. Clients join the deltas of a stream, so
roles, and ids and names of calls, may be sent only once: chunks of models that repeat them are rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import MalformedAnswer, MalformedItems, ModelError, ModelRefused
from turnledger.model.item import Item, message
from turnledger.model.messages.messages import CALL_BODIES, CALL_TYPES, items_of_messages
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
from turnledger.runners.context_limit import REDUCED, ContextMemory, tokens_left, tokens_of_tools
from turnledger.runners.message_repair import repair_messages

_CALL_OVERHEAD = 500


class CallDeltas:
    """Collects calls by their index. Ids, types and names arrive once, arguments in pieces; of other fields
    the last value counts. `count` is called with the bytes of each piece, and may raise. With a turn, each
    call is begun there once its id, type and name are known, and its arguments are emitted."""

    def __init__(
        self, count: Callable[[int], None] = lambda _: None, turn: RunningTurn | None = None
    ) -> None:
        self._count = count
        self._turn = turn
        self._calls: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}
        self._begun: dict[int, str] = {}
        """The ids of calls that the turn has begun."""

    def add(self, deltas: list[dict[str, Any]]) -> None:
        """Add the pieces of one chunk. Raises MalformedAnswer."""
        for delta in deltas:
            index = delta.get("index", 0)
            if type(index) is not int:
                raise MalformedAnswer(
                    "The model sent a tool call whose index is not a number. Check its server."
                )
            call = self._calls.get(index)
            if call is None:
                self._count(_CALL_OVERHEAD)
                call = self._calls[index] = {"type": "function"}
                self._pieces[index] = []
            known = len(self._pieces[index])
            self._merge(index, call, delta)
            if self._turn is not None:
                self._emit(self._turn, index, call, known)

    def _emit(self, turn: RunningTurn, index: int, call: dict[str, Any], known: int) -> None:
        """Emit the pieces of a call after those that are known, or all of them if it can be begun now."""
        if index not in self._begun:
            kind, call_id = call["type"], call.get("id")
            name = call.get(kind, {}).get("name") if isinstance(kind, str) and kind in CALL_BODIES else None
            if not (call_id and isinstance(call_id, str) and name and isinstance(name, str)):
                return
            try:
                turn.begin_call(call_id, name, type=CALL_TYPES[kind])
            except MalformedItems as problem:
                raise MalformedAnswer(f"The model's answer cannot be kept: {problem}") from None
            self._begun[index], known = call_id, 0
        for piece in self._pieces[index][known:]:
            turn.emit_arguments(self._begun[index], piece)

    def whole(self) -> list[dict[str, Any]]:
        """Return the calls of a message, ordered by index. Raises MalformedAnswer for a call that cannot be
        answered."""
        calls = []
        for index, call in sorted(self._calls.items()):
            kind = call["type"]
            body = call.get(kind) if isinstance(kind, str) and kind in CALL_BODIES else None
            if not call.get("id") or body is None or not body.get("name"):
                raise MalformedAnswer(
                    "The model called a tool without an id, a known type or a name. Check its server."
                )
            calls.append({**call, kind: {**body, CALL_BODIES[kind]: "".join(self._pieces[index])}})
        return calls

    def _merge(self, index: int, call: dict[str, Any], delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if name == "index" or value is None or value == "":
                continue
            if name in CALL_BODIES:
                self._merge_body(index, call.setdefault(name, {}), CALL_BODIES[name], value)
            elif name == "id" and call.setdefault("id", value) != value:
                raise MalformedAnswer(
                    f"The model sent two tool calls with the index {index}. Check its server."
                )
            else:
                self._keep(call, name, value)

    def _merge_body(self, index: int, body: dict[str, Any], growing: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise MalformedAnswer("The model sent a tool call that is not an object. Check its server.")
        for name, each in value.items():
            if each is None or each == "":
                continue
            if name == growing:
                if not isinstance(each, str):
                    raise MalformedAnswer(
                        f"The model sent a tool call whose {growing} is not a text. Check its server."
                    )
                self._count(len(each) + 50)  # the size of a one-character string
                self._pieces[index].append(each)
            elif name != "name" or "name" not in body:
                self._keep(body, name, each)

    def _keep(self, kept: dict[str, Any], name: str, value: Any) -> None:
        if name not in kept or kept[name] != value:
            self._count(len(name) + len(json.dumps(value)))
            kept[name] = value


MOST_NAMES = 20_000


class RepeatFilter:
    """Remembers the roles, ids and names sent in one streamed answer."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[tuple[Any, ...]] = set()

    def without_repeats(self, payloads: list[bytes]) -> list[bytes]:
        """Return the next chunks without repeats; the same bytes where there are none, or no chunk."""
        if not _may_repeat(b"\n".join(payloads)):
            return payloads
        return [self._without_repeats(each) if _may_repeat(each) else each for each in payloads]

    def _without_repeats(self, payload: bytes) -> bytes:
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
        for kind in CALL_BODIES:
            body = call.get(kind)
            if isinstance(body, dict) and body.get("name") and self._is_repeat(choice, index, "name"):
                del body["name"]
                repeats = True
        return repeats

    def _is_repeat(self, *name: Any) -> bool:
        if name in self._seen:
            return True
        if len(self._seen) >= MOST_NAMES:
            raise MalformedAnswer(
                f"The model made more than {MOST_NAMES // 2} tool calls in one answer. Ask for fewer."
            )
        self._seen.add(name)
        return False


def _may_repeat(payload: bytes) -> bool:
    # The cheapest search: `in` makes an exception first, and `find` parses its arguments.
    return bool(payload.partition(b'"role"')[1] or payload.partition(b'"tool_calls"')[1])


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


def _with_content(body: bytes, content: str) -> bytes:
    fields = json.loads(body)
    fields["choices"][0]["message"]["content"] = content
    return json.dumps(fields, separators=(",", ":")).encode()


OnPayloads = Callable[[list[bytes]], None]

_REPEATED = 16
"""Characters of a prefill that are not the same words again by chance. llama.cpp's server, which sends
`timings`, repeats any prefill in whole answers, and none in streams."""
_OVERHEAD = 50
"""Bytes of a text or its place in a list, beside its characters."""


class ChatRunner:
    """Sends the messages of the turn to a model. Its output is emitted as it arrives; tool calls, which the
    client answers, and refusals end the turn. All reasoning becomes one item in front of them. An answer
    without any of them is an empty message.

    Raises a ModelError for an incomplete answer: one without a known `finish_reason` (FINISH_REASONS, or the
    model's own `finish_reasons`). The turn then fails, and the history is unchanged. `turn.details` holds the
    `model`, as the answer names it, or else the request, the `finish_reason` and, if reported, `usage`. With
    `asks_usage`, a stream without `stream_options` requests it, unless the model refuses that.

    A model that refuses the length of the request is asked once more with fewer turns of the history, unless
    its answer has begun, or `reduces` is False. `memory`, which runners may share, then shows no more of the
    chat for a while. One whose roles must alternate is asked once more with messages of one role in a row
    joined, since a question that was stopped before its answer is followed by another one; and without the
    answers before the first question, whose own question is no longer shown. One that refuses a history with
    calls whose arguments are no JSON object is asked once more with an object in their place.
    `turn.details["context_reduced"]` has the `turns` that it was shown, and the `tokens` into which they fit;
    `on_reduced` is called with these details before it is asked.

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
        on_reduced: Callable[[Mapping[str, Any]], None] | None = None,
        memory: ContextMemory | None = None,
        reduces: bool = True,
    ) -> None:
        self._model = model
        self._settings = settings
        self._stream = stream
        self._asks_usage = asks_usage and stream_options is None
        self._stream_options = {"include_usage": True} if self._asks_usage else stream_options
        self._on_payloads = on_payloads
        self._on_reduced = on_reduced
        self._memory = ContextMemory() if memory is None else memory
        self._reduces = reduces
        self.answer_id = ""
        """The id of the answer; empty if the model gave none."""
        self.held: list[bytes] = []
        """The payloads of a stream from the one with the `finish_reason` on."""
        self.completion = b""
        """The complete answer, as the model sent it except for a repeated prefill, if it was not streamed."""
        self._answer: _Answer | None = None

    @property
    def has_output(self) -> bool:
        """Whether text, a refusal or a call has arrived, not only its announcement."""
        return self._answer is not None and self._answer.has_output

    @property
    def _has_begun(self) -> bool:
        """Whether anything of an answer has arrived, and may have been sent on."""
        return self._answer is not None and self._answer.has_begun

    @property
    def _model_name(self) -> str:
        return str(msgspec.json.decode(msgspec.json.encode(self._settings.get("model"))))  # it may be raw

    async def __call__(self, turn: RunningTurn, /) -> None:
        chat, memory = turn.conversation.id, self._memory
        if not self._reduces:
            await self._ask(turn)
            return
        if memory.tokens and (known := memory.find(chat, self._model_name)) is not None:
            await self._show_less(turn, known - tokens_of_tools(self._settings))
        try:
            await self._ask(turn)
            return
        except ModelError as problem:
            sizes = problem.context_exceeded
            last = turn.history[-1].details if turn.history else {}
            if sizes is None or self._has_begun:
                raise
            besides, model = tokens_of_tools(self._settings), self._model_name
            left = await self._show_less(turn, lambda shown: tokens_left(sizes, shown, besides, model, last))
            if left is None:
                raise
        left += besides
        memory.note(chat, model, left)
        try:
            await self._ask(turn)
        except ModelError as problem:
            if problem.context_exceeded is not None:
                memory.note(chat, model, left // 2)
            raise

    async def _show_less(self, turn: RunningTurn, tokens: int | Callable[[int], int]) -> int | None:
        """Show fewer turns, and return the tokens into which they fit; None if no turn can be left out."""
        reduced = await turn.show_less(tokens)
        if reduced is None:
            return None
        turn.details[REDUCED] = msgspec.structs.asdict(reduced)
        if self._on_reduced is not None:
            self._on_reduced(turn.details)
        return reduced.tokens

    async def _ask(self, turn: RunningTurn) -> None:
        self.held = []
        self.completion = b""
        messages = msgspec.Raw(await turn.read_messages_json())
        request = ModelRequest(messages, self._settings, self._stream_options)
        try:
            await self._request_answer(turn, request)
        except ModelError as problem:
            repaired = None if self._has_begun else repair_messages(messages, problem)
            if repaired is None:
                raise
            await self._request_answer(turn, msgspec.structs.replace(request, messages=repaired))

    async def _request_answer(self, turn: RunningTurn, request: ModelRequest) -> None:
        self._answer = answer = _Answer(turn, finish_reasons_of(self._model))
        if self._stream:
            await self._stream_answer(request, answer)
        else:
            self.completion = answer.add_completion(await self._model.complete(request))
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
        if not answer.has_begun:  # llama-cpp-python does this where the context is too short
            message = "The model sent nothing. If the chat is too long for it, set `context_tokens`."
            raise MalformedAnswer(message, should_retry=True)


class _Answer:
    __slots__ = (
        "_bytes_left",
        "_calls",
        "_finish_reasons",
        "_has_text",
        "_model",
        "_repeat_filter",
        "_turn",
        "_usage",
        "finish_reason",
        "has_begun",
        "id",
    )

    def __init__(self, turn: RunningTurn, finish_reasons: Collection[str]) -> None:
        self._turn = turn
        self._finish_reasons = finish_reasons
        self._bytes_left = turn.most_bytes
        self._has_text = False
        self._repeat_filter = RepeatFilter()
        self._calls: CallDeltas | None = None
        self._model: str | None = None
        self._usage: dict[str, Any] | None = None
        self.finish_reason: str | None = None
        self.has_begun = False
        self.id = ""

    @property
    def has_output(self) -> bool:
        return self._has_text or self._calls is not None

    def count(self, size: int) -> None:
        """Count bytes kept in memory beside what the turn has, which has a bound of its own. Raises
        MalformedAnswer if there are too many."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise MalformedAnswer(
                f"The model's answer is longer than {self._turn.most_bytes} bytes. Ask for a shorter one."
            )

    def add_chunk(self, chunk: ChatChunk) -> bool:
        """Add one chunk of a stream; return whether repeats were removed from it."""
        choices = chunk.choices
        repeats = False
        if chunk.error is not None:
            if choices and choices[0].delta is not None:
                self.has_begun = True
                self._add_output(choices[0].delta)
            raise failure_of(chunk.error)
        self.has_begun = True
        if choices:
            choice = choices[0]
            if len(choices) > 1 or choice.index:
                raise MalformedAnswer("The model sent several answers; a conversation keeps one. Send n=1.")
            delta = choice.delta
            if delta is not None:
                self._add_output(delta)
                if delta.role is not None or delta.tool_calls:
                    repeats = self._repeat_filter.remove_repeats(choice)
            if choice.error is not None:
                raise failure_of(choice.error)
            if choice.finish_reason:
                self._end_with(choice.finish_reason)
        if self._model is None:
            self._model = chunk.model
            self.id = chunk.id or self.id
        if chunk.usage is not None:
            self._usage = chunk.usage
        return repeats

    def add_completion(self, body: bytes) -> bytes:
        """Add an answer that was not streamed. Return its body, without a prefill that it repeats."""
        completion = completion_of(body)
        if completion.error is not None:
            raise failure_of(completion.error)
        choices = completion.choices or []
        if len(choices) != 1:
            remedy = "Send n=1." if choices else "Check its server."
            raise MalformedAnswer(
                f"The model gave {len(choices)} answers; a conversation keeps one. {remedy}"
            )
        answer = choices[0].message
        for number, call in enumerate(answer.tool_calls or []):
            call.setdefault("index", number)
        prefill, text = self._turn.text, answer.content or ""
        if prefill and text.startswith(prefill) and (completion.timings or len(prefill) >= _REPEATED):
            answer.content = text[len(prefill) :]
            body = _with_content(body, answer.content)
        self._add_output(answer)
        if choices[0].error is not None:
            raise failure_of(choices[0].error)
        if choices[0].finish_reason:
            self._end_with(choices[0].finish_reason)
        self._model, self._usage = completion.model, completion.usage
        self.id = completion.id or ""
        return body

    def _end_with(self, finish_reason: str) -> None:
        if finish_reason not in self._finish_reasons:
            raise failure_of_end(finish_reason)
        self.finish_reason = finish_reason

    def _add_output(self, delta: Delta) -> None:
        # If both fields are set, they hold the same text; anything but text is only passed on.
        thought = delta.reasoning_content or delta.reasoning
        if thought and isinstance(thought, str):
            self._turn.emit_reasoning(thought)
        if delta.content:
            self._has_text = True
            self._turn.emit(delta.content)
        if delta.refusal:
            self._has_text = True
            self._turn.emit_refusal(delta.refusal)
        if delta.tool_calls:
            if self._calls is None:
                self._calls = CallDeltas(self.count, self._turn)
            self._calls.add(delta.tool_calls)
        if delta.function_call is not None:
            raise MalformedAnswer("The model made a call without an id: send `tools`, not `functions`.")

    def end(self) -> None:
        """End the stream: the answer is complete if there was a `finish_reason`."""
        if self.finish_reason is None:
            raise failure_of_end(None)
        calls = self._final_calls()
        # A model may stop at once, or think until its limit: that is an answer, too.
        self._turn.put(*(calls if calls or self._has_text else (message("assistant", ""),)))
        details = self._turn.details
        if self._model is not None:
            details["model"] = self._model
        details["finish_reason"] = self.finish_reason
        if self._usage is not None:
            details["usage"] = self._usage

    def _final_calls(self) -> tuple[Item, ...]:
        """Return the calls with all their fields, which take the place of those emitted."""
        if self._calls is None:
            return ()
        answer = {"role": "assistant", "content": None, "tool_calls": self._calls.whole()}
        try:
            return items_of_messages([answer])
        except MalformedItems as problem:
            raise MalformedAnswer(f"The model's answer cannot be kept: {problem}") from None
