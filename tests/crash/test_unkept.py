"""An unkept turn leaves no byte in the store, its journals, temporary files, log or metrics, however it
ends, including `kill -9`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import aiohttp

from tests.crash.unkept_storm import Markers, Server, body
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Call, Data, ScriptedUpstream, Status, Step


async def send(
    session: aiohttp.ClientSession, url: str, mark: str, *, stream: bool, **headers: str
) -> tuple[int, str, bytes]:
    """Send a request in the conversation of this name; return status, state and body."""
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


async def test_unkept_turn_leaves_no_byte_on_disk_and_kept_turns_are_found(tmp_path: Path) -> None:
    async with ScriptedUpstream(max_received=0) as upstream, aiohttp.ClientSession() as session:
        mark, server = Markers(), Server(tmp_path, upstream.url)
        await server.wait_ready()
        try:
            for no in ({"X_Conversation_Scope": "desk"}, {"X_Conversation_Keep": "no"}):
                await answer_all(session, server.url, upstream, mark, no)
                status, state, content = await refuse(session, server.url, mark, no)
                assert (status, state) == (400, "")
                assert b"not_kept" in content
                await leave(session, server.url, upstream, mark, no)
            async with session.get(f"{server.url}/metrics") as metrics:
                text = await metrics.text()
            assert not any(each in text for each in mark.made)
            assert mark.found_in(tmp_path) == set()
            kept = await keep(session, server.url, upstream)
            await leave(session, server.url, upstream, mark, no, kills=server)
        finally:
            server.kill()
            await server.end()
    assert mark.found_in(tmp_path) == set()
    assert "request" in server.errors.read_text()  # else there is no log to search
    assert [each.found_in(tmp_path) for each in kept] == [{"chats.db-wal"}] * 3


async def keep(session: aiohttp.ClientSession, url: str, upstream: ScriptedUpstream) -> list[Markers]:
    """Run a kept turn; return the markers of its question, its answer and its conversation."""
    marks = [Markers() for _ in range(3)]
    question, answer, conversation_key = (mark() for mark in marks)
    upstream.scripts.append([answer])
    _, state, _ = await send(session, url, question, stream=True, X_Conversation_Id=conversation_key)
    assert state == "created"
    return marks


async def answer_all(
    session: aiohttp.ClientSession, url: str, upstream: ScriptedUpstream, mark: Markers, no: dict[str, str]
) -> None:
    """Have turns end in every way, streamed and not."""
    answers = []
    for stream in (False, True):
        for ending in endings(mark):
            upstream.scripts.append(ending)
            answers.append(await send(session, url, mark(), stream=stream, **no))
    assert {(200, "unkept"), (502, "unkept"), (400, "unkept")} == {each[:2] for each in answers}
    good = [content for status, _, content in answers if status == 200]
    assert all(any(each.encode() in content for each in mark.made) for content in good)


async def refuse(
    session: aiohttp.ClientSession, url: str, mark: Markers, no: dict[str, str]
) -> tuple[int, str, bytes]:
    return await send(session, url, mark(), stream=False, **no, Idempotency_Key=mark())


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
    pending = asyncio.create_task(send(session, url, mark(), stream=True, **no))
    await gate.arrived()
    if kills is not None:
        kills.kill()
        await kills.end()
    pending.cancel()
    await asyncio.wait((pending,))
    gate.release()
