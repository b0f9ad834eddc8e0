"""The chat runner: puts a chat model's answer into a turn, and only a whole one.

turn = await ledger.run(ChatRunner(DemoModel(), {"model": "demo"}), "Hello")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import MalformedAnswer, MalformedItems, ModelRefused
from turnledger.model.item import Item
from turnledger.model.messages.messages import items_of_messages
from turnledger.runners.chat_model import (
    ChatChunk,
    ChatModel,
    Delta,
    ModelRequest,
    chunk_of,
    completion_of,
    failure_of,
    failure_of_end,
    finish_reasons_of,
)
from turnledger.runners.dedupe_deltas import SaidOnce, rewritten
from turnledger.runners.reasoning import Thoughts
from turnledger.runners.tool_call_deltas import CallDeltas

OnPayloads = Callable[[list[bytes]], None]

_OVERHEAD = 50
"""Bytes that a text or its place in a list takes beside its characters."""


class ChatRunner:
    """Asks a model with the messages of the turn. Its text is emitted as it comes; its calls of tools, which
    are the client's to answer, and its refusals end the turn. What it thinks before it speaks is one item in
    front of that; what it thinks between texts is passed on, and not kept.

    Raises a ModelError for anything but a whole answer: one that ended properly, with a `finish_reason` that
    is known to mean so (FINISH_REASONS, or the model's own `finish_reasons`). The turn then fails, and the
    history is as it was. `turn.details` holds the `model`, by the name that it gives itself or else the one
    it was asked by, the `finish_reason` and, where the model told it, `usage`: with `asks_usage` a stream is
    asked for it where no `stream_options` are given, unless the model refuses them.

    `on_payloads` is called with the chunks of a stream, as many as have arrived, up to the one that says how
    the answer ended: from there on they wait in `held`, to be sent when the turn is committed. They are as
    the model sent them, but for a role, or the id or name of a call, that it says again. One runner runs one
    turn at a time.
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
        """The id that the model gave its answer; empty if it gave none."""
        self.held: list[bytes] = []
        """The payloads of a stream from the one with the `finish_reason` on."""
        self.completion = b""
        """The whole answer, as the model gave it, where it was not streamed."""
        self._answer: _Answer | None = None

    @property
    def has_spoken(self) -> bool:
        """Whether a text, a refusal or a call has come, and not only the announcement of one."""
        return self._answer is not None and self._answer.has_spoken

    async def __call__(self, turn: RunningTurn, /) -> None:
        self.held = []
        self.completion = b""
        asked = ModelRequest(
            msgspec.Raw(await turn.read_messages_json()), self._settings, self._stream_options
        )
        self._answer = answer = _Answer(turn, finish_reasons_of(self._model))
        if self._stream:
            await self._listen(asked, answer)
        else:
            self.completion = await self._model.complete(asked)
            await answer.take_whole(self.completion)
        answer.end()
        named = self._settings.get("model")
        if isinstance(named, str):
            turn.details.setdefault("model", named)
        self.answer_id = answer.id

    async def _listen(self, asked: ModelRequest, answer: _Answer) -> None:
        try:
            await self._follow(asked, answer)
        except ModelRefused as refused:  # before anything was said
            if not self._asks_usage or "stream_options" not in str(refused.error):
                raise
            await self._follow(msgspec.structs.replace(asked, stream_options=None), answer)

    async def _follow(self, asked: ModelRequest, answer: _Answer) -> None:
        on_payloads, held = self._on_payloads, self.held
        async with self._model.stream(asked) as batches:
            async for payloads in batches:
                shown: list[bytes] = []
                try:
                    for payload in payloads:
                        chunk = chunk_of(payload)
                        if answer.has_thought(chunk):
                            await answer.tell_thoughts()
                        told = rewritten(payload, chunk) if answer.take(chunk) else payload
                        if answer.finish_reason is None:
                            shown.append(told)
                        else:
                            answer.count(len(told) + _OVERHEAD)
                            held.append(told)
                finally:  # also what came before one that breaks the answer off
                    if shown and on_payloads is not None:
                        self.answer_id = answer.id
                        on_payloads(shown)


class _Answer:
    """The answer so far, on its way into a turn."""

    __slots__ = (
        "_calls",
        "_finish_reasons",
        "_has_text",
        "_model",
        "_once",
        "_refusal",
        "_room",
        "_thoughts",
        "_turn",
        "_usage",
        "finish_reason",
        "id",
    )

    def __init__(self, turn: RunningTurn, finish_reasons: Collection[str]) -> None:
        self._turn = turn
        self._finish_reasons = finish_reasons
        self._room = turn.most_bytes
        self._has_text = False
        self._once = SaidOnce()
        self._refusal: list[str] = []
        self._calls: CallDeltas | None = None
        self._thoughts: Thoughts | None = None
        self._model: str | None = None
        self._usage: dict[str, Any] | None = None
        self.finish_reason: str | None = None
        self.id = ""

    @property
    def has_spoken(self) -> bool:
        return self._has_text or self._calls is not None or bool(self._refusal)

    def has_thought(self, chunk: ChatChunk) -> bool:
        """Take what the model thinks; say whether it begins to speak, and has thought before."""
        delta = chunk.choices[0].delta if chunk.choices else None
        if delta is None:
            return False
        if delta.reasoning_content or delta.reasoning:
            self._think(delta)
        if not self._thoughts or self.has_spoken:
            return False
        return bool(delta.content or delta.refusal or delta.tool_calls)

    async def tell_thoughts(self) -> None:
        """Add what it has thought so far to the turn, in front of what it says."""
        if self._thoughts is not None:
            await self._turn.add(*self._thoughts.take())

    def _think(self, delta: Delta) -> None:
        if self._thoughts is None:
            self._thoughts = Thoughts(self._turn.most_bytes)
        self._thoughts.add(delta)

    def count(self, size: int) -> None:
        """Count what is kept in memory beside texts and thoughts, which have bounds of their own. Raises
        MalformedAnswer if it is too much."""
        self._room -= size
        if self._room < 0:
            raise MalformedAnswer(f"The model's answer is longer than {self._turn.most_bytes} bytes.")

    def take(self, chunk: ChatChunk) -> bool:
        """Take one chunk of a stream; say whether it repeats what is to be told once, and is rid of it."""
        choices = chunk.choices
        repeats = False
        if chunk.error is not None:
            if choices and choices[0].delta is not None:
                self._say(choices[0].delta)
            raise failure_of(chunk.error)
        if choices:
            choice = choices[0]
            if len(choices) > 1 or choice.index:
                raise MalformedAnswer("The model gave several answers; a conversation keeps one.")
            delta = choice.delta
            if delta is not None:
                self._say(delta)
                if delta.role is not None or delta.tool_calls:
                    repeats = self._once.take(choice)
            if choice.finish_reason:
                self._end_with(choice.finish_reason)
        if self._model is None:
            self._model = chunk.model
            self.id = chunk.id or self.id
        if chunk.usage is not None:
            self._usage = chunk.usage
        return repeats

    async def take_whole(self, body: bytes) -> None:
        """Take an answer that was not streamed."""
        completion = completion_of(body)
        if completion.error is not None:
            raise failure_of(completion.error)
        choices = completion.choices or []
        if len(choices) != 1:
            raise MalformedAnswer(f"The model gave {len(choices)} answers; a conversation keeps one.")
        said = choices[0].message
        for number, call in enumerate(said.tool_calls or []):
            call.setdefault("index", number)
        self._think(said)
        if self._thoughts and (said.content or said.refusal or said.tool_calls):
            await self.tell_thoughts()
        self._say(said)
        if choices[0].finish_reason:
            self._end_with(choices[0].finish_reason)
        self._model, self._usage = completion.model, completion.usage
        self.id = completion.id or ""

    def _end_with(self, finish_reason: str) -> None:
        if finish_reason not in self._finish_reasons:
            raise failure_of_end(finish_reason)
        self.finish_reason = finish_reason

    def _say(self, delta: Delta) -> None:
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
        """The stream ended properly: the answer is whole if the model said how it ended."""
        if self.finish_reason is None:
            raise failure_of_end(None)
        ending = self._ending()
        if not ending and not self._has_text:
            what = "thought, and said nothing" if self._thoughts else "gave an empty answer"
            raise MalformedAnswer(f"The model {what} (finish_reason {self.finish_reason}).")
        self._turn.put(*ending)
        details = self._turn.details
        if self._model is not None:
            details["model"] = self._model
        details["finish_reason"] = self.finish_reason
        if self._usage is not None:
            details["usage"] = self._usage

    def _ending(self) -> tuple[Item, ...]:
        said: list[dict[str, Any]] = []
        if self._refusal:
            said.append({"role": "assistant", "content": None, "refusal": "".join(self._refusal)})
        if self._calls is not None:
            said.append({"role": "assistant", "content": None, "tool_calls": self._calls.whole()})
        if not said:
            return ()
        led = self._thoughts.take() if self._thoughts is not None else ()
        try:
            return (*led, *items_of_messages(said))
        except MalformedItems as problem:
            raise MalformedAnswer(f"The model's answer cannot be kept: {problem}") from None
