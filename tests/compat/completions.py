"""Chat completions of the official client, whole or streamed, with all parts of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk

from tests.compat.live_server import MODEL

Messages: TypeAlias = "str | Sequence[Mapping[str, Any]]"
CREATED, CONTINUED, BRANCHED = "created", "continued", "branched"


@dataclass
class Answer:
    id: str = ""
    text: str = ""
    refusal: str = ""
    finish_reason: str | None = None
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """Id, name and arguments of each."""
    usage: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def conversation(self) -> str:
        return self.headers["x-conversation-id"]

    @property
    def state(self) -> str:
        """CREATED, CONTINUED or BRANCHED."""
        return self.headers["x-conversation-state"]

    @property
    def turn(self) -> str:
        return self.headers["x-turn-id"]

    @property
    def is_replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message of the next request."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in self.calls
            ]
        return message


Way: TypeAlias = Callable[..., Answer]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def result(call_id: str, text: str) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def send_whole(client: OpenAI, messages: Messages, *, model: str = MODEL, **options: Any) -> Answer:
    response = client.chat.completions.with_raw_response.create(
        model=model, messages=_listed(messages), **options
    )
    completion = response.parse()
    [choice] = completion.choices
    calls = choice.message.tool_calls or []
    return Answer(
        id=completion.id,
        text=choice.message.content or "",
        refusal=choice.message.refusal or "",
        finish_reason=choice.finish_reason,
        calls=[(call.id, call.function.name, call.function.arguments) for call in calls],
        usage=completion.usage,
        headers=response.headers,
    )


def send_streamed(client: OpenAI, messages: Messages, *, model: str = MODEL, **options: Any) -> Answer:
    response = client.chat.completions.with_raw_response.create(
        model=model, messages=_listed(messages), stream=True, **options
    )
    with response.parse() as chunks:
        answer = collect(chunks)
    answer.headers = response.headers
    return answer


def collect(chunks: Iterable[ChatCompletionChunk]) -> Answer:
    """Join the chunks. Role, ids and names must occur once, and the end must be last."""
    answer, roles = Answer(), 0
    calls: list[list[str]] = []
    for chunk in chunks:
        assert answer.id in ("", chunk.id)
        answer.id = chunk.id
        answer.usage = chunk.usage or answer.usage
        for choice in chunk.choices:
            assert answer.finish_reason is None, "the stream continued after its end"
            roles += choice.delta.role is not None
            answer.text += choice.delta.content or ""
            answer.refusal += choice.delta.refusal or ""
            answer.finish_reason = choice.finish_reason
            for call in choice.delta.tool_calls or ():
                if call.id is not None:
                    assert call.index == len(calls)
                    calls.append([call.id, call.function.name, ""])
                calls[call.index][2] += call.function.arguments or ""
    assert answer.finish_reason is not None, "the stream ended without an end"
    assert roles == 1
    answer.calls = [tuple(call) for call in calls]
    return answer


def _listed(messages: Messages) -> Any:
    return [user(messages)] if isinstance(messages, str) else list(messages)


both_ways = pytest.mark.parametrize("way", [send_whole, send_streamed])
"""Runs the test with whole and with streamed answers."""
