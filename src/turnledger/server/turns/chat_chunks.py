"""Chat completions as bytes: made of a committed turn, or of the events of one that another request began.

What a model says while its own request is answered goes to the client as it came; this is for everyone else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnledger.model.event import Event, ItemDone, TextDelta
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.messages.messages import messages_of
from turnledger.model.messages.pairing import left_open
from turnledger.model.turn import Turn, TurnKind
from turnledger.server.wire.json import encode

DONE = b"data: [DONE]\n\n"


def as_events(payloads: Iterable[bytes]) -> bytes:
    """Payloads as server-sent events."""
    told = b"\n\ndata: ".join(payloads)
    return b"data: %b\n\n" % told if told else b""


def completion(turn: Turn) -> bytes:
    """The answer of a committed turn as one chat completion."""
    answer = message_of(turn.output)
    details = turn.details
    choice = {
        "index": 0,
        "message": answer,
        "logprobs": None,
        "finish_reason": finish_reason(turn),
    }
    whole = {
        "id": turn.id,
        "object": "chat.completion",
        "created": turn.created_at // 1000,
        "model": details.get("model", ""),
        "choices": [choice],
    }
    return encode(whole | _usage(details))


def _usage(details: Mapping[str, Any]) -> dict[str, Any]:
    return {"usage": details["usage"]} if details.get("usage") is not None else {}


def message_of(output: Sequence[Item]) -> dict[str, Any]:
    """All that a turn says to its client, as the one message that a chat completion has room for. Calls that
    were answered within the turn are not the client's."""
    calls = left_open(output)
    said = [each for each in messages_of(output) if each["role"] == "assistant"]
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    for each in said:
        for name, value in each.items():
            if name in ("content", "refusal") and isinstance(value, str):
                message[name] = (message[name] or "") + value
            elif name not in ("role", "tool_calls", "content", "refusal"):
                message[name] = value
    own = [call for each in messages_of(calls) for call in each.get("tool_calls", ())]
    return {**message, "tool_calls": own} if own else message


def finish_reason(turn: Turn) -> str:
    """Why the answer ended, as its model said, or as the items show. One that was interrupted and kept is not
    whole: of the words that clients know, `length` says that."""
    told = turn.details.get("finish_reason")
    if isinstance(told, str):
        return told
    if turn.kind is TurnKind.INTERRUPTED:
        return "length"
    return "tool_calls" if left_open(turn.output) else "stop"


class Chunks:
    """The chunks of one answer, made of its events. Role, ids and names are said once."""

    def __init__(self, turn: TurnId, model: str, *, include_usage: bool) -> None:
        created = int.from_bytes(turn.raw[:6]) // 1000  # an id begins with its time
        self._head = {"id": turn, "object": "chat.completion.chunk", "created": created, "model": model}
        self._include_usage = include_usage
        self._has_begun = False
        self._is_text_open = False

    def of_event(self, event: Event) -> Iterable[bytes]:
        """What an event adds to the answer. The end is told by `last`, when the turn is there to tell it."""
        if isinstance(event, TextDelta):
            self._is_text_open = True
            yield self._chunk({"content": event.text})
        elif isinstance(event, ItemDone):
            yield from self._of_item(Item(event.item))

    def _of_item(self, item: Item) -> Iterable[bytes]:
        if item.role != "assistant":
            return
        if self._is_text_open:  # it was told piece by piece
            self._is_text_open = False
            return
        message = messages_of((item,))[0]
        told = {name: message[name] for name in ("content", "refusal") if message.get(name)}
        if told:
            yield self._chunk(told)

    def last(self, turn: Turn) -> Iterable[bytes]:
        """The end of the answer, as it was committed: the calls that are left to the client, too, since only
        then it is known which those are."""
        details = turn.details
        calls = messages_of(left_open(turn.output))
        for index, call in enumerate(call for each in calls for call in each["tool_calls"]):
            yield self._chunk({"tool_calls": [{"index": index, **call}]})
        yield self._chunk({}, finish_reason(turn))
        if self._include_usage and details.get("usage") is not None:
            yield encode({**self._head, "choices": [], "usage": details["usage"]})

    def whole(self, turn: Turn) -> Iterable[bytes]:
        """A committed answer from its beginning."""
        answer = message_of(turn.output)
        told = {name: answer[name] for name in ("content", "refusal") if answer.get(name)}
        if told:
            yield self._chunk(told)
        yield from self.last(turn)

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            delta = {"role": "assistant", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        usage = {"usage": None} if self._include_usage else {}
        return encode({**self._head, "choices": [choice], **usage})
