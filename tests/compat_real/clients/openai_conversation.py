"""The official client, synchronous, in a conversation that the server keeps."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from dialogue import BASE_URL, MODEL, run
from openai import APIStatusError, OpenAI
from weather import TOOL, outputs_of

client = OpenAI(base_url=BASE_URL, api_key="none")
conversation = client.conversations.create(metadata={"topic": "weather"}).id
options: dict[str, Any] = {"model": MODEL, "tools": [TOOL], "conversation": conversation}


async def ask(question: str) -> str:
    response = client.responses.parse(input=question, **options)
    while given := outputs_of(response):
        response = client.responses.parse(input=given, **options)
    return response.output_text


async def stream(question: str) -> AsyncGenerator[str]:
    given: Any = question
    while given:
        with client.responses.stream(input=given, **options) as events:
            for event in events:
                if event.type == "response.output_text.delta":
                    yield event.delta
            given = outputs_of(events.get_final_response())


async def review() -> str:
    found = client.conversations.update(conversation, metadata={"topic": "rain"})
    assert client.conversations.retrieve(conversation) == found
    items = list(client.conversations.items.list(conversation, limit=3, order="desc"))
    ascending = list(client.conversations.items.list(conversation, limit=4, order="asc"))
    assert items == ascending[::-1]
    assert client.conversations.items.retrieve(items[0].id, conversation_id=conversation) == items[0]
    added = client.conversations.items.create(
        conversation, items=[{"type": "message", "role": "user", "content": "A note."}]
    )
    client.conversations.items.delete(added.data[0].id, conversation_id=conversation)
    other = client.conversations.create(items=[{"type": "message", "role": "user", "content": "Hello"}]).id
    assert client.conversations.delete(other).deleted
    assert is_gone(other)
    return conversation


def is_gone(id: str) -> bool:
    try:
        client.conversations.retrieve(id)
    except APIStatusError as error:
        return error.status_code == 410  # not 404: it can be restored
    return False


run(ask, stream, review)
