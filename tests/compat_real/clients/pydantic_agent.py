"""An agent of pydantic-ai, which is passed the messages of its last run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from dialogue import BASE_URL, CONVERSATION, MODEL, run
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key="none"))
agent = Agent(model, instructions="Be brief.", model_settings={"extra_headers": CONVERSATION})
history: list[Any] = []


async def ask(question: str) -> str:
    result = await agent.run(question, message_history=history)
    history[:] = result.all_messages()
    return result.output


async def stream(question: str) -> AsyncGenerator[str]:
    async with agent.run_stream(question, message_history=history) as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            yield piece
    history[:] = result.all_messages()


run(ask, stream)
