"""What is not kept leaves nothing behind: not in one byte of the store, its journals, temporary files, the
log or the metrics, however its turn ended, `kill -9` included."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.crash.killed_server import environment
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Call, Data, ScriptedUpstream, Status, Step

CONFIG = """
[server]
port = 0
workers = 2
log_level = "debug"
store = "sqlite:///{store}"
upstream = "{upstream}"

[chats.scopes.desk]
keep = false
"""


class Markers:
    """Texts that are nowhere else in the world."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self) -> str:
        self.made.append(f"mark{secrets.token_hex(12)}")
        return self.made[-1]

    def found_in(self, folder: Path) -> set[str]:
        """The files of a folder in which one of them stands, in one of the ways in which a text is stored."""
        forms = [form for text in self.made for form in (text.encode(), text.encode("utf-16-le"))]
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert any(path.name == "chats.db-wal" for path in files)  # else the search sees less than there is
        return {path.name for path in files if any(form in path.read_bytes() for form in forms)}


class Server:
    """`turnledger serve` with two workers, all of whose files are in one folder."""

    def __init__(self, folder: Path, upstream: str) -> None:
        (folder / "tmp").mkdir(exist_ok=True)
        config = folder / "turnledger.toml"
        config.write_text(CONFIG.format(store=folder / "chats.db", upstream=upstream))
        with (folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "turnledger", "serve", "--config", str(config)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**environment(folder), "TMPDIR": str(folder / "tmp")},
            )
        assert self.process.stdout is not None
        found = re.search(r"http://[\d.]+:\d+", self.process.stdout.readline())
        assert found is not None, (folder / "log").read_text()
        self.url = found[0]

    def end(self, number: signal.Signals) -> None:
        """End all its processes: by SIGTERM in order, by SIGKILL at once."""
        if number is signal.SIGKILL:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def body(mark: str, *, stream: bool) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": f"You are {mark}."},
        {"role": "user", "content": f"{mark} " * 2_000},  # more than a page of the file
        {"role": "assistant", "content": mark},
        {"role": "user", "content": mark},
    ]
    return {"model": "any", "messages": messages, "stream": stream, "user": mark}


async def ask(
    session: aiohttp.ClientSession, url: str, mark: str, *, stream: bool, **headers: str
) -> tuple[int, str, bytes]:
    """Ask in the conversation of this name; status, state and everything that was said."""
    named = {"X-Conversation-Id": mark, **{name.replace("_", "-"): value for name, value in headers.items()}}
    try:
        async with session.post(
            f"{url}/v1/chat/completions", json=body(mark, stream=stream), headers=named
        ) as answer:
            return answer.status, answer.headers.get("X-Conversation-State", ""), await answer.read()
    except aiohttp.ClientPayloadError:
        return 0, "", b""


def endings(mark: Markers) -> Iterable[list[Step]]:
    """What a model can do, each time with a text in it that is searched for."""
    yield [mark(), mark()]
    yield [Call(mark(), f'{{"a": "{mark()}"}}')]
    yield [Status(500, b'{"error": {"message": "%s"}}' % mark().encode())]
    yield [Status(400, b'{"error": {"message": "%s", "code": "%s"}}' % (mark().encode(), mark().encode()))]
    yield [mark(), CUT]
    yield [mark(), Data(b'{"error": {"message": "%s"}}' % mark().encode())]
    yield [mark(), Data(b'{"choices": "%s"}' % mark().encode())]


@pytest.fixture
async def upstream(anyio_backend: str) -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(remembers=0) as upstream:
        yield upstream


@pytest.mark.parametrize("no", [{"X_Conversation_Scope": "desk"}, {"X_Conversation_Keep": "no"}])
async def test_no_byte_of_it_is_left(tmp_path: Path, upstream: ScriptedUpstream, no: dict[str, str]) -> None:
    mark, answers = Markers(), []
    server = Server(tmp_path, upstream.url)
    try:
        async with aiohttp.ClientSession() as session:
            for stream in (False, True):
                for ending in endings(mark):
                    upstream.scripts.append(ending)
                    answers.append(await ask(session, server.url, mark(), stream=stream, **no))
            assert {(200, "unkept"), (502, "unkept"), (400, "unkept")} == {each[:2] for each in answers}
            assert all(
                any(each.encode() in told for each in mark.made)
                for status, _, told in answers
                if status == 200
            )
            status, state, told = await refuse(session, server.url, mark, no)
            assert (status, state) == (400, "")
            assert b"not_kept" in told
            await leave(session, server.url, upstream, mark, no)
            async with session.get(f"{server.url}/metrics") as metrics:
                text = await metrics.text()
            assert not any(each in text for each in mark.made)
            assert mark.found_in(tmp_path) == set()
            await leave(session, server.url, upstream, mark, no, kills=server)
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)
    assert mark.found_in(tmp_path) == set()
    assert "request" in (tmp_path / "log").read_text()  # else there is no log to search


async def refuse(
    session: aiohttp.ClientSession, url: str, mark: Markers, no: dict[str, str]
) -> tuple[int, str, bytes]:
    return await ask(session, url, mark(), stream=False, **no, Idempotency_Key=mark())


async def leave(
    session: aiohttp.ClientSession,
    url: str,
    upstream: ScriptedUpstream,
    mark: Markers,
    no: dict[str, str],
    kills: Server | None = None,
) -> None:
    """Be cut off, or cut the server off, while the answer is on its way."""
    gate = Gate()
    upstream.scripts.append([mark() * 500, gate, mark()])
    asking = asyncio.create_task(ask(session, url, mark(), stream=True, **no))
    await gate.arrived()
    if kills is not None:
        kills.end(signal.SIGKILL)
    asking.cancel()
    await asyncio.wait((asking,))
    gate.release()


async def test_what_is_kept_is_found_by_the_same_search(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    for kind in ("request", "answer", "conversation_key"):
        folder = tmp_path / kind
        folder.mkdir()
        mark = Markers()
        given = {each: mark() if each == kind else "something" for each in ("request", "answer")}
        named = mark() if kind == "conversation_key" else "k"
        server = Server(folder, upstream.url)
        try:
            upstream.scripts.append([given["answer"]])
            async with aiohttp.ClientSession() as session:
                _, state, _ = await ask(
                    session, server.url, given["request"], stream=True, X_Conversation_Id=named
                )
            assert state == "created"
        finally:
            server.end(signal.SIGKILL)
        assert mark.found_in(folder) == {"chats.db-wal"}
