"""A LangGraph graph with a checkpointer of its own, which keeps the question of a run that failed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from dialogue import BASE_URL, CONVERSATION, MODEL, run
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

model = ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key="none", default_headers=CONVERSATION)


async def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile(InMemorySaver())
thread: Any = {"configurable": {"thread_id": "a"}}


def asked(question: str) -> Any:
    return {"messages": [("user", question)]}


async def ask(question: str) -> str:
    return str((await graph.ainvoke(asked(question), thread))["messages"][-1].content)


async def stream(question: str) -> AsyncGenerator[str]:
    async with aclosing(graph.astream(asked(question), thread, stream_mode="messages")) as chunks:
        async for chunk, _ in chunks:
            yield str(chunk.content)


run(ask, stream)
