"""The outbox: messages are recorded before sending and sent once later, by either client."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from tests.unit.client.scripted_server import CHAT, ScriptedServer, is_away, loses_the_answer, refuses
from turnledger.client import Answer, AsyncClient, Client, Outbox, Retries
from turnledger.client.outbox.file import OutboxFile
from turnledger.errors import (
    ConversationNotFound,
    InvalidInput,
    NotAdmitted,
    NotAStore,
    OutcomeUnknown,
    QueueFull,
    ServerUnavailable,
    StoreFull,
    TurnledgerError,
)
from turnledger.model.event import TurnFinished

OTHER_CHAT = CHAT[:-1] + "9"


class Desk:
    """A scripted server, and clients that share an outbox."""

    def __init__(self, folder: Path) -> None:
        self.server = ScriptedServer()
        self.opened: list[Client] = []
        self._folder = folder

    def open(self, **options: object) -> Client:
        settings: dict[str, object] = {
            "model": "m",
            "outbox": self._folder / "unsent.db",
            "retries": Retries(times=0),
            "http": httpx2.Client(transport=httpx2.MockTransport(self.server)),
        }
        self.opened.append(Client("https://server", "secret", **{**settings, **options}))  # type: ignore[arg-type]
        return self.opened[-1]

    def leave(self, client: Client, *texts: str, chat: str = CHAT) -> None:
        """Send messages that reach no server."""
        for text in texts:
            self.server.troubles = [is_away]
            with pytest.raises(ServerUnavailable):
                client.chats.open(chat).send(text)
        self.server.received.clear()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for client in desk.opened:
        client.close()


def inputs(client: Client) -> list[object]:
    return [each.fields["input"] for each in client.outbox.pending()]


def sent_again(client: Client) -> list[str]:
    return [type(outcome).__name__ for _, outcome in client.outbox.send_all()]


def test_outbox_records_a_message_before_sending_and_removes_it_after_the_answer(desk: Desk) -> None:
    client, other = desk.open(), desk.open()
    seen: list[list[object]] = []

    def read_page(request: httpx2.Request) -> httpx2.Response:
        seen.append(inputs(other))
        return desk.server.answer(request)

    desk.server.troubles = [read_page]
    answer = client.chats.open(CHAT).send("Hello", idempotency_key="k")
    assert (answer.text, seen, inputs(client)) == ("Yes.", [["Hello"]], [])


def test_outbox_message_that_reached_no_server_is_sent_later_by_another_program(desk: Desk) -> None:
    first = desk.open()
    desk.server.troubles = [is_away]
    with pytest.raises(ServerUnavailable) as problem:
        first.chats.open(CHAT).send("Hello")
    [unsent] = first.outbox.pending()
    assert (unsent.idempotency_key, unsent.first_tried_at) == (problem.value.idempotency_key, None)
    [(sent, answer)] = desk.open().outbox.send_all()
    assert (sent.id, isinstance(answer, Answer)) == (unsent.id, True)
    assert list(desk.server.turns) == [unsent.idempotency_key]
    assert (first.outbox.pending(), first.outbox.send_all()) == ([], [])


def test_outbox_message_whose_answer_was_lost_gets_it_later_without_a_second_turn(desk: Desk) -> None:
    client = desk.open()
    desk.server.troubles = [loses_the_answer(desk.server)]
    with pytest.raises(ServerUnavailable):
        client.chats.open(conversation_key="k", scope="shop").edit(
            "turn_01890000000070008000000000000000", "Hello", on_stop="discard", primer="Before"
        )
    [unsent] = client.outbox.pending()
    assert unsent.first_tried_at == unsent.recorded_at
    assert {"conversation_key", "scope", "replaces", "primer"} < unsent.fields.keys()
    assert unsent.headers["x-turn-on-stop"] == "discard"
    [(_, answer)] = client.outbox.send_all()
    assert isinstance(answer, Answer)
    assert (len(desk.server.turns), desk.server.received) == (1, ["Hello", "Hello"])


@pytest.mark.parametrize(
    ("status", "code", "error", "is_kept"),
    [
        (404, "conversation_not_found", ConversationNotFound, False),
        (400, "invalid_input", InvalidInput, False),
        (401, "token_expired", NotAdmitted, True),
        (403, "wrong_scope", NotAdmitted, True),
        (429, "queue_full", QueueFull, True),
        (503, "shutting_down", ServerUnavailable, True),
    ],
)
def test_outbox_drops_permanently_refused_messages_and_keeps_the_others(
    desk: Desk,
    status: int,
    code: str,
    error: type[TurnledgerError],
    is_kept: bool,
) -> None:
    client = desk.open()
    desk.server.troubles = [refuses(status, code)]
    with pytest.raises(error):
        client.chats.open(CHAT).send("Hello")
    assert inputs(client) == (["Hello"] if is_kept else [])


def test_outbox_sends_messages_in_order_until_the_server_is_unreachable(desk: Desk) -> None:
    client = desk.open()
    desk.leave(client, "one", "two", "three", "four")
    desk.server.troubles = [desk.server.answer, refuses(410, "conversation_deleted"), is_away]
    outcomes = sent_again(client)
    assert outcomes == ["Answer", "ConversationDeleted", "ServerUnavailable"]
    assert (desk.server.received, inputs(client)) == (["one", "two", "three"], ["three", "four"])


def test_outbox_message_of_an_abandoned_stream_can_be_sent_again_at_once(desk: Desk) -> None:
    client = desk.open()
    chat = client.chats.open(CHAT)
    chat.send("closed", stream=True).close()
    for _ in chat.send("left alone", stream=True):
        break
    reading = chat.send("still read", stream=True)
    assert [unsent.fields["input"] for unsent, _ in client.outbox.send_all()] == ["closed", "left alone"]
    assert [type(event).__name__ for event in reading][-1] == "TurnFinished"
    assert inputs(client) == []


def test_outbox_removes_a_message_with_the_last_event_of_its_stream(desk: Desk) -> None:
    client = desk.open()
    for event in client.chats.open(CHAT).send("Hello", stream=True):
        if isinstance(event, TurnFinished):
            assert inputs(client) == []
            break
    else:
        raise AssertionError("there is no last event")
    assert inputs(client) == []


def test_outbox_keeps_a_message_whose_token_expired_during_the_answer(desk: Desk) -> None:
    error = b'event: error\ndata: {"error":{"message":"No.","type":"t","code":"token_expired"}}\n\n'

    def shows_the_door(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers=desk.server.answer(request).headers, stream=httpx2.ByteStream(error)
        )

    client = desk.open()
    desk.server.troubles = [shows_the_door]
    with pytest.raises(NotAdmitted):
        client.chats.open(CHAT).send("Hello")
    assert inputs(client) == ["Hello"]


def test_outbox_holds_back_messages_of_a_chat_behind_a_full_queue(desk: Desk) -> None:
    client = desk.open()
    desk.leave(client, "one", "two")
    desk.leave(client, "elsewhere", chat=OTHER_CHAT)
    desk.server.troubles = [refuses(429, "queue_full")]
    assert sent_again(client) == ["QueueFull", "Answer"]
    assert (desk.server.received, inputs(client)) == (["one", "elsewhere"], ["one", "two"])
    assert sent_again(client) == ["Answer", "Answer"]


def test_outbox_sends_other_chats_past_a_message_that_is_no_longer_allowed(desk: Desk) -> None:
    client = desk.open()
    desk.leave(client, CHAT)
    desk.leave(client, OTHER_CHAT, chat=OTHER_CHAT)
    desk.server.troubles = [refuses(403, "model_not_allowed")]
    assert sent_again(client) == ["NotAdmitted", "Answer"]
    desk.server.troubles = [refuses(401, "token_expired")]
    assert len(client.outbox.send_all()) == 1
    assert inputs(client) == [CHAT]


def test_outbox_reports_an_uncertain_message_without_sending_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = desk.open()
    desk.server.troubles = [loses_the_answer(desk.server)]
    with pytest.raises(ServerUnavailable):
        client.chats.open(CHAT).send("Hello")
    desk.server.received.clear()
    found = OutboxFile.claim

    def old(self: OutboxFile, after: int) -> object:
        unsent = found(self, after)
        return None if unsent is None else replace(unsent, is_uncertain=True)

    monkeypatch.setattr(OutboxFile, "claim", old)
    [(unsent, problem)] = client.outbox.send_all()
    assert (type(problem), desk.server.received) == (OutcomeUnknown, [])
    assert (client.outbox.forget(unsent.id), client.outbox.pending()) == (True, [])


def test_outbox_message_that_cannot_be_recorded_is_not_sent(desk: Desk, tmp_path: Path) -> None:
    client = desk.open(outbox=Outbox(path=tmp_path / "small.db", max_bytes=100))
    with pytest.raises(StoreFull):
        client.chats.open(CHAT).send("Hello" * 100)
    assert desk.server.received == []


def test_outbox_update_failure_is_logged_and_the_answer_returned(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = desk.open()

    def fail(*_: object) -> None:
        raise StoreFull("The disk is full.")

    monkeypatch.setattr(OutboxFile, "remove", fail)
    assert client.chats.open(CHAT).send("Hello").text == "Yes."
    assert "The disk is full." in caplog.text


def test_outbox_requires_a_model_to_be_named(desk: Desk) -> None:
    chat = desk.open(model=None).chats.open(CHAT)
    with pytest.raises(InvalidInput, match="needs a model"):
        chat.send("Hello")
    assert chat.send("Hello", model="m").text == "Yes."


def test_client_without_an_outbox_sends_and_refuses_outbox_calls(
    desk: Desk,
) -> None:
    client = desk.open(outbox=None)
    assert client.chats.open(CHAT).send("Hello").text == "Yes."
    with pytest.raises(InvalidInput, match="has no outbox"):
        client.outbox.pending()


@asynccontextmanager
async def client_of(server: ScriptedServer, folder: Path) -> AsyncIterator[AsyncClient]:
    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http,
        AsyncClient(
            "https://server",
            model="m",
            outbox=folder / "unsent.db",
            retries=Retries(times=0),
            http=http,
        ) as client,
    ):
        yield client


async def test_async_outbox_sends_unanswered_messages_once(tmp_path: Path) -> None:
    server = ScriptedServer()
    async with client_of(server, tmp_path) as client:
        chat = client.chats.open(CHAT)
        server.troubles = [is_away, loses_the_answer(server)]
        for text in ("never arrived", "answered unheard"):
            with pytest.raises(ServerUnavailable):
                await chat.send(text)
        server.troubles = [is_away]
        with pytest.raises(ServerUnavailable):
            await chat.send("forgotten")
        assert await client.outbox.forget((await client.outbox.pending())[-1].id)
        await (await chat.send("closed", stream=True)).close()
        kept = [(each.fields["input"], each.first_tried_at is None) for each in await client.outbox.pending()]
        assert kept == [("never arrived", True), ("answered unheard", False), ("closed", False)]
    async with client_of(server, tmp_path) as client:
        batches = await asyncio.gather(client.outbox.send_all(), client.outbox.send_all())
        answers = [answer for each in batches for _, answer in each]
        assert (len(answers), all(isinstance(answer, Answer) for answer in answers)) == (3, True)
        assert await client.outbox.pending() == []
    assert len(server.turns) == 3


async def test_async_outbox_never_blocks_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, threads = threading.get_ident(), set[int]()

    @contextmanager
    def using(self: OutboxFile) -> Iterator[sqlite3.Connection]:
        threads.add(threading.get_ident())
        with whole(self) as db:
            yield db

    def close(self: OutboxFile) -> None:
        threads.add(threading.get_ident())
        closing(self)

    whole, closing = OutboxFile._connected, OutboxFile.close
    monkeypatch.setattr(OutboxFile, "_connected", using)
    monkeypatch.setattr(OutboxFile, "close", close)
    async with client_of(ScriptedServer(), tmp_path) as client:
        assert (await client.chats.open(CHAT).send("Hello")).text == "Yes."
        assert (await client.outbox.pending(), await client.outbox.send_all()) == ([], [])
    assert len(threads) > 0
    assert loop not in threads


async def test_async_outbox_with_an_invalid_file_raises_when_the_client_opens(tmp_path: Path) -> None:
    (tmp_path / "unsent.db").write_bytes(b"# Notes\n" * 1000)
    with pytest.raises(NotAStore):
        async with client_of(ScriptedServer(), tmp_path):
            raise AssertionError("it is not entered")
