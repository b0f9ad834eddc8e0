"""Chat models: what answers chat messages, whole or as a stream, and how its answers are read.

A model is anything with these four methods; `upstream` speaks to a server, `demo` needs none. Answers stay
the bytes that the model sent: they are decoded once, and only as far as somebody looks at them.
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


class ModelRequest(msgspec.Struct, frozen=True):
    """What a model is asked: the messages to answer, and how."""

    messages: Sequence[Message] | msgspec.Raw
    """Chat messages, or the JSON of a list of them, which is passed on as it is."""
    settings: Mapping[str, Any] = {}
    """The other fields of a request (`model`, `tools`, `temperature`, …), known or not; a value may be its
    JSON as `msgspec.Raw`. Not `stream` and `stream_options`."""
    stream_options: Any = None
    """The field of that name, where the answer is streamed."""

    def body(self, *, stream: bool) -> bytes:
        """The request as JSON."""
        fields = {**self.settings, "messages": self.messages, "stream": stream}
        if stream and self.stream_options is not None:
            fields["stream_options"] = self.stream_options
        return msgspec.json.encode(fields)


FINISH_REASONS = frozenset(
    {"stop", "length", "tool_calls", "content_filter", "function_call"}  # of the API itself
    | {"eos", "eos_token", "stop_sequence", "end_turn", "max_tokens", "model_length"}  # of other servers
)
"""How an answer may end that is whole. Servers also say `error` or `abort` of answers that are not."""


class ChatModel(Protocol):
    """Answers chat messages. Every method raises a ModelError when there is no answer, and no other error.

    A model may have an attribute `finish_reasons` in place of FINISH_REASONS."""

    async def complete(self, asked: ModelRequest) -> bytes:
        """Return one whole `chat.completion`, as JSON."""
        ...

    def stream(self, asked: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """Stream an answer. Entering it has the model begin, and raises before anything was said; iterating
        gives the JSON of its chunks, as many at a time as have arrived, and raises when it breaks off.
        Whether the answer is whole is for the reader to say: a `finish_reason` must have come."""
        ...

    async def models(self) -> list[dict[str, Any]]:
        """List the models that `settings["model"]` may name, as objects of the models API."""
        ...

    async def close(self) -> None:
        """Let go of connections. Nothing can be asked any more."""
        ...


# What is looked at. `tool_calls` stay plain, so that what only some models know (signatures) is kept.


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: Any = None  # of the old kind: it has no id
    role: Any = None  # looked at only to tell it once
    reasoning_content: Any = None  # in whatever shape: models differ
    reasoning: Any = None


class ChunkChoice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    finish_reason: str | None = None
    index: int = 0


class ChatChunk(msgspec.Struct, gc=False):
    """One `chat.completion.chunk`, as far as a conversation cares."""

    id: str | None = None
    model: str | None = None
    choices: list[ChunkChoice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class CompletionChoice(msgspec.Struct):
    message: Delta
    finish_reason: str | None = None
    index: int = 0


class ChatCompletion(msgspec.Struct):
    """One `chat.completion`, as far as a conversation cares."""

    id: str | None = None
    model: str | None = None
    choices: list[CompletionChoice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_Answer = TypeVar("_Answer", ChatChunk, ChatCompletion)

_chunks = msgspec.json.Decoder(ChatChunk)
_completions = msgspec.json.Decoder(ChatCompletion)
_decode_chunk = _chunks.decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def chunk_of(payload: bytes) -> ChatChunk:
    """Decode a chunk; raises MalformedAnswer."""
    try:
        if not payload.isascii():
            payload.decode()  # the decoder looks only at what it takes; the rest is passed on
        return _decode_chunk(payload)
    except _UNREADABLE as problem:
        return _with_halves(payload, ChatChunk, problem)


def completion_of(body: bytes) -> ChatCompletion:
    """Decode a whole answer; raises MalformedAnswer."""
    try:
        if not body.isascii():
            body.decode()
        return _completions.decode(body)
    except _UNREADABLE as problem:
        return _with_halves(body, ChatCompletion, problem)


ABOUT_THE_OPERATOR = frozenset({401, 402, 403, 407})
"""Statuses that are about the operator's account: what they say is not for who made the request."""
_ABOUT_US = frozenset(map(str, ABOUT_THE_OPERATOR))
_FAILED = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})


def failure_of(error: Any) -> ModelUnavailable:
    """What an error object within an answer means: the model began, and broke off."""
    if isinstance(error, dict) and str(error.get("code")) in _ABOUT_US:
        return ModelUnavailable("The model broke off: it does not accept this server's api_key.")
    told = error.get("message") if isinstance(error, dict) else error
    return ModelUnavailable(f"The model broke off with an error: {' '.join(str(told).split()).rstrip('.')}.")


def finish_reasons_of(model: ChatModel) -> Collection[str]:
    """Return the values of `finish_reason` by which this model says that its answer is whole."""
    reasons: Collection[str] = getattr(model, "finish_reasons", FINISH_REASONS)
    return reasons


def failure_of_end(finish_reason: str | None) -> ModelError:
    """What it means that an answer ended with a reason that is not one of a whole answer, or with none."""
    if finish_reason is None:
        return MalformedAnswer("The model's answer ended without a finish_reason: it may not be whole.")
    if finish_reason in _FAILED:
        return ModelUnavailable(f"The model broke off (finish_reason {finish_reason}). Try again.")
    shown = plain(finish_reason[:40])
    return MalformedAnswer(
        f"Unknown finish_reason {shown!r}. If answers that end so are whole, add it to `finish_reasons`."
    )


def _with_halves(raw: bytes, kind: type[_Answer], problem: Exception) -> _Answer:
    """Decode what may hold half a character: models that count UTF-16 cut where they like. msgspec refuses
    that, and a turn joins the halves."""
    try:
        return msgspec.convert(json.loads(raw), kind)
    except (ValueError, RecursionError):
        raise MalformedAnswer(f"The model sent something that cannot be read: {problem}.") from None
