"""The official client, asynchronous, which continues the response before. It cancels a stopped one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from dialogue import BASE_URL, MODEL, run
from openai import AsyncOpenAI, omit
from pydantic import RootModel
from weather import TOOL, outputs_of

client = AsyncOpenAI(base_url=BASE_URL, api_key="none")
options: dict[str, Any] = {"model": MODEL, "tools": [TOOL]}
last: Any = omit


class Number(RootModel[int]): ...


async def ask(question: str) -> str:
    global last
    given: Any = question
    while True:
        response = await client.responses.parse(input=given, previous_response_id=last, **options)
        last = response.id
        given = outputs_of(response)
        if not given:
            return response.output_text


async def stream(question: str) -> AsyncGenerator[str]:
    global last
    given: Any = question
    while given:
        async with client.responses.stream(input=given, previous_response_id=last, **options) as events:
            try:
                async for event in events:
                    if event.type == "response.created":
                        begun = event.response.id
                    elif event.type == "response.output_text.delta":
                        yield event.delta
            except GeneratorExit:
                last = (await client.responses.cancel(begun)).id
                raise
            response = await events.get_final_response()
        last = response.id
        given = outputs_of(response)


async def review() -> str:
    sent = [event async for event in await client.responses.retrieve(last, stream=True)]
    assert [event.sequence_number for event in sent] == list(range(len(sent)))
    rest = [event async for event in await client.responses.retrieve(last, stream=True, starting_after=3)]
    assert rest == sent[4:]
    response = await client.responses.retrieve(last)
    assert sent[-1].type == "response.completed"
    assert sent[-1].response == response
    inputs = [item async for item in client.responses.input_items.list(last, limit=1)]
    assert len(inputs) == 1
    conversation = response.conversation.id
    items = [item.id async for item in client.conversations.items.list(conversation, limit=2, order="asc")]
    assert items[-1] == response.output[-1].id
    assert len(set(items)) == len(items) > 10
    parsed = await client.responses.parse(
        model=MODEL, input="/count 1", text_format=Number, store=False, previous_response_id=last
    )
    assert parsed.output_parsed == Number(1)
    return str(last)


run(ask, stream, review)
