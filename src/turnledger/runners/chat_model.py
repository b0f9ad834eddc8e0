"""Chat models: how to request answers, complete or streamed, and how to read them.

A model is anything with these four methods; `upstream` calls a server, `demo` needs none. Answers stay the
bytes that the model sent: each is decoded once, and only the fields that are used.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from turnledger.errors import MalformedAnswer, ModelError, ModelUnavailable
from turnledger.model.messages.messages import Message
from turnledger.model.text.plain import plain
from turnledger.runners.context_limit import context_exceeded
from turnledger.runners.error_cleaner import (
    ABOUT_THE_ACCOUNT,
    ErrorCleaner,
    can_heal,
    problem_of_account,
    refuses_repeated_roles,
    status_in,
)


class ModelRequest(msgspec.Struct, frozen=True):
    """A request to a chat model."""

    messages: Sequence[Message] | msgspec.Raw
    """Chat messages, or the JSON of a list of them, which is sent unchanged."""
    settings: Mapping[str, Any] = {}
    """The other fields of a request (`model`, `tools`, `temperature`, …), known or not, except `stream` and
    `stream_options`; a value may be its JSON as `msgspec.Raw`."""
    stream_options: Any = None

    def body(self, *, stream: bool) -> bytes:
        """Return it as JSON, with `stream`, and with `stream_options` for a stream."""
        fields = {**self.settings, "messages": self.messages, "stream": stream}
        if stream and self.stream_options is not None:
            fields["stream_options"] = self.stream_options
        return msgspec.json.encode(fields)


FINISH_REASONS = frozenset(
    {"stop", "length", "tool_calls", "content_filter", "function_call"}  # of the API itself
    | {"eos", "eos_token", "stop_sequence", "end_turn", "max_tokens", "model_length"}  # of other servers
)
"""Finish reasons of a complete answer. Servers also send `error` or `abort` for incomplete ones."""


class ChatModel(Protocol):
    """Answers chat messages. Without an answer, every method raises a ModelError, and no other error. A model
    may have an attribute `finish_reasons` in place of FINISH_REASONS, and a method `for_client` (see
    Upstream)."""

    async def complete(self, request: ModelRequest) -> bytes:
        """Return one complete `chat.completion`, as JSON."""

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """Stream an answer. Entering sends the request, and raises if there is no answer. Iterating yields
        the JSON of its chunks, as many at a time as have arrived, and raises if it breaks off. The reader
        must check that the answer is complete: that there was a `finish_reason`."""

    async def models(self) -> list[dict[str, Any]]:
        """List the models that `settings["model"]` may name, as objects of the models API."""

    async def close(self) -> None:
        """Close the connections. Later requests fail."""


# The fields that are used. `tool_calls` stay plain, to keep fields of some models only (signatures).


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: Any = None  # the old kind, without an id
    role: Any = None  # used only to drop repeats
    reasoning_content: Any = None  # of any type: models differ
    reasoning: Any = None


class ChunkChoice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    finish_reason: str | None = None
    index: int = 0
    error: Any = None  # of OpenRouter, with the finish_reason `error`


class ChatChunk(msgspec.Struct, gc=False):
    """The used fields of one `chat.completion.chunk`."""

    id: str | None = None
    model: str | None = None
    choices: list[ChunkChoice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class CompletionChoice(msgspec.Struct):
    message: Delta
    finish_reason: str | None = None
    index: int = 0
    error: Any = None


class ChatCompletion(msgspec.Struct):
    """The used fields of one `chat.completion`."""

    id: str | None = None
    model: str | None = None
    choices: list[CompletionChoice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    timings: Any = None  # of llama.cpp


_Answer = TypeVar("_Answer", ChatChunk, ChatCompletion)

_chunks = msgspec.json.Decoder(ChatChunk)
_completions = msgspec.json.Decoder(ChatCompletion)
_decode_chunk = _chunks.decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def chunk_of(payload: bytes) -> ChatChunk:
    """Decode a chunk. Raises MalformedAnswer."""
    try:
        if not payload.isascii():
            payload.decode()  # the decoder checks only the fields it takes; the rest is passed on
        return _decode_chunk(payload)
    except _UNREADABLE as problem:
        return _with_halves(payload, ChatChunk, problem)


def completion_of(body: bytes) -> ChatCompletion:
    """Decode a complete answer. Raises MalformedAnswer."""
    try:
        if not body.isascii():
            body.decode()
        return _completions.decode(body)
    except _UNREADABLE as problem:
        return _with_halves(body, ChatCompletion, problem)


def error_in(answer: ChatChunk | ChatCompletion) -> Any:
    """Return the error object of an answer, or of one of its choices; None if there is none."""
    holders = (answer, *(answer.choices or ()))
    return next((each.error for each in holders if each.error is not None), None)


_cleaner = ErrorCleaner()
_FAILED = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})


def failure_of(error: Any) -> ModelUnavailable:
    """Return the error for an error object within an answer: the model began, and stopped early."""
    cleaned = _cleaner.clean(error)
    words, status = cleaned.get("message", ""), status_in(cleaned)
    if status in ABOUT_THE_ACCOUNT:
        return ModelUnavailable(problem_of_account(status, words), should_retry=False)
    reason = f" with an error: {words.rstrip('.')}" if words else ""
    may_heal = can_heal(status)
    remedy = " Try again." if may_heal else ""
    failure = ModelUnavailable(f"The model stopped early{reason}.{remedy}", should_retry=may_heal)
    failure.context_exceeded = context_exceeded(cleaned, status)
    failure.refuses_repeated_roles = refuses_repeated_roles(cleaned)
    return failure


def finish_reasons_of(model: ChatModel) -> Collection[str]:
    """Return the values of `finish_reason` with which this model ends a complete answer."""
    reasons: Collection[str] = getattr(model, "finish_reasons", FINISH_REASONS)
    return reasons


def failure_of_end(finish_reason: str | None) -> ModelError:
    """Return the error for an answer with no `finish_reason`, or with one of an incomplete answer."""
    if finish_reason is None:
        message = "The model's answer ended without a finish_reason. It may be incomplete; try again."
        return MalformedAnswer(message, should_retry=True)
    if finish_reason in _FAILED:
        return ModelUnavailable(f"The model stopped early (finish_reason {finish_reason}). Try again.")
    shown = plain(finish_reason[:40])
    return MalformedAnswer(
        f"Unknown finish_reason {shown!r}. If such answers are complete, add it to `finish_reasons`."
    )


def _with_halves(raw: bytes, kind: type[_Answer], problem: Exception) -> _Answer:
    """Decode JSON with half a character: models that count UTF-16 cut anywhere. msgspec refuses that; the
    turn joins the halves."""
    try:
        return msgspec.convert(json.loads(raw), kind)
    except (ValueError, RecursionError):
        raise MalformedAnswer(
            f"The model sent something that cannot be read: {problem}. Check its server."
        ) from None
