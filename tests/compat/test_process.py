"""`turnledger serve` as a process of its own, with the official client."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from openai import OpenAI

from tests.compat.conftest import Serve
from tests.compat.served import PATIENCE
from tests.compat.talking import CONTINUED, CREATED, assistant, streamed, user, whole

COMMAND = [sys.executable, "-m", "turnledger", "serve", "--port", "0"]


@contextmanager
def process(folder: Path, *flags: str) -> Iterator[OpenAI]:
    """Start the server with its folders in this one; end it as an operator does."""
    folders = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    running = Popen([*COMMAND, *flags], env={**os.environ, **folders}, stdout=PIPE, stderr=PIPE, text=True)
    try:
        assert running.stdout is not None
        url = next(word for word in running.stdout.readline().split() if word.startswith("http://"))
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


@pytest.mark.skipif(os.name != "posix", reason="it is told to end by a signal")
def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        first = streamed(client, "Hello", model="demo")
        assert [model.id for model in client.models.list()] == ["demo"]
    with process(tmp_path) as client:
        second = whole(client, "And now?", model="demo")
    assert (first.state, second.state) == (CREATED, CONTINUED)
    assert second.conversation == first.conversation
    assert 'the last one "Hello"' in second.text


@pytest.mark.skipif(os.name != "posix", reason="it is told to end by a signal")
def test_an_upstream_is_asked_for_every_model(tmp_path: Path, serve: Serve) -> None:
    upstream = serve(["One."], ["Two."]).upstream
    with process(tmp_path, "--upstream", upstream.url, "--store", "memory:") as client:
        assert streamed(client, "first").text == "One."
        assert whole(client, "second").text == "Two."
    asked = upstream.received[-1].body
    assert asked["messages"] == [user("first"), assistant("One."), user("second")]
    assert asked["model"] == "scripted"
