"""LangChain's ChatOpenAI over the Responses API, which names the last response of the program's history."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from dialogue import BASE_URL, MODEL, run
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Rain in {city}."


model = ChatOpenAI(
    model=MODEL, base_url=BASE_URL, api_key="none", use_responses_api=True, use_previous_response_id=True
).bind_tools([weather])
history: list[Any] = []


async def results_of(answer: Any) -> list[Any]:
    return [await weather.ainvoke(call) for call in answer.tool_calls]


async def ask(question: str) -> str:
    messages = [*history, HumanMessage(question)]
    while True:
        answer = await model.ainvoke(messages)
        results = await results_of(answer)
        messages += [answer, *results]
        if not results:
            history[:] = messages
            return str(answer.text)


async def stream(question: str) -> AsyncGenerator[str]:
    messages = [*history, HumanMessage(question)]
    while True:
        answer: Any = None
        async for chunk in model.astream(messages):
            answer = chunk if answer is None else answer + chunk
            yield str(chunk.text)
        results = await results_of(answer)
        messages += [answer, *results]
        if not results:
            history[:] = messages
            return


async def review() -> str:
    return str(history[-1].response_metadata["id"])


run(ask, stream, review)
