"""The official client. The program keeps the history, with the part that arrived of a stopped answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from dialogue import BASE_URL, CONVERSATION, MODEL, run
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=BASE_URL, api_key="none", default_headers=CONVERSATION)
history: list[Any] = []


def remember(question: str, answer: str) -> None:
    history.extend(({"role": "user", "content": question}, {"role": "assistant", "content": answer}))


async def ask(question: str) -> str:
    messages = [*history, {"role": "user", "content": question}]
    answer = await client.chat.completions.create(model=MODEL, messages=messages)
    text = answer.choices[0].message.content or ""
    remember(question, text)
    return text


async def stream(question: str) -> AsyncGenerator[str]:
    messages = [*history, {"role": "user", "content": question}]
    text = ""
    async with await client.chat.completions.create(model=MODEL, messages=messages, stream=True) as chunks:
        try:
            async for chunk in chunks:
                piece = chunk.choices[0].delta.content or "" if chunk.choices else ""
                text += piece
                yield piece
        except GeneratorExit:
            remember(question, text)
            raise
    remember(question, text)


run(ask, stream)
