"""LiteLLM's SDK, with the history of the program."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import waits for a list from the network

import litellm
from dialogue import BASE_URL, CONVERSATION, MODEL, run

options: dict[str, Any] = {
    "model": f"openai/{MODEL}",
    "api_base": BASE_URL,
    "api_key": "none",
    "extra_headers": CONVERSATION,
}
history: list[Any] = []


def remember(question: str, answer: str) -> None:
    history.extend(({"role": "user", "content": question}, {"role": "assistant", "content": answer}))


async def ask(question: str) -> str:
    messages = [*history, {"role": "user", "content": question}]
    answer = await litellm.acompletion(messages=messages, **options)
    text = answer.choices[0].message.content or ""
    remember(question, text)
    return text


async def stream(question: str) -> AsyncGenerator[str]:
    messages = [*history, {"role": "user", "content": question}]
    text = ""
    chunks = await litellm.acompletion(messages=messages, stream=True, **options)
    try:
        async for chunk in chunks:
            piece = chunk.choices[0].delta.content or ""
            text += piece
            yield piece
    except GeneratorExit:
        remember(question, text)
        await chunks.aclose()
        raise
    remember(question, text)


run(ask, stream)
