"""LangChain's ChatOpenAI, which sends only new messages: the server keeps the history."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dialogue import BASE_URL, CONVERSATION, MODEL, run
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key="none", default_headers=CONVERSATION)


async def ask(question: str) -> str:
    return str((await model.ainvoke([("user", question)])).content)


async def stream(question: str) -> AsyncGenerator[str]:
    async for chunk in model.astream([("user", question)]):
        yield str(chunk.content)


run(ask, stream)
