"""`turnledger chat` on a server with tokens, in a terminal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.terminal.conftest import Home
from tests.terminal.server_process import RestartableServer
from tests.terminal.upstream import ScriptedModelServer, run_scripted_model
from tests.terminal.window import CTRL_C, CTRL_D, ENTER, Window
from turnledger import Ledger
from turnledger.client import Client
from turnledger.hosting import Host
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status


@dataclass(frozen=True)
class Stage:
    """A server, the model behind it, and a token that opens it."""

    server: RestartableServer
    model: ScriptedModelServer
    token: str

    @property
    def environ(self) -> dict[str, str]:
        return {"TURNLEDGER_SERVER": self.server.url, "TURNLEDGER_API_KEY": self.token}

    def window(self, home: Home, *arguments: str, rows: int = 24) -> Window:
        return Window("chat", *arguments, home=home.path, rows=rows, more=self.environ)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("server")
    token = asyncio.run(made(folder))
    config = folder / "turnledger.toml"
    config.write_text('[chats]\ntitle_model = ""\n')  # a title would take a script of the model
    with run_scripted_model() as model:
        flags = ("--config", str(config), "--upstream", model.url)
        with RestartableServer(folder, *flags) as server:
            yield Stage(server, model, token)


async def made(folder: Path) -> str:
    async with await Ledger.open(f"sqlite:///{folder}/served.db") as ledger:
        _, text = await Host(ledger).tokens.create(scopes=["chats:read", "chats:write", "turns:run"])
        return text


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    with Client(stage.server.url, stage.token, model="scripted") as client:
        yield client


def test_chat_on_a_server_answers_stops_and_reports_errors(home: Home, stage: Stage, client: Client) -> None:
    gate = Gate()
    with stage.window(home) as window:
        window.ready()
        assert f"scripted at {stage.server.url}" in window.text
        stage.model.add_script("Good **morning**.")
        window.ask("Hello", "Good morning.", "Hello  scripted  /help")
        stage.model.add_script("As far", gate)
        window.send("How far?")
        window.see("As far")
        window.type(CTRL_C)
        window.see("Stopped: the answer is incomplete.")
        window.ready()
        stage.model.add_script(Status(400))
        window.send("Once more")
        window.see("✗ model_refused: ")
        window.see("3 › Once more", times=2)
        window.ready()
        window.type(CTRL_C)
        window.until(lambda: window.last_input == "3 ›", "an empty prompt")
        assert stage.token not in window.everything
        window.type(CTRL_D)
        assert window.ended() == 0
        assert re.search(r"Continue with: turnledger chat conv_\w+ --server\shttp", window.everything)
    turns = list(client.chats.open(next(iter(client.chats.list())).id).turns())
    assert [(turn.kind, turn.text) for turn in turns] == [
        (TurnKind.INTERRUPTED, "As far"),
        (TurnKind.COMPLETED, "Good **morning**."),
    ]


def test_changes_by_other_clients_appear_at_the_prompt(home: Home, stage: Stage, client: Client) -> None:
    chat = client.chats.create()
    chat.send("The first thing")
    with stage.window(home, str(chat.id), rows=40) as window:
        window.see("1 › The first thing")
        window.ready()
        window.type("half a sen")
        window.until(lambda: window.last_input == "2 › half a sen", "what is typed")
        chat.send("From elsewhere")
        window.see("New in this chat:")
        window.see("2 › From elsewhere")
        window.until(lambda: window.last_input == "3 › half a sen", "what was typed")
        chat.undo()
        window.see("Undone elsewhere: 1 turn.")
        window.until(lambda: window.last_input == "2 › half a sen", "what was typed")
        chat.rename("Called so by others")
        window.see("Called so by others  scripted  /help")
        stage.model.add_script("Quite.")
        window.type("tence", ENTER)
        window.see("Quite.")
        window.ready()
    assert [turn.number for turn in chat.turns()] == [2, 1]


def test_running_turn_is_followed_and_stopped_from_a_resumed_session(home: Home, stage: Stage) -> None:
    gate = Gate()
    stage.model.add_script("It begins", gate)
    with stage.window(home) as first:
        first.ready()
        first.send("Tell me")
        first.see("It begins")
        with stage.window(home, "--resume") as second:
            second.see("1 › Tell me")
            second.see("It begins")
            second.type(CTRL_C)
            second.see("Stopped: the answer is incomplete.")
            second.ready()
        first.see("Stopped: the answer is incomplete.")
        first.ready()


def test_answer_restarts_after_its_server_was_killed(home: Home, stage: Stage, client: Client) -> None:
    gate = Gate()
    stage.model.add_script("It beg", gate)
    stage.model.add_script("It begins and ends.")
    with stage.window(home) as window:
        window.ready()
        window.send("Tell me once")
        window.see("It beg")
        stage.server.kill()
        stage.server.start()
        window.see("The answer restarts:")
        window.see("It begins and ends.")
        window.ready()
    chat = next(iter(client.chats.list()))
    assert (chat.title, chat.turn_count) == ("Tell me once", 1)


def test_chat_without_a_token_names_the_variable_for_it(home: Home, stage: Stage) -> None:
    with Window("chat", "--server", stage.server.url, home=home.path) as window:
        assert window.ended() == 2
        assert window.one_line.startswith("missing_token: ")
        assert window.one_line.endswith("The token is read from TURNLEDGER_API_KEY.")
