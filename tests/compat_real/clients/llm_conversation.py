"""A conversation of `llm`, which keeps every response that was asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dialogue import BASE_URL, CONVERSATION, MODEL, run
from llm.default_plugins.openai_models import AsyncChat

model = AsyncChat(MODEL, model_name=MODEL, api_base=BASE_URL, headers=CONVERSATION)
model.needs_key = None
conversation = model.conversation()


async def ask(question: str) -> str:
    return await conversation.prompt(question, stream=False).text()


async def stream(question: str) -> AsyncGenerator[str]:
    response = conversation.prompt(question)
    async for piece in response:
        yield piece


run(ask, stream)
