"""One story for every client: four answers, two failures and a stop, then a look at the stored history."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import httpx2

from tests.unit.server.processes import started

PATIENCE = 120.0
"""Seconds for one answer, retries included."""
EXERCISED = "4 answers (2 streamed), 1 failure in a stream, 1 before an answer, 1 stop"
SERVE = ("turnledger", "serve", "--port", "0", "--store", "memory:")

Way = Literal["ask", "stream", "stop", "review"]


@dataclass(frozen=True)
class Reply:
    text: str
    error: str | None


class Dialogue:
    """An adapter in a process of its own, with the packages of its client."""

    def __init__(self, command: Sequence[str | Path], url: str) -> None:
        told = {"COMPAT_URL": url, "COMPAT_CONVERSATION": "story", "COMPAT_MODEL": "demo"}
        environment = {**os.environ, **told, "NO_PROXY": "127.0.0.1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> Dialogue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def have(self, way: Way, text: str) -> Reply:
        """Send a message in one of the ways, and return what the client made of the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"way": way, "text": text}) + "\n")
        self._process.stdin.flush()
        guard = threading.Timer(PATIENCE, self._process.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        assert line, f"the client did not answer {text!r} within {PATIENCE:.0f} s, or ended"
        return Reply(**json.loads(line))


def tell(command: Sequence[str | Path]) -> str:
    """Run the story with an adapter; return the result for the page. Raises AssertionError."""
    with started(*SERVE) as server, Dialogue(command, server.url) as client:
        answers = {}
        for way, text in (("ask", "Hello"), ("stream", "My coat is red.")):
            answers[text] = answered(client.have(way, text))
        assert 'the last one "Hello' in answers["My coat is red."], answers
        for way, text in (("stream", "/fail after 3"), ("ask", "/fail")):
            reply = client.have(way, text)
            assert reply.error is not None, f"{text} was taken for an answer: {reply.text!r}"
        begun = answered(client.have("stop", "/count 3000"))
        for way, text in (("ask", "And now?"), ("stream", "Goodbye")):
            answers[text] = answered(client.have(way, text))
        assert 'the last one "And now?' in answers["Goodbye"], answers
        return check_history(server.url, answers, begun)


def answered(reply: Reply) -> str:
    assert reply.error is None, reply.error
    assert reply.text, "the answer is empty"
    return reply.text


def check_history(url: str, answers: dict[str, str], begun: str) -> str:
    """Every answer is stored once, in order, under its question; no failed one is; the stopped one is cut."""
    turns = shown_turns(url)
    outputs = [text_of(turn["output"]) for turn in turns if turn["kind"] == "completed"]
    assert outputs == list(answers.values()), (outputs, answers)
    inputs = [texts_of(turn["input"])[-1] for turn in turns if turn["kind"] == "completed"]
    # Clients may add to a question, as aider does.
    assert all(text.startswith(asked) for text, asked in zip(inputs, answers, strict=True)), inputs
    [stopped] = [turn for turn in turns if turn["kind"] != "completed"]
    assert stopped["kind"] == "interrupted"
    assert text_of(stopped["output"]).startswith(begun)
    return result_of(turns)


def result_of(turns: list[dict[str, Any]]) -> str:
    """Return the result for the page, with the failed questions that the client keeps in its history."""
    resent = [text for turn in turns for text in texts_of(turn["input"])[:-1] if text.startswith("/fail")]
    plural = "s" if len(resent) > 1 else ""
    return f"passes; the client sends {len(resent)} failed question{plural} again" if resent else "passes"


def shown_turns(url: str) -> list[dict[str, Any]]:
    """Return the turns of the only conversation."""
    with httpx2.Client(base_url=url, trust_env=False) as http:
        [chat] = http.get("/api/chats").json()["data"]
        turns: list[dict[str, Any]] = http.get(f"/api/chats/{chat['id']}").json()["turns"]
    return turns


def texts_of(items: list[dict[str, Any]]) -> list[str]:
    messages = [item for item in items if item["type"] == "message"]
    return ["".join(part.get("text", "") for part in message["content"]) for message in messages]


def text_of(items: list[dict[str, Any]]) -> str:
    return "".join(texts_of(items))
