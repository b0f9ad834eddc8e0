"""Shell commands in the documents run in order and print the output shown."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.docs.recipe import COMMAND, CONSOLE, ROOT, environment
from tests.free_port import free_port
from tests.terminal.window import Window
from tests.unit.server.processes import started
from turnledger import Ledger
from turnledger.cli.main import app
from turnledger.testing.postgresql import PostgresServer

SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def require(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def run(command: str, *more: str) -> str:
    """Run a command of `turnledger` in this process; what it printed."""
    name, *words = shlex.split(command)
    assert name == "turnledger"
    done = CliRunner().invoke(app, [*words, *more])
    assert done.exit_code == 0, (command, done.output, done.exception)
    return done.stdout


async def talk(url: str, chats: dict[str, list[tuple[str, str]]]) -> list[str]:
    """Make chats by their keys, with questions and answers; their ids."""
    made = []
    async with await Ledger.open(url) as ledger:
        for conversation_key, turns in chats.items():
            chat = await ledger.conversation(conversation_key=conversation_key)
            made.append(str(chat.id))
            for question, answer in turns:
                async with chat.turn(question) as turn:
                    turn.emit(answer)
    return made


def test_chats_commands_print_the_output_on_their_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "turnledger").mkdir()
    chats = {
        "my-order": [("Where is my order?", "On its way."), ("Since when?", "Since yesterday.")],
        "weather": [("How is the weather in Rome?", "It rains in Rome.")],
    }
    asyncio.run(talk(f"sqlite:///{tmp_path / 'turnledger' / 'chats.db'}", chats))
    commands = COMMAND.findall("".join(CONSOLE.findall(page("command-line"))))
    commands = [
        (command, printed) for command, printed in commands if command.startswith("turnledger chats ")
    ]
    assert len(commands) == 10
    for command, printed in commands:
        expected = r"[^\n]*".join(map(re.escape, printed.strip().split("…")))
        assert re.fullmatch(expected, run(command).strip()), command


def test_append_command_adds_the_items_of_its_page_as_one_turn(tmp_path: Path) -> None:
    [block] = SHELL.findall(page("command-line"))
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    (tmp_path / "turnledger").mkdir()
    url = f"sqlite:///{tmp_path / 'turnledger' / 'chats.db'}"
    asyncio.run(talk(url, {"my-order": []}))
    shell = ["bash", "-c", block.replace("turnledger ", "python -m turnledger ")]
    done = subprocess.run(shell, env={**environment(), **home}, capture_output=True, text=True, check=False)
    assert done.stdout.endswith(" as turn 1.\n"), done.stderr
    shown = run("turnledger chats show my-order", "--store", url)
    assert "  find({})\n  result: in Lyon\n  assistant: It is in Lyon.\n" in shown


def test_shares_commands_print_the_output_on_their_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "turnledger").mkdir()
    asyncio.run(talk(f"sqlite:///{tmp_path / 'turnledger' / 'chats.db'}", {}))
    commands = COMMAND.findall("".join(CONSOLE.findall(page("access"))))
    commands = [each for each in commands if each[0].startswith("turnledger shares ")]
    assert [command.split()[2] for command, _ in commands] == ["create", "list", "revoke"]
    id = ""
    for command, printed in commands:
        expected = r"[^\n]*".join(map(re.escape, printed.strip().split("…")))
        output = CliRunner().invoke(app, shlex.split(command.replace("share_…", id))[1:]).output
        assert re.fullmatch(expected, output.strip()), output
        id = re.findall("share_[0-9a-f]+", output)[0]


def test_tokens_commands_print_the_output_on_their_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "turnledger").mkdir()
    asyncio.run(talk(f"sqlite:///{tmp_path / 'turnledger' / 'chats.db'}", {}))
    commands = COMMAND.findall("".join(CONSOLE.findall(page("access"))))
    commands = [each for each in commands if each[0].startswith("turnledger tokens create")]
    assert len(commands) == 4
    for command, printed in commands:
        words = shlex.split(command.partition(" > ")[0])[1:]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        shown = printed.replace("/home/ann/.local/share", str(tmp_path))
        assert re.match(r"[^\n]*".join(map(re.escape, shown.split("…"))), done.stderr), done.stderr


def test_export_commands_export_print_and_import_a_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'chats.db'}"
    [chat] = asyncio.run(talk(url, {"lunch": [("Hello", "Hi")]}))
    [commands] = SHELL.findall(page("export"))
    printed = [run(line, "--store", url) for line in commands.splitlines()]
    assert printed[0] == ""
    assert "## User" in printed[1]
    assert printed[2] == f"line 1: unchanged {chat} (1 turns) The chat already exists.\n"


def test_piped_chat_commands_send_one_message_each_and_continue_the_chat(tmp_path: Path) -> None:
    [block] = [block for block in CONSOLE.findall(page("start")) if "turnledger chat" in block]
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    commands = COMMAND.findall(block)
    assert len(commands) == 2
    for command, printed in commands:
        runnable = re.sub(r"\bturnledger ", "python -m turnledger ", command)
        shell, env = ["bash", "-c", runnable], {**environment(), **home}
        done = subprocess.run(shell, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_terminal_screen_matches_its_page(tmp_path: Path) -> None:
    [screen] = re.findall(r"```text\n\$ turnledger chat\n(.*?)```", page("command-line"), re.DOTALL)
    where = {"XDG_DATA_HOME": ""}  # as with most people
    with Window("chat", home=tmp_path, columns=80, rows=40, more=where) as window:
        for typed in re.findall(r"^[0-9]+ › (.*)", screen, re.MULTILINE):
            window.ready()
            window.send(typed)
        window.ready()
        assert window.everything.startswith(screen.rstrip())


def printed_by(block: str, shell: dict[str, str]) -> list[Any]:
    """What the commands of a block print, each a document."""
    done = subprocess.run(["bash", "-ec", block], capture_output=True, text=True, env=shell, check=False)
    assert done.returncode == 0, done.stderr
    decoder, documents, text = json.JSONDecoder(), [], done.stdout.strip()
    while text:
        document, end = decoder.raw_decode(text)
        documents.append(document)
        text = text[end:].strip()
    return documents


def test_sharing_commands_create_use_and_revoke_a_link_as_their_page_shows(tmp_path: Path) -> None:
    require("bash", "curl")
    store = f"sqlite:///{tmp_path / 'chats.db'}"
    [create] = re.findall(r"`(turnledger tokens create [^`]*)`", page("access"))
    token = run(create, "--store", store).strip()
    for_user, link, look_after, follow = SHELL.findall(page("access"))
    with started("turnledger", "serve", "--port", "0", "--store", store) as server:
        shell = {
            **os.environ,
            "SERVER": server.url,
            "TOKEN": token,
            "NONCE": "made-up-by-the-page-of-a-visitor",
        }
        [made] = printed_by(for_user, shell)
        assert made["token"].startswith("tlt_")
        assert (made["owner"], made["chat_scope"], made["models"]) == ("user-42", "shop", ["demo"])
        [backend] = re.findall(r"```py\n(.*?)```", page("access"), re.DOTALL)
        (tmp_path / "backend.py").write_text(backend.replace("http://127.0.0.1:8383", server.url))
        env = {**environment(), "OPERATOR_TOKEN": token}
        command = [sys.executable, "backend.py"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.stdout == "ann 1\nben 1\n", done.stderr
        [share] = printed_by(link, shell)
        assert share["path"] == f"/share#{share['code']}"
        shell |= {"CODE": share["code"], "SHARE": share["id"]}
        [visit], [again] = printed_by(follow, shell), printed_by(follow, shell)
        assert visit == again
        assert (visit["kind"], visit["scope"], visit["models"]) == ("scope", "shop", ["demo"])
        listed, revoked = printed_by(look_after, shell)
        assert [(each["id"], each["uses"]) for each in listed["data"]] == [(share["id"], 1)]
        assert revoked["revoked_at"] is not None
        [refused] = printed_by(follow, shell)
        assert refused["error"]["code"] == "link_not_valid"


class Shell:
    """Runs blocks of the page as a user with an empty home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._ports = {port: str(free_port()) for port in ("8080", "8381", "8382", "8383", "8443")}
        programs = home / "bin"
        programs.mkdir()
        program = programs / "turnledger"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m turnledger "$@"\n')
        program.chmod(0o700)
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self._environ = {
            **kept,
            "HOME": str(home),
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), kept.get("PYTHONPATH", "")]),
        }
        self._serving: subprocess.Popen[str] | None = None

    def run(self, block: str) -> str:
        """Run a block to its end; what it printed."""
        # Into files: a proxy that stays would hold a pipe open.
        printed, problems = self.home / "printed", self.home / "problems"
        with printed.open("w") as out, problems.open("w") as err:
            done = subprocess.run(
                self._command(block), env=self._environ, cwd=self.home, stdout=out, stderr=err, check=False
            )
        assert done.returncode == 0, f"{block}\n{printed.read_text()}\n{problems.read_text()}"
        return printed.read_text()

    def serve(self, block: str) -> str:
        """Run the block that goes on in the background; return the line with its address."""
        log = (self.home / "server.log").open("w")
        with log:
            self._serving = subprocess.Popen(
                self._command(block),
                env=self._environ,
                cwd=self.home,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._serving.stdout is not None
        return next((line for line in self._serving.stdout if "http:" in line), "")

    def _command(self, block: str) -> list[str]:
        for printed, port in self._ports.items():
            block = block.replace(printed, port)
        block = block.replace("[server]\n", f"[server]\nport = {self._ports['8383']}\n", 1)
        return ["bash", "-euo", "pipefail", "-c", block]

    def close(self) -> None:
        for name in ("turnledger.pid", "proxy/nginx.pid", *self.home.glob("server-*.pid")):
            file = self.home / name
            if file.exists():
                with suppress(ProcessLookupError):  # killed by a block
                    os.kill(int(file.read_text()), signal.SIGTERM)
        if self._serving is not None:
            assert self._serving.stdout is not None
            self._serving.stdout.read()  # to the end of the server, which holds it open
            self._serving.stdout.close()
            self._serving.wait()


OPERATING = SHELL.findall(page("operating"))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    require("bash", "curl", "nginx", "openssl")
    shell = Shell(tmp_path)
    try:
        yield shell
    finally:
        shell.close()


def block_with(text: str) -> str:
    """The block of the page for operators that has this text."""
    (found,) = [block for block in OPERATING if text in block]
    return found


@pytest.mark.timeout(300)
def test_operator_commands_set_up_a_server_with_tokens_behind_tls(shell: Shell) -> None:
    left = [block for block in OPERATING if "pip install" not in block]

    def run(text: str) -> str:
        left.remove(block_with(text))
        return shell.run(block_with(text))

    run("mkdir -p ~/.config/turnledger")
    assert "FAIL" not in run("turnledger doctor")
    run("--scopes chats:read,chats:write,turns:run,admin")
    assert (shell.home / "operator.token").stat().st_mode & 0o077 == 0
    left.remove(block_with("turnledger serve 2>>"))
    assert "Turnledger is at http://127.0.0.1:" in shell.serve(block_with("turnledger serve 2>>"))
    reply = run("/readyz")
    assert reply.startswith('{"status":"ready"}')
    assert '"id":"demo"' in reply
    run("nginx -p")
    # Without it, the server would take a client of the proxy for one on its own machine.
    assert "X-Forwarded-For" in block_with("nginx -p")
    assert '"id":"demo"' in run("--cacert")
    made = msgspec.json.decode(run('"owner": "user-42"'))
    assert (made["owner"], made["chat_scope"], made["models"]) == ("user-42", "support", ["demo"])
    answer = msgspec.json.decode(run("X-Conversation-Id: my-order"))
    assert answer["choices"][0]["message"]["content"]
    assert "Revoked" in run("turnledger tokens revoke")
    with pytest.raises(AssertionError):
        shell.run(block_with("X-Conversation-Id: my-order"))
    counted = run("prometheus.token")
    assert (shell.home / "prometheus.token").stat().st_mode & 0o077 == 0
    assert 'turnledger_turns_total{outcome="completed"} 1.0' in counted
    run("kill -HUP")
    assert shell.run(block_with("/readyz")).startswith('{"status":"ready"}')
    checked = run("turnledger backup")
    assert "1 conversations" in checked
    assert "no errors" in checked
    assert left == []


SCALING = SHELL.findall(page("scaling"))


@pytest.mark.timeout(300)
def test_scaling_commands_run_three_servers_behind_nginx_on_one_database(shell: Shell) -> None:
    begin, proxy, talk, die = SCALING
    printed = "postgresql://turnledger:PASSWORD@db.example/chats?sslmode=verify-full"
    assert printed in begin
    with PostgresServer.start() as database:
        ready = shell.run(begin.replace(printed, database.create_database()))
        assert "FAIL" not in ready
        assert ready.count('{"status":"ready"}') == 3
        shell.run(proxy)
        answers = answers_in(shell.run(talk))
        assert len({each["id"] for each in answers}) == 6
        again, *_, last = answers_in(left := shell.run(die))
        assert (again["id"], content_of(again)) == (answers[-1]["id"], content_of(answers[-1]))
        assert content_of(last).startswith('You said "eight". I remember 7 messages')
        assert "8 turns, 0 attempts set aside or running: no errors." in left
        shell.close()


def content_of(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def answers_in(printed: str) -> list[Any]:
    """The JSON documents printed one behind the other."""
    decoder, found, place = json.JSONDecoder(), [], 0
    while place < len(printed) and printed[place] == "{":
        document, place = decoder.raw_decode(printed, place)
        found.append(document)
    return found
