"""`turnledger chat` on a server, as a person sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal.conftest import Home
from tests.terminal.serving import Serving
from tests.terminal.upstream import scripted
from tests.terminal.window import CTRL_C, CTRL_D, ENTER, Window
from turnledger import Ledger
from turnledger.client import Client
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Gate


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("server")) as serving:
        yield serving


@pytest.fixture
def client(server: Serving) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def test_talking_stopping_and_failing(home: Home, server: Serving, client: Client) -> None:
    with Window("chat", home=home.path, more={"TURNLEDGER_SERVER": server.url}) as window:
        window.ready()
        assert f"demo at {server.url}" in window.text
        window.say("Good morning")
        window.see('You said "Good morning". I remember nothing before that.')
        window.see("Good morning  demo  /help")
        window.ready()
        window.say("//stall after 3")
        window.see('You said "/stall')
        window.type(CTRL_C)
        window.see("Stopped: this is as far as it got.")
        window.ready()
        window.say("//fail after 3")
        window.see("✗ model_unavailable: The demo model failed, as it was asked to.")
        window.see("3 › //fail after 3", times=2)
        window.ready()
        window.type(CTRL_C)
        window.until(lambda: window.last_input == "3 ›", "an empty prompt")
        window.type(CTRL_D)
        assert window.ended() == 0
    turns = list(client.chats.open(next(iter(client.chats.list())).id).turns())
    assert [turn.kind for turn in turns] == [TurnKind.INTERRUPTED, TurnKind.COMPLETED]


def test_what_others_do_is_seen_at_the_prompt(home: Home, server: Serving, client: Client) -> None:
    chat = client.chats.create()
    chat.send("The first thing")
    with Window("chat", str(chat.id), "--server", server.url, home=home.path, rows=40) as window:
        window.see("1 › The first thing")
        window.ready()
        window.type("half a sen")
        window.until(lambda: window.last_input == "2 › half a sen", "what is typed")
        chat.send("From elsewhere")
        window.see("Meanwhile, elsewhere:")
        window.see("2 › From elsewhere")
        window.until(lambda: window.last_input == "3 › half a sen", "what was typed")
        chat.undo()
        window.see("Taken back elsewhere: 1 turn.")
        window.until(lambda: window.last_input == "2 › half a sen", "what was typed")
        chat.rename("Called so by others")
        window.see("Called so by others  demo  /help")
        window.type("tence", ENTER)
        window.see('You said "half a sentence". I remember 1 message')
        window.ready()
    assert [turn.number for turn in chat.turns()] == [2, 1]


def test_a_running_turn_is_followed_and_stopped_by_who_resumes(home: Home, tmp_path: Path) -> None:
    gate = Gate()
    with (
        scripted(["It begins", gate, " and ends."]) as model,
        Serving(tmp_path, "--upstream", model.url) as server,
        Window("chat", "--server", server.url, home=home.path) as first,
    ):
        first.ready()
        first.say("Tell me")
        first.see("It begins")
        with Window("chat", "--resume", "--server", server.url, home=home.path) as second:
            second.see("1 › Tell me")
            second.see("It begins")
            second.type(CTRL_C)
            second.see("Stopped: this is as far as it got.")
            second.ready()
        first.see("Stopped: this is as far as it got.")
        first.ready()


def test_an_answer_outlives_its_server(home: Home, tmp_path: Path) -> None:
    gate = Gate()
    with (
        scripted(["It beg", gate], ["It begins and ends."]) as model,
        Serving(tmp_path, "--upstream", model.url) as server,
        Window("chat", "--server", server.url, home=home.path) as window,
    ):
        window.ready()
        window.say("Tell me")
        window.see("It beg")
        server.kill()
        server.start()
        window.see("The answer begins anew:")
        window.see("It begins and ends.")
        window.ready()
        with Client(server.url) as client:
            (chat,) = client.chats.list()
            assert chat.turn_count == 1


def test_only_the_environment_has_the_token(home: Home, tmp_path: Path) -> None:
    async def made() -> str:
        async with await Ledger.open(f"sqlite:///{tmp_path}/served.db") as ledger:
            _, text = await ledger.tokens.create(scopes=["chats:read", "chats:write", "turns:run"])
            return text

    token = asyncio.run(made())
    with Serving(tmp_path) as server:
        with Window("chat", "--server", server.url, home=home.path) as window:
            assert window.ended() == 2
            assert "The token that is shown is the one in TURNLEDGER_API_KEY." in window.one_line
        given = {"TURNLEDGER_API_KEY": token, "TURNLEDGER_SERVER": server.url}
        with Window("chat", home=home.path, more=given) as window:
            window.ready()
            window.say("Hello")
            window.see('You said "Hello".')
            window.ready()
            assert token not in window.everything
