"""The official client, synchronous and asynchronous, with its streaming helpers, against a server in its own
process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.compat.completions import CONTINUED, CREATED, assistant, result, send_streamed, send_whole, user
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, PATIENCE
from tests.compat.test_client_tools import TWO_CALLS, WEATHER
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT

REQUEST: Any = {"model": MODEL, "messages": [user("Hi")]}
CITIES = [("weather", '{"city": "Rome"}'), ("weather", '{"city": "Oslo"}')]


class TestSynchronous:
    def test_stream_helper_yields_deltas_and_the_final_completion(self, serve: Serve) -> None:
        served = serve(["Hel", "lo."])
        with served.client("k").chat.completions.stream(
            **REQUEST, stream_options={"include_usage": True}
        ) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            completion = stream.get_final_completion()
        assert deltas == ["Hel", "lo."]
        assert completion.choices[0].message.content == "Hello."
        assert completion.usage is not None
        [turn] = served.chat_json("k")["turns"]
        assert completion.id == turn["id"]

    def test_stream_helper_collects_tool_calls_and_its_message_can_be_resent(self, serve: Serve) -> None:
        served = serve(["Look.", *TWO_CALLS], ["Warm and cold."])
        client = served.client("k")
        with client.chat.completions.stream(**REQUEST, tools=[WEATHER]) as stream:
            done = [each for each in stream if each.type == "tool_calls.function.arguments.done"]
            message = stream.get_final_completion().choices[0].message
        assert [(each.name, each.arguments) for each in done] == CITIES
        results: Any = [result(call.id, "1") for call in message.tool_calls or ()]
        # The message goes back as the helper made it, with all its nulls and parsed arguments.
        messages = [user("Hi"), message, *results]
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])
        assert answer.choices[0].message.content == "Warm and cold."
        assert len(served.chat_json("k")["turns"]) == 2

    def test_stream_helper_raises_the_error_of_a_broken_stream(self, serve: Serve) -> None:
        served = serve(["Hel", CUT])
        with (
            pytest.raises(openai.APIError) as problem,
            served.client("k").chat.completions.stream(**REQUEST) as stream,
        ):
            stream.until_done()
        assert problem.value.code == "model_unavailable"
        assert served.turns("k") == b"[]"

    def test_stream_helper_reads_a_replayed_stream(self, serve: Serve) -> None:
        served = serve(["Look.", *TWO_CALLS])
        again: Any = {**REQUEST, "tools": [WEATHER], "extra_headers": {"Idempotency-Key": "i"}}
        finals = []
        for _ in range(2):
            with served.client("k").chat.completions.stream(**again) as stream:
                finals.append(stream.get_final_completion())
        first, replayed = [each.choices[0].message for each in finals]
        assert replayed.content == first.content == "Look."
        assert replayed.tool_calls == first.tool_calls
        assert finals[0].id == finals[1].id

    def test_finished_stream_leaves_its_connection_for_reuse(self, serve: Serve) -> None:
        served = serve(otherwise=["Hello."])
        client = served.client("k")
        for _ in range(3):
            list(client.chat.completions.create(**REQUEST, stream=True))
            client.chat.completions.create(**REQUEST)
        assert len(served.server.server_state.connections) == 1

    def test_client_message_objects_resent_as_history_continue(self, serve: Serve) -> None:
        served = serve(["One."], ["Two."], ["Three."])
        client, messages = served.client("k"), [user("first")]
        for text in ("second", "third"):
            answer = client.chat.completions.create(model=MODEL, messages=messages)
            messages += [answer.choices[0].message, user(text)]
        response = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages)
        assert response.headers["x-conversation-state"] == "continued"
        assert [turn["number"] for turn in served.chat_json("k")["turns"]] == [1, 2, 3]

    def test_messages_with_parts_images_and_names_continue(self, serve: Serve) -> None:
        served = serve(["A cat."], ["Black."])
        client = served.client("k")
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        parts = [{"type": "text", "text": "What is this?"}, image]
        messages: Any = [
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": parts, "name": "ann"},
        ]
        answer = client.chat.completions.create(model=MODEL, messages=messages)
        seen = served.upstream.received[-1].body["messages"]
        assert [part["type"] for part in seen[1]["content"]] == ["text", "image_url"]
        assert seen[1]["content"][1]["image_url"]["url"] == image["image_url"]["url"]
        messages += [{"role": "assistant", "content": answer.choices[0].message.content}, user("Its colour?")]
        response = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages)
        assert response.headers["x-conversation-state"] == "continued"
        seen = served.upstream.received[-1].body["messages"]
        assert [each["role"] for each in seen] == ["developer", "user", "assistant", "user"]

    def test_structured_answer_is_parsed(self, serve: Serve) -> None:
        class City(BaseModel):
            name: str

        served = serve(['{"name":', ' "Rome"}'])
        answer = served.client("k").chat.completions.parse(**REQUEST, response_format=City)
        assert answer.choices[0].message.parsed == City(name="Rome")
        wanted = served.upstream.received[-1].body["response_format"]
        assert wanted["json_schema"]["name"] == "City"

    def test_raw_streaming_response_ends_with_done(self, serve: Serve) -> None:
        served = serve(["Hello."])
        completions = served.client("k").chat.completions.with_streaming_response
        with completions.create(**REQUEST, stream=True) as response:
            assert response.headers["x-conversation-state"] == "created"
            lines = [line for line in response.iter_lines() if line]
        assert lines[-1] == "data: [DONE]"


class TestAsynchronous:
    async def test_async_client_reads_whole_and_streamed_answers(self, serve: Serve, store_url: str) -> None:
        served = serve(["One."], ["Two."], store=store_url)
        async with served.async_client("k", X_Conversation_Messages="new") as client:
            answer = await client.chat.completions.create(**REQUEST)
            assert answer.choices[0].message.content == "One."
            chunks = await client.chat.completions.create(**REQUEST, stream=True)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in chunks]
        assert "".join(pieces) == "Two."
        assert len(served.chat_json("k")["turns"]) == 2

    async def test_async_concurrent_conversations_stay_separate(self, serve: Serve, store_url: str) -> None:
        served = serve(store=store_url)
        async with served.async_client() as client:

            async def talk(name: str) -> None:
                own: Any = {"model": "demo", "extra_headers": {"X-Conversation-Id": name}}
                for number in range(3):
                    history: Any = [user(f"{name} {number}")]
                    await client.chat.completions.create(messages=history, **own)

            await asyncio.gather(*(talk(f"chat-{number}") for number in range(10)))
        for number in range(10):
            questions = [text for role, text in served.messages(f"chat-{number}") if role == "user"]
            assert questions == [f"chat-{number} {each}" for each in range(3)]

    async def test_async_stream_closed_early_counts_as_a_disconnect(self, serve: Serve) -> None:
        gate = Gate()
        served = serve(["Hel", gate])
        async with served.async_client("k", X_Turn_On_Disconnect="discard") as client:
            chunks = await client.chat.completions.create(**REQUEST, stream=True)
            turn = (await anext(chunks)).id
            await chunks.close()
        ended = served.do(served.chat("k").outcome(turn))
        assert ended.turn is None
        assert served.turns("k") == b"[]"


COMMAND = [sys.executable, "-m", "turnledger", "serve", "--port", "0"]


@contextmanager
def process(folder: Path, *flags: str) -> Iterator[OpenAI]:
    """Start the server with its folders in this one; end it as an operator does."""
    folders = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    running = Popen([*COMMAND, *flags], env={**os.environ, **folders}, stdout=PIPE, stderr=PIPE, text=True)
    try:
        assert running.stdout is not None
        words = (word for line in running.stdout for word in line.split())
        url = next(word for word in words if word.startswith("http://")).rstrip(".")
        key = {"X-Conversation-Id": "k"}
        with OpenAI(
            base_url=f"{url}/v1", api_key="-", max_retries=0, timeout=PATIENCE, default_headers=key
        ) as client:
            yield client
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, errors
        assert "Traceback" not in errors
    finally:
        running.kill()
        running.communicate()


@pytest.mark.skipif(os.name != "posix", reason="it is ended by a signal")
def test_conversation_continues_after_a_server_restart(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        first = send_streamed(client, "Hello", model="demo")
        assert [model.id for model in client.models.list()] == ["demo"]
    with process(tmp_path) as client:
        second = send_whole(client, "And now?", model="demo")
    assert (first.state, second.state) == (CREATED, CONTINUED)
    assert second.conversation == first.conversation
    assert 'the last one "Hello"' in second.text


@pytest.mark.skipif(os.name != "posix", reason="it is ended by a signal")
def test_upstream_flag_serves_every_model_name(tmp_path: Path, serve: Serve) -> None:
    upstream = serve(["One."], ["Two."]).upstream
    with process(tmp_path, "--upstream", upstream.url, "--store", "memory:") as client:
        assert send_streamed(client, "first").text == "One."
        assert send_whole(client, "second").text == "Two."
    body = upstream.received[-1].body
    assert body["messages"] == [user("first"), assistant("One."), user("second")]
    assert body["model"] == "scripted"
