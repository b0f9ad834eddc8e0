"""An agent of openai-agents with its default model. The argument says what keeps its history: `session`, for
its OpenAIConversationsSession, `conversation` or `previous`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any

from agents import (
    Agent,
    OpenAIConversationsSession,
    Runner,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from dialogue import BASE_URL, MODEL, run
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=BASE_URL, api_key="none")
set_default_openai_client(client, use_for_tracing=False)


@function_tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Rain in {city}."


agent = Agent(name="Ada", instructions="Be brief.", model=MODEL, tools=[weather])
way = sys.argv[1]
session = OpenAIConversationsSession() if way == "session" else None
place: str | None = None


async def where() -> Any:
    """Return the arguments of a run that continue the history."""
    global place
    if way == "session":
        return {"session": session}
    if way == "conversation":
        if place is None:
            place = (await client.conversations.create()).id
        return {"conversation_id": place}
    return {"previous_response_id": place, "auto_previous_response_id": True}


def remember(result: Any) -> None:
    global place
    if way == "previous":
        place = result.last_response_id


async def ask(question: str) -> str:
    result = await Runner.run(agent, question, **await where())
    remember(result)
    return str(result.final_output)


async def stream(question: str) -> AsyncGenerator[str]:
    result = Runner.run_streamed(agent, question, **await where())
    try:
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta
    except GeneratorExit:
        result.cancel()
        raise
    remember(result)


async def review() -> str:
    return session.session_id if session is not None else str(place)


run(ask, stream, review)
