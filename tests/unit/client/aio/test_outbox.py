"""Unsent messages, awaited: as those of the blocking client."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.unit.client.scripted_server import CHAT, ScriptedServer, is_away, loses_the_answer
from turnledger.client import Answer, AsyncClient, Retries
from turnledger.client.outbox.file import OutboxFile
from turnledger.errors import InvalidInput, NotAStore, ServerUnavailable


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def client_of(server: ScriptedServer, folder: Path | None) -> AsyncIterator[AsyncClient]:
    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http,
        AsyncClient(
            "https://server",
            model="m",
            outbox=None if folder is None else folder / "unsent.db",
            retries=Retries(times=0),
            http=http,
        ) as client,
    ):
        yield client


async def test_what_was_not_answered_is_sent_later_once(tmp_path: Path) -> None:
    server = ScriptedServer()
    async with client_of(server, tmp_path) as client:
        chat = client.chats.open(CHAT)
        server.troubles = [is_away, loses_the_answer(server)]
        for text in ("never arrived", "answered unheard"):
            with pytest.raises(ServerUnavailable):
                await chat.send(text)
        kept = [(each.asked["input"], each.first_tried_at is None) for each in await client.outbox.pending()]
        assert kept == [("never arrived", True), ("answered unheard", False)]
    async with client_of(server, tmp_path) as client:
        told = await asyncio.gather(client.outbox.send_all(), client.outbox.send_all())
        answers = [answer for each in told for _, answer in each]
        assert (len(answers), all(isinstance(answer, Answer) for answer in answers)) == (2, True)
        assert await client.outbox.pending() == []
    assert len(server.turns) == 2


async def test_what_was_not_read_to_its_end_can_be_sent_again_at_once(tmp_path: Path) -> None:
    server = ScriptedServer()
    async with client_of(server, tmp_path) as client:
        await (await client.chats.open(CHAT).send("closed", stream=True)).close()
        [(unsent, answer)] = await client.outbox.send_all()
        assert (unsent.asked["input"], isinstance(answer, Answer)) == ("closed", True)


async def test_the_loop_never_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, threads = threading.get_ident(), set[int]()

    @contextmanager
    def using(self: OutboxFile) -> Iterator[sqlite3.Connection]:
        threads.add(threading.get_ident())
        with whole(self) as db:
            yield db

    def close(self: OutboxFile) -> None:
        threads.add(threading.get_ident())
        closing(self)

    whole, closing = OutboxFile._using, OutboxFile.close
    monkeypatch.setattr(OutboxFile, "_using", using)
    monkeypatch.setattr(OutboxFile, "close", close)
    async with client_of(ScriptedServer(), tmp_path) as client:
        assert (await client.chats.open(CHAT).send("Hello")).text == "Yes."
        assert (await client.outbox.pending(), await client.outbox.send_all()) == ([], [])
    assert len(threads) > 0
    assert loop not in threads


async def test_what_is_wrong_with_the_file_is_told_before_anything_is_said(tmp_path: Path) -> None:
    (tmp_path / "unsent.db").write_bytes(b"# Notes\n" * 1000)
    with pytest.raises(NotAStore):
        async with client_of(ScriptedServer(), tmp_path):
            raise AssertionError("it is not entered")


async def test_one_can_be_forgotten(tmp_path: Path) -> None:
    server = ScriptedServer()
    async with client_of(server, tmp_path) as client:
        server.troubles = [is_away]
        with pytest.raises(ServerUnavailable):
            await client.chats.open(CHAT).send("Hello")
        [unsent] = await client.outbox.pending()
        assert (await client.outbox.forget(unsent.id), await client.outbox.send_all()) == (True, [])


async def test_without_an_outbox_there_is_nothing_to_send() -> None:
    async with client_of(ScriptedServer(), None) as client:
        assert (await client.chats.open(CHAT).send("Hello")).text == "Yes."
        with pytest.raises(InvalidInput, match="keeps no record"):
            await client.outbox.send_all()
