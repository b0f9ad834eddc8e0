"""One story for every model server: answers, and outages in the middle of a stream."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx2
from openai import APIError, DefaultHttpxClient, OpenAI, omit

from tests.compat_real.story import shown_turns, text_of, texts_of
from tests.free_port import free_port
from tests.unit.server.processes import started

START_SECONDS = 120.0
CONFIG = """
[server]
store = "memory:"
port = 0
upstream = "{upstream}"
proxy = false
api_key_env = "COMPAT_API_KEY"
timeouts = {{ connect = 2, first_byte = 30, between_chunks = 2 }}
"""
MODEL = "tiny"
API_KEY = f"sk-{secrets.token_hex(32)}"
"""Of model servers that insist on one; it is new in each run."""
SERVER_ENVIRONMENT = {
    **os.environ,
    "LITELLM_MASTER_KEY": API_KEY,
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it waits for a list from the network
}
ENDLESS = {"2": -100.0}
"""A bias against the token that ends an answer."""
EXERCISED = "5 answers (1 streamed), killed and frozen in a stream, 1 stop"
LENGTH_EXERCISED = (
    "7 answers (1 streamed), killed and frozen in a stream, 1 stop, 1 history too long for the model"
)

Command = Callable[[int], Sequence[str | Path]]
"""Returns what starts the server at a port."""


def llama_cpp(folder: Path) -> Command:
    program = Path(__file__).with_name("servers") / "llama_cpp.py"
    return lambda port: [sys.executable, program, str(port), folder]


class ModelServer:
    """A model server on a port that it keeps when it is started again."""

    def __init__(self, command: Command, folder: Path, ready: str, environ: dict[str, str]) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.url = f"{self.address}/v1"
        self._ready, self._environ = f"{self.address}{ready}", {**SERVER_ENVIRONMENT, **environ}
        self._command = command(port)
        self._log = folder / f"{port}.log"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environ)
        end = time.monotonic() + START_SECONDS
        while not self._is_ready():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, f"the server did not start in {START_SECONDS:.0f} s"
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        authorization = {"Authorization": f"Bearer {API_KEY}"}
        with suppress(httpx2.TransportError):
            return httpx2.get(self._ready, headers=authorization, timeout=5, trust_env=False).is_success
        return False

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def running(
    command: Command, folder: Path, ready: str = "/v1/models", **environ: str
) -> Iterator[ModelServer]:
    """Run a server during the block, once it answers at the path `ready`."""
    server = ModelServer(command, folder, ready, environ)
    server.start()
    try:
        yield server
    finally:
        server.end()


class Talk:
    """The official client, which sends only new messages and does not retry."""

    def __init__(self, url: str) -> None:
        self._http = DefaultHttpxClient(trust_env=False)
        headers = {"X-Conversation-Id": "outages"}
        options = {"base_url": f"{url}/v1", "api_key": "none", "default_headers": headers}
        self._completions = OpenAI(
            http_client=self._http, max_retries=0, timeout=60, **options
        ).chat.completions
        self.answers: dict[str, str] = {}
        self.headers = httpx2.Headers()

    def close(self) -> None:
        self._http.close()

    def ask(self, text: str) -> None:
        raw = self._completions.with_raw_response.create(model=MODEL, messages=[_user(text)])
        self.headers = raw.headers
        answer = raw.parse()
        self.answers[text] = answer.choices[0].message.content or ""
        # A random model may end at once: with one token, which ends the answer.
        assert self.answers[text] or (answer.usage and answer.usage.completion_tokens <= 1), answer

    def stream(self, text: str) -> None:
        self.answers[text] = "".join(self._pieces(text, {}))

    def stream_until(self, text: str, act: Callable[[], None]) -> str:
        """Stream an answer that does not end by itself, act after its first piece; return what arrived."""
        arrived = ""
        for piece in self._pieces(text, ENDLESS):
            if not arrived:
                act()
            arrived += piece
        return arrived

    def stop(self, text: str) -> str:
        """Close the stream after its first piece, and return it."""
        pieces = self._pieces(text, ENDLESS)
        first = next(pieces)
        pieces.close()
        return first

    def _pieces(self, text: str, bias: dict[str, float]) -> Iterator[str]:
        with self._completions.create(
            model=MODEL, messages=[_user(text)], stream=True, logit_bias=bias or omit
        ) as chunks:
            for chunk in chunks:
                if chunk.choices and (piece := chunk.choices[0].delta.content):
                    yield piece


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def tell(command: Command, folder: Path, *, refuses_length: bool) -> str:
    """Run the story with a model server; return the result for the page. Raises AssertionError."""
    with running(command, folder) as server:
        config = folder / "turnledger.toml"
        config.write_text(CONFIG.format(upstream=server.url))
        serve = ("turnledger", "serve", "--config", str(config))
        with started(*serve, COMPAT_API_KEY=API_KEY) as turnledger, closing(Talk(turnledger.url)) as talk:
            talk.ask("Hello")
            talk.stream("My coat is red.")
            fail(talk, "killed", lambda: server.send(signal.SIGKILL))
            server.end()
            server.start()
            talk.ask("Are you back?")
            fail(talk, "frozen", lambda: server.send(signal.SIGSTOP))
            server.send(signal.SIGCONT)
            talk.ask("And again?")
            begun = talk.stop("stopped")
            talk.ask("And now?")
            if refuses_length:
                talk.ask("long " * 1000)
                talk.ask("longer " * 700)
                assert "x-context-reduced" in talk.headers, "the history was not shortened for the model"
            check_history(turnledger.url, talk.answers, begun)
    return "passes"


def fail(talk: Talk, text: str, act: Callable[[], None]) -> None:
    """Break the model server in a stream: the client must receive an error."""
    try:
        arrived = talk.stream_until(text, act)
    except APIError:
        return
    raise AssertionError(f"the broken stream was taken for an answer of {len(arrived)} characters")


def check_history(url: str, answers: dict[str, str], begun: str) -> None:
    """Every answer is stored once, in order, under its question; no broken one is; the stopped one is cut."""
    turns = shown_turns(url)
    [stopped] = [turn for turn in turns if turn["kind"] != "completed"]
    assert (stopped["kind"], texts_of(stopped["input"])) == ("interrupted", ["stopped"])
    assert text_of(stopped["output"]).startswith(begun)
    turns.remove(stopped)
    assert {text_of(turn["input"]): text_of(turn["output"]) for turn in turns} == answers
    assert [text_of(turn["input"]) for turn in turns] == list(answers)
