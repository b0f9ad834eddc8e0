"""An agent of pydantic-ai over the Responses API. The argument is the setting that continues its history."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any

from dialogue import BASE_URL, MODEL, run
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key="none"))
settings: Any = {sys.argv[1]: "auto"}
agent = Agent(model, instructions="Be brief.", model_settings=settings)
history: list[Any] = []


@agent.tool_plain
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Rain in {city}."


async def ask(question: str) -> str:
    result = await agent.run(question, message_history=history)
    history[:] = result.all_messages()
    return result.output


async def stream(question: str) -> AsyncGenerator[str]:
    async with agent.run_stream(question, message_history=history) as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            yield piece
    history[:] = result.all_messages()


async def review() -> str:
    last = history[-1]
    is_conversation = sys.argv[1] == "openai_conversation_id"
    return str(last.provider_details["conversation_id"] if is_conversation else last.provider_response_id)


run(ask, stream, review)
