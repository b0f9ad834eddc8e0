"""Responses through the official client, each object and event checked against the client's own types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from openai import OpenAI, omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.conversations import ConversationItem
from openai.types.responses import Response, ResponseItem, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.compat.live_server import MODEL, LiveServer
from turnledger.model.event import Event
from turnledger.model.turn import Turn
from turnledger.server.responses.response import ResponseFields
from turnledger.server.responses.stream import ResponseStream

_events: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_items: TypeAdapter[Any] = TypeAdapter(ResponseItem)
_conversation_items: TypeAdapter[Any] = TypeAdapter(ConversationItem)


def create(client: OpenAI, input: Any, **fields: Any) -> Response:
    """Create a response, and check its shape."""
    made = client.responses.create(model=MODEL, input=input, **fields)
    return checked(made)


def checked(response: Response) -> Response:
    """Raise ValidationError unless the response is one: the client itself accepts anything."""
    Response.model_validate(response.to_dict())
    return response


def stream(client: OpenAI, input: Any, **fields: Any) -> list[Any]:
    """Stream a response; return its checked events."""
    return checked_events(client.responses.create(model=MODEL, input=input, stream=True, **fields))


def checked_events(events: Iterable[BaseModel]) -> list[Any]:
    """Check the shape of the events, and that their numbers rise by one."""
    received = list(events)
    for event in received:
        _events.validate_python(event.model_dump(mode="json", exclude_unset=True))
    numbers = [event.sequence_number for event in received]  # type: ignore[attr-defined]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    return received


def checked_item(item: Any) -> Any:
    _items.validate_python(item.model_dump(mode="json", exclude_unset=True))
    return item


def checked_conversation_item(item: Any) -> Any:
    _conversation_items.validate_python(item.model_dump(mode="json", exclude_unset=True))
    return item


def raw_events(served: LiveServer, response: str, after: int | None = None) -> list[bytes]:
    """Return the stored events of a response, byte for byte."""
    query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
    answer = served.http.get(f"/v1/responses/{response}", params=query)
    assert answer.status_code == 200, answer.text
    return _split(answer.content)


def raw_stream(served: LiveServer, **fields: Any) -> list[bytes]:
    """Stream a response; return its events byte for byte."""
    body = {"model": MODEL, "stream": True, **fields}
    with served.http.stream("POST", "/v1/responses", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        return _split(answer.read())


def _split(body: bytes) -> list[bytes]:
    return [event for event in body.split(b"\n\n") if event and not event.startswith(b":")]


def types(events: Iterable[Any]) -> list[str]:
    return [event.type.removeprefix("response.") for event in events]


def conversation_of(response: Response) -> str:
    assert response.conversation is not None
    return response.conversation.id


def follow_officially(turn: Turn, events: Iterable[Event]) -> None:
    """Pass the response events of a completed turn to the official stream helper, which raises RuntimeError
    if items change their identity or are left open."""
    fields = ResponseFields(turn.id, None, turn.details)
    made = ResponseStream(fields)
    sent = b"".join(made.from_event(event) for event in events) + made.last(fields.show_turn(turn, None))
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    done = {}
    for raw in _split(sent):
        event = construct_type(
            type_=ResponseStreamEvent, value=msgspec.json.decode(raw.partition(b"data: ")[2])
        )
        state.handle_event(event)  # type: ignore[arg-type]
        if event.type == "response.output_item.done":  # type: ignore[attr-defined]
            done[event.item.id] = event.item.to_dict()  # type: ignore[attr-defined]
    final = fields.show_turn(turn, None)["output"]
    assert [done[item["id"]] for item in final] == final
