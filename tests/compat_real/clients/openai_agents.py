"""An agent of openai-agents with a session of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    SQLiteSession,
    set_tracing_disabled,
)
from dialogue import BASE_URL, CONVERSATION, MODEL, run
from openai import AsyncOpenAI

set_tracing_disabled(True)
model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=BASE_URL, api_key="none"))
settings = ModelSettings(extra_headers=CONVERSATION)
agent = Agent(name="Ada", instructions="Be brief.", model=model, model_settings=settings)
session = SQLiteSession("a")


async def ask(question: str) -> str:
    return str((await Runner.run(agent, question, session=session)).final_output)


async def stream(question: str) -> AsyncGenerator[str]:
    result = Runner.run_streamed(agent, question, session=session)
    try:
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta
    except GeneratorExit:
        result.cancel()
        raise


run(ask, stream)
