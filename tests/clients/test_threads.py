"""Fifty threads on one client: each gets its own complete answer, and every chat keeps one order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.server.processes import started
from turnledger.client import Answer, Client, TextDelta, TurnFinished
from turnledger.errors import RequestFailed
from turnledger.model.turn import AttemptState, TurnKind

ROOMS, TALKERS, STOPPED = 8, 5, 5
"""Chats that several talk in, how many in each, and chats in which one is stopped by another thread."""
COMMAND = ("tests.tuned_cli", "pace=0.005", "serve", "--port", "0", "--log-level", "warning")
"""Its log is discarded."""
EACH = 2
"""Messages of each."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("store") / "chats.db"
    with (
        started(*COMMAND, "--store", f"sqlite:///{store}") as server,
        Client(server.url, model="demo") as client,
    ):
        yield client


class Crowd:
    """Threads that begin together; what goes wrong in one is raised at the end."""

    def __init__(self, size: int) -> None:
        self._together = threading.Barrier(size)
        self._threads: list[threading.Thread] = []
        self._problems: list[BaseException] = []

    def add(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                self._together.wait(timeout=30)
                work()
            except BaseException as problem:
                self._problems.append(problem)

        self._threads.append(threading.Thread(target=run))

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join(timeout=60)
        assert not [thread for thread in self._threads if thread.is_alive()]
        if self._problems:
            raise self._problems[0]


def talk(client: Client, room: str, name: str) -> None:
    """Send messages and check their answers, by turns whole and streamed."""
    chat = client.chats.open(conversation_key=room)
    for number in range(EACH):
        question = f"{name}-{number}"
        if number % 2:
            assert f'You said "{question}".' in chat.send(question).text
            continue
        with chat.send(question, stream=True) as stream:
            events = list(stream)
            answer = stream.answer()
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert text == answer.text
        assert f'You said "{question}".' in text
        assert answer.turn.id == stream.turn_id


def be_stopped(client: Client, room: str, has_text: threading.Event) -> None:
    with client.chats.open(conversation_key=room).send("/count 9999", stream=True) as stream:
        for event in stream:
            if isinstance(event, TextDelta):
                has_text.set()
        answer = stream.answer()
    assert isinstance(event, TurnFinished)
    assert (event.state, answer.turn.kind) == (AttemptState.KEPT, TurnKind.INTERRUPTED)


def stop(client: Client, room: str, has_text: threading.Event) -> None:
    assert has_text.wait(timeout=30)
    ended = client.chats.open(conversation_key=room).stop()
    assert ended is not None
    assert (ended.state, ended.committed) == (AttemptState.KEPT, True)


def test_fifty_threads_on_one_client_get_their_own_answers_in_order(client: Client) -> None:
    crowd = Crowd(ROOMS * TALKERS + 2 * STOPPED)
    names = [[f"{room}.{talker}" for talker in range(TALKERS)] for room in range(ROOMS)]
    for room, talkers in enumerate(names):
        for name in talkers:
            crowd.add(lambda room=room, name=name: talk(client, f"room-{room}", name))  # type: ignore[misc]
    for number in range(STOPPED):
        has_text = threading.Event()
        crowd.add(lambda room=f"stopped-{number}", has_text=has_text: be_stopped(client, room, has_text))  # type: ignore[misc]
        crowd.add(lambda room=f"stopped-{number}", has_text=has_text: stop(client, room, has_text))  # type: ignore[misc]
    crowd.run()
    for room, talkers in enumerate(names):
        page = client.chats.open(conversation_key=f"room-{room}").read()
        assert page.attempts == ()
        assert [turn.number for turn in page.turns] == list(range(1, TALKERS * EACH + 1))
        assert [turn.parent for turn in page.turns[1:]] == [turn.id for turn in page.turns[:-1]]
        questions = [turn.input[0].text for turn in page.turns]
        for name in talkers:
            assert [each for each in questions if each.startswith(name)] == [
                f"{name}-{n}" for n in range(EACH)
            ]
    assert len(list(client.chats.list())) == ROOMS + STOPPED


def test_client_close_ends_all_waiting_threads_and_their_messages_stay_in_the_outbox(
    client: Client, tmp_path: Path
) -> None:
    url, outbox, rooms = repr(client).split("'")[1], tmp_path / "unsent.db", [f"left-{n}" for n in range(7)]
    other = Client(url, model="demo", outbox=outbox)
    crowd, reading = Crowd(len(rooms) + 1), threading.Semaphore(0)

    def read(room: str) -> None:
        stream = other.chats.open(conversation_key=room).send("/count 9999", stream=True)
        with pytest.raises(RequestFailed, match="The client was closed"):
            for event in stream:
                if event.number == 2:
                    reading.release()

    def close() -> None:
        for _ in rooms:
            assert reading.acquire(timeout=30)
        other.close()

    for room in rooms:
        crowd.add(lambda room=room: read(room))  # type: ignore[misc]
    crowd.add(close)
    crowd.run()
    for room in rooms:
        assert client.chats.open(conversation_key=room).stop() is not None
    with Client(url, model="demo", outbox=outbox) as next_one:
        answers = next_one.outbox.send_all()
        assert sorted(unsent.fields["conversation_key"] for unsent, _ in answers) == rooms
        for unsent, answer in answers:
            assert isinstance(answer, Answer)
            page = client.chats.open(conversation_key=unsent.fields["conversation_key"]).read()
            assert [turn.id for turn in page.turns] == [answer.turn.id]
            assert answer.turn.kind is TurnKind.INTERRUPTED
