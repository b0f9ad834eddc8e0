"""One story for clients of the Responses API: answers, tool calls, failures and a stop, then the history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2

from tests.compat_real.story import SERVE, Dialogue, answered
from tests.unit.server.processes import started

EXERCISED = (
    "6 answers (3 streamed), 2 of them with a tool call, 1 failure in a stream, 1 before an answer, 1 stop"
)
STOPPED = "/count 3000"

Entry = tuple[str, str]
"""An item in short: the role or the type, and the text."""


def tell(command: Sequence[str | Path]) -> str:
    """Run the story with an adapter; return the result for the page. Raises AssertionError."""
    with started(*SERVE) as server, Dialogue(command, server.url) as client:
        expected: list[Entry] = []

        def have(way: Any, text: str, *calls: Entry) -> str:
            answer = answered(client.have(way, text))
            expected.extend([("user", text), *calls, ("assistant", answer)])
            return answer

        have("ask", "Hello")
        assert 'the last one "Hello' in have("stream", "My coat is red.")
        for way, city in (("ask", "Rome"), ("stream", "Oslo")):
            arguments = f'{{"city": "{city}"}}'
            calls = ("function_call", f"weather {arguments}"), ("function_call_output", f"Rain in {city}.")
            answer = have(way, f"/call weather {arguments}", *calls)
            assert f'The tool returned "Rain in {city}."' in answer, answer
        for way, text in (("stream", "/fail after 3"), ("ask", "/fail")):
            reply = client.have(way, text)
            assert reply.error is not None, f"{text} was taken for an answer: {reply.text!r}"
        begun = answered(client.have("stop", STOPPED))
        have("ask", "And now?")
        assert 'the last one "And now?' in have("stream", "Goodbye")
        place = answered(client.have("review", ""))
        with httpx2.Client(base_url=server.url, trust_env=False) as http:
            check_no_failure(http)
            return check_history(list(history(http, place)), expected, begun)


def check_history(stored: list[Entry], expected: list[Entry], begun: str) -> str:
    """Every question, call, result and answer is stored once, in order; of the stopped answer at most the
    beginning, and no failed one."""
    resent = [text for role, text in stored if role == "user" and text.startswith("/fail")]
    kept = [entry for entry in stored if entry[1] not in resent]
    if ("user", STOPPED) in kept:
        place = kept.index(("user", STOPPED))
        role, text = kept[place + 1]
        if role == "assistant":
            assert text.startswith(begun), (text, begun)
            assert not text.endswith(" 3000"), "the stopped answer is whole"
            del kept[place + 1]
        del kept[place]
    assert kept == expected, (kept, expected)
    plural = "s" if len(resent) > 1 else ""
    return f"passes; the client sends {len(resent)} failed question{plural} again" if resent else "passes"


def check_no_failure(http: httpx2.Client) -> None:
    """No turn of any conversation answers a question that failed."""
    for chat in http.get("/api/chats", params={"limit": 100}).json()["data"]:
        for turn in http.get(f"/api/chats/{chat['id']}").json()["turns"]:
            asked = [item for item in turn["input"] if item["type"] == "message"][-1:]
            is_failed = any(_text(item).startswith("/fail") for item in asked)
            assert not (is_failed and turn["output"]), turn


def history(http: httpx2.Client, place: str) -> Iterator[Entry]:
    """Yield the items of a conversation, or of a response and all before it."""
    if place.startswith("conv_"):
        yield from map(_entry, _listed(http, f"/v1/conversations/{place}/items"))
        return
    response = http.get(f"/v1/responses/{place}").raise_for_status().json()
    if previous := response["previous_response_id"]:
        yield from history(http, previous)
    yield from map(_entry, _listed(http, f"/v1/responses/{place}/input_items"))
    yield from map(_entry, response["output"])


def _listed(http: httpx2.Client, path: str) -> Iterator[dict[str, Any]]:
    paging = {"order": "asc", "limit": "100"}
    while True:
        page = http.get(path, params=paging).raise_for_status().json()
        yield from page["data"]
        if not page["has_more"]:
            return
        paging["after"] = page["last_id"]


def _entry(item: dict[str, Any]) -> Entry:
    if item["type"] == "message":
        return item["role"], _text(item)
    if item["type"] == "function_call":
        # Some clients send a call again with spaces of their own.
        return item["type"], f"{item['name']} {json.dumps(json.loads(item['arguments']))}"
    output = item["output"]
    return item["type"], output if isinstance(output, str) else "".join(part["text"] for part in output)


def _text(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
