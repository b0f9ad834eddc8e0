"""The page of local models: its settings work, and every row of its table is what a server with that habit
meets. The servers are scripted."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import APIError

from tests.compat.served import MODEL, Served, serving
from tests.compat.talking import user, whole
from tests.docs.recipe import FOLDER, Recipe
from tests.unit.server.processes import started
from turnledger.testing.upstream import CUT, Data, End, ScriptedUpstream, Status, Step

PAGE = (FOLDER / "local-models.md").read_text()
ROW = re.compile(r"^\| (Ollama|vLLM|llama\.cpp|all) \| (.+) \| (.+) \|$", re.MULTILINE)
PORTS = {"ollama": 11434, "vllm": 8000, "llama-cpp": 8080}
ARGUMENTS = '{"city":"Rome"}'
MARK_ONLY = End(None)
NO_MARK = End(None, done=False)


def chunk(delta: dict[str, Any] | None, finish_reason: str | None = None, **fields: Any) -> Data:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    whole = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "qwen3"}
    return Data(json.dumps({**whole, "choices": choices, **fields}).encode())


def call(index: int, name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": ARGUMENTS}
    return {"id": f"call_{name}", "index": index, "type": "function", "function": function}


def refusal(status: int, message: str, **fields: Any) -> list[Step]:
    return [Status(status, json.dumps({"error": {"message": message, **fields}}).encode())]


ASSISTANT = {"role": "assistant"}
TOO_LONG = {"type": "exceed_context_size_error", "n_prompt_tokens": 40000, "n_ctx": 32768}
HABITS: dict[tuple[str, str], Sequence[Step]] = {
    (
        "Ollama",
        "streams its thoughts as `reasoning`, and in older versions says `assistant` in every chunk",
    ): [
        chunk({**ASSISTANT, "content": "", "reasoning": "Hm."}, system_fingerprint="fp_ollama"),
        chunk({**ASSISTANT, "content": "Hel"}),
        chunk({**ASSISTANT, "content": "lo."}),
        chunk({**ASSISTANT, "content": ""}, "stop"),
        MARK_ONLY,
    ],
    ("Ollama", "sends a call whole, in one chunk, and ends with `stop`"): [
        chunk({**ASSISTANT, "content": "", "tool_calls": [call(0, "weather")]}),
        chunk({**ASSISTANT, "content": ""}, "stop"),
        MARK_ONLY,
    ],
    ("Ollama", "gives two calls at once the same index, in older versions"): [
        chunk({**ASSISTANT, "content": "", "tool_calls": [call(0, "weather"), call(0, "time")]}),
        chunk({**ASSISTANT, "content": ""}, "tool_calls"),
        MARK_ONLY,
    ],
    ("Ollama", "fails in the middle: an empty chunk, and the stream ends without an end"): [
        chunk({**ASSISTANT, "content": "Hel"}),
        chunk({"content": ""}),
        NO_MARK,
    ],
    ("Ollama", "has not pulled the model: 404"): refusal(
        404, "model 'qwen3' not found", type="not_found_error", param=None, code=None
    ),
    ("Ollama", "has too many waiting: 503"): refusal(
        503, "server busy, please try again.  maximum pending requests exceeded", type="api_error"
    ),
    ("vLLM", "streams its thoughts as `reasoning`, and has text in the chunk that ends"): [
        chunk({**ASSISTANT, "content": ""}),
        chunk({"reasoning": "Hm."}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo."}, "stop", stop_reason=None),
        chunk(None, usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
        MARK_ONLY,
    ],
    ("vLLM", "fails in the middle: an `error` object, then `[DONE]`"): [
        chunk({**ASSISTANT, "content": "Hel"}),
        Data(b'{"error": {"message": "Engine died", "type": "InternalServerError", "code": 500}}'),
        MARK_ONLY,
    ],
    ("vLLM", "is told to choose tools without `--enable-auto-tool-choice`: 400"): refusal(
        400,
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        type="BadRequestError",
        param=None,
        code=400,
    ),
    ("vLLM", "is shown more than `--max-model-len`: 400"): refusal(
        400, "This model's maximum context length is 32768 tokens.", type="BadRequestError", code=400
    ),
    ("llama.cpp", "begins with `null` for a text, streams `reasoning_content`, adds `timings`"): [
        chunk({**ASSISTANT, "content": None}),
        chunk({"reasoning_content": "Hm."}, timings={"predicted_n": 1}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo."}),
        chunk({}, "stop", usage={"total_tokens": 3}, timings={"cache_n": 0, "predicted_n": 3}),
        MARK_ONLY,
    ],
    ("llama.cpp", "still loads the model: 503"): refusal(
        503, "Loading model", type="unavailable_error", code=503
    ),
    ("llama.cpp", "is shown more than `--ctx-size`: 400"): refusal(
        400, "the request exceeds the available context size", code=400, **TOO_LONG
    ),
    ("all", "think until the tokens are used up, and say nothing"): [
        chunk({**ASSISTANT, "content": "", "reasoning": "Hm, hm, hm."}),
        chunk({"content": ""}, "length"),
        MARK_ONLY,
    ],
    ("all", "lose the connection in the middle"): [chunk({**ASSISTANT, "content": "Hel"}), CUT],
}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


def rows() -> dict[tuple[str, str], str]:
    return {(server, habit): fate for server, habit, fate in ROW.findall(PAGE)}


def test_every_row_is_tried() -> None:
    assert set(rows()) == set(HABITS)


def trials(*, are_kept: bool) -> list[object]:
    return [
        pytest.param(habit, script, id=" ".join(habit))
        for habit, script in HABITS.items()
        if rows()[habit].startswith("kept") is are_kept
    ]


def ask(served: Served, habit: tuple[str, str], script: Sequence[Step]) -> str:
    """Have one good turn, then one with the habit; what the helper of the official client made of that."""
    served.upstream.scripts.extend([["Good morning."], script])
    client = served.client(" ".join(habit))
    whole(client, "Hi")
    with client.chat.completions.stream(model=MODEL, messages=[user("Hello?")]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.role == "assistant"
    return message.content or ""


@pytest.mark.parametrize(("habit", "script"), trials(are_kept=True))
def test_what_is_kept_has_its_thoughts_in_an_item_of_their_own(
    served: Served, habit: tuple[str, str], script: Sequence[Step]
) -> None:
    heard = ask(served, habit, script)
    *thoughts, last = served.shown(" ".join(habit))["turns"][-1]["output"]
    thought = [item["content"][0]["text"] for item in thoughts]
    assert thought == (["Hm."] if "thoughts" in rows()[habit] else [])
    if heard:
        assert (heard, last["content"][0]["text"]) == ("Hello.", "Hello.")
    else:
        assert (last["name"], last["arguments"]) == ("weather", ARGUMENTS)


@pytest.mark.parametrize(("habit", "script"), trials(are_kept=False))
def test_what_fails_is_told_and_leaves_nothing(
    served: Served, habit: tuple[str, str], script: Sequence[Step]
) -> None:
    fate = rows()[habit]
    told = re.search(r"(\d+) `(\w+)`", fate)
    assert told is not None
    with pytest.raises(APIError) as failed:
        ask(served, habit, script)
    assert failed.value.code == told[2]
    # What fails in the middle of a stream is told in it: the status has been sent.
    assert getattr(failed.value, "status_code", 200) in (200, int(told[1]))
    assert served.history(" ".join(habit)) == [("user", "Hi"), ("assistant", "Good morning.")]
    if "its message" in fate:
        [status] = script
        assert isinstance(status, Status)
        assert json.loads(status.body)["error"]["message"] in failed.value.message


@contextmanager
def upstreams() -> Iterator[dict[str, ScriptedUpstream]]:
    """A scripted server for each of the three, in a loop of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    scripted = {
        name: ScriptedUpstream(otherwise=[f"I am {name}, and was shown ", shown, "."])
        for name, shown in zip(PORTS, ("1 message", "3 messages", "5 messages"), strict=True)
    }
    stack = AsyncExitStack()

    async def enter() -> None:
        for each in scripted.values():
            await stack.enter_async_context(each)

    try:
        asyncio.run_coroutine_threadsafe(enter(), loop).result(20)
        yield scripted
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def test_the_settings_lead_to_all_three(tmp_path: Path) -> None:
    with ExitStack() as running:
        scripted = running.enter_context(upstreams())
        moved = {f"http://127.0.0.1:{PORTS[name]}/v1": each.url for name, each in scripted.items()}
        config = tmp_path / "turnledger.toml"
        config.write_text(Recipe("local-models", tmp_path, moved).settings)
        command = ["serve", "--config", str(config), "--port", "0", "--store", "memory:"]
        server = running.enter_context(started("turnledger", *command, VLLM_API_KEY="secret"))
        moved["http://127.0.0.1:8383"] = server.url
        assert Recipe("local-models", tmp_path, moved).check() == 1
    received = {name: each.received[0] for name, each in scripted.items()}
    assert {name: len(each.body["messages"]) for name, each in received.items()} == {
        "ollama": 1,
        "vllm": 3,
        "llama-cpp": 5,
    }
    names = {name: each.body["model"] for name, each in received.items()}
    assert names == {"ollama": "qwen3:latest", "vllm": "qwen3", "llama-cpp": "qwen3"}
    keys = {name: each.headers.get("authorization") for name, each in received.items()}
    assert keys == {"ollama": None, "vllm": "Bearer secret", "llama-cpp": None}
