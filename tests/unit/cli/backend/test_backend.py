"""Commands select a store or a server by flags and environment, and behave the same on either."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import UNKNOWN, add_turns, edit, meanwhile, use_ledger
from tests.unit.server.processes import started
from turnledger import Ledger
from turnledger.cli.backend.backend import BackendSelector
from turnledger.cli.main import app
from turnledger.client import AsyncChat, Client
from turnledger.model.access.token import is_token_text


@pytest.mark.parametrize(
    ("flags", "variable", "server"),
    [
        ({}, "", None),
        ({}, "http://a", "http://a"),
        ({"server": "http://b"}, "http://a", "http://b"),
        ({"store": "memory:"}, "http://a", None),
        ({"config": Path("my.toml")}, "http://a", None),
    ],
)
def test_server_flag_overrides_the_environment(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, str | Path], variable: str, server: str | None
) -> None:
    monkeypatch.setenv("TURNLEDGER_SERVER", variable)
    given: dict[str, str | Path | None] = {"server": None, "store": None, "config": None, **flags}
    assert BackendSelector(**given).server == server  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--server", "http://127.0.0.1:1", "--store", "memory:"),
            "invalid_input: --server excludes --store",
        ),
        (
            ("--server", "http://127.0.0.1:1", "--owner", "ann"),
            "invalid_input: --owner works with --store only.",
        ),
        (("--server", "localhost:8383"), "invalid_input: --server or TURNLEDGER_SERVER"),
        (("--server", "http://u:secret@h"), "invalid_input: --server or TURNLEDGER_SERVER"),
    ],
)
def test_invalid_server_option_is_reported_on_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run("chats", "list", *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(message)
    assert "secret" not in done.output


async def hide_some(ledger: Ledger) -> None:
    """A call is answered in the next turn; its result is hidden, and so is a message."""
    chat = await ledger.conversation(conversation_key="hidden")
    async with chat.turn("Look") as turn:
        await turn.add({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"})
    async with chat.turn([{"type": "function_call_output", "call_id": "c", "output": "a secret"}]) as result:
        result.emit("Seen.")
    async with chat.turn("Psst") as hidden_turn:
        hidden_turn.emit("What?")
    await chat.flag(result.id, 0, to_user=False)
    await chat.flag(hidden_turn.id, 0, to_user=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with four chats."""
    url = f"sqlite:///{tmp_path_factory.mktemp('served')}/mine.db"
    add_turns(url, "weather", ("How is the weather in Rome?", "It rains in Rome."))
    add_turns(url, "order", ("Where is my order?", "On its way."), ("Since when?", "\x1b[2JSince yesterday."))
    use_ledger(url, hide_some)
    add_turns(url, "long", *((f"question {number}", "Yes.") for number in range(60)))
    return url


@pytest.fixture(scope="module")
def server(store: str) -> Iterator[str]:
    """A server of that store."""
    with started("turnledger", "serve", "--port", "0", "--store", store, "--log-level", "error") as running:
        yield running.url


def run(*arguments: str, input: bytes | None = None, **env: str) -> Result:
    return CliRunner().invoke(app, arguments, input=input, env=env)


def same(store: str, server: str, *arguments: str) -> Result:
    """Run a command on the store and on its server; both must print the same. Return the output."""
    here, there = run(*arguments, "--store", store), run(*arguments, "--server", server)
    assert (there.exit_code, there.stdout, there.stderr) == (here.exit_code, here.stdout, here.stderr)
    return there


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("list", "--json"),
        ("list", "--pinned"),
        ("list", "--tag", "none", "--scope", "none"),
        ("show", "order"),
        ("show", "hidden"),
        ("show", "hidden", "--json"),
        ("show", "hidden", "--turns", "2"),
        ("show", "long", "--turns", "55"),
        ("show", "long", "--turns", "55", "--json"),
        ("show", "nobody"),
        ("context", "order"),
        ("context", "hidden", "--json"),
        ("context", "long", "--budget", "100"),
        ("context", "long", "--last", "2", "--budget", "3"),
        ("context", "nobody"),
        ("show", UNKNOWN),
        ("show", "conv_x"),
        ("search", "rains", "rome"),
        ("search", "question", "--json"),
        ("search", "nothing"),
        ("export", "order"),
        ("export", "order", "weather", "--format", "markdown"),
        ("export", "--all"),
        ("delete", "nobody", UNKNOWN, "conv_x"),
    ],
)
def test_server_output_equals_store_output(store: str, server: str, arguments: tuple[str, ...]) -> None:
    assert same(store, server, "chats", *arguments).output


def test_show_from_a_server_omits_hidden_items(server: str) -> None:
    shown = run("chats", "show", "hidden", "--server", server).stdout
    assert ("Look" in shown, "Seen." in shown, "What?" in shown) == (True, True, True)
    assert ("a secret" in shown, "look(" in shown, "Psst" in shown) == (False, False, False)


def test_server_show_stays_on_one_branch(store: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_turns(store, "turned", *((f"question {number}", "Yes.") for number in range(5)))
    meanwhile(monkeypatch, AsyncChat, "read", lambda: edit(store, "turned", 2))
    monkeypatch.setattr("turnledger.cli.backend.server.PAGE", 2)
    turns = json.loads(run("chats", "show", "turned", "--json", "--server", server).stdout)["turns"]
    assert [turn["parent"] for turn in turns[1:]] == [turn["id"] for turn in turns[:-1]]
    assert turns[-1]["input"][0]["content"][0]["text"] == "Otherwise"
    assert run("chats", "delete", "turned", "--purge", "--server", server).exit_code == 0


def test_list_from_a_server_continues_at_the_cursor(store: str, server: str) -> None:
    first = same(store, server, "chats", "list", "--limit", "2")
    cursor = first.stderr.split("--cursor ")[1].strip()
    rest = same(store, server, "chats", "list", "--limit", "2", "--cursor", cursor)
    assert len(rest.stdout.splitlines()) == 3
    output = json.loads(run("chats", "search", "question", "rome", "--json", "--server", server).stdout)
    assert output["next"] is None


def test_chat_is_created_on_a_server(store: str, server: str) -> None:
    flags = ("--internal", "--reset", "idle 60", "--expires-after", "1h")
    done = run("chats", "create", "--key", "made", *flags, "--server", server)
    assert done.exit_code == 0, done.output
    shown = json.loads(same(store, server, "chats", "show", "made", "--json").stdout)
    assert (shown["id"], shown["internal"]) == (done.stdout.strip(), True)
    assert (shown["reset"], shown["expires_after"]) == ("idle 60", 3600)


def test_items_are_hidden_on_a_server(store: str, server: str) -> None:
    add_turns(store, "flagged", ("Hello", "Hi."))
    [turn] = json.loads(run("chats", "show", "flagged", "--json", "--store", store).stdout)["turns"]
    done = run("chats", "flag", "flagged", turn["id"], "--item", "1", "--not-to-model", "--server", server)
    assert done.stdout == "Hidden from the model: 1.\nHidden from the user: nothing.\n", done.output
    [shown] = json.loads(same(store, server, "chats", "show", "flagged", "--json").stdout)["turns"]
    assert shown["hidden_from_model"] == [1]


def test_background_turns_are_listed_on_a_store_and_on_a_server_that_runs_none(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"  # another server would run them

    async def enqueue(ledger: Ledger) -> list[str]:
        return [str(await ledger.enqueue("Hello", details={"model": model})) for model in ("a", "b")]

    add_turns(store, "mine", ("Hello", "Hi."))
    assert run("chats", "jobs", "--store", store).stderr == "No background turns wait or run.\n"
    first, second = use_ledger(store, enqueue)
    settings = tmp_path / "off.toml"
    settings.write_text(f'[server]\nstore = "{store}"\n[server.limits]\nbackground_turns = 0\n')
    with started("turnledger", "serve", "--port", "0", "--config", str(settings)) as running:
        server = running.url
        lines = same(store, server, "chats", "jobs").stdout.splitlines()
        assert [line.split()[2:4] for line in lines[1:]] == [["queued", first], ["queued", second]]
        page = same(store, server, "chats", "jobs", "--limit", "1")
        assert page.stderr == f"More: --cursor {first}\n"
        rest = same(store, server, "chats", "jobs", "--cursor", first, "--json").stdout
        [job] = json.loads(rest)["data"]
        assert (job["id"], job["state"], job["details"]) == (second, "queued", {"model": "b"})


def test_queued_turns_are_stopped_by_id_and_by_key_on_a_store_and_on_a_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/stop.db"  # another server would run them

    async def enqueue(ledger: Ledger) -> list[str]:
        return [str(await ledger.enqueue("Hello", idempotency_key=f"k{n}")) for n in range(4)]

    def jobs() -> list[str]:
        page = run("chats", "jobs", "--json", "--store", store)
        return [job["id"] for job in json.loads(page.stdout)["data"]]

    add_turns(store, "mine", ("Hello", "Hi."))
    first, _, third, _ = use_ledger(store, enqueue)
    settings = tmp_path / "off.toml"
    settings.write_text(f'[server]\nstore = "{store}"\n[server.limits]\nbackground_turns = 0\n')
    with started("turnledger", "serve", "--port", "0", "--config", str(settings)) as running:
        on_store, on_server = ("--store", store), ("--server", running.url)
        for at, turn, key in ((on_store, first, "k1"), (on_server, third, "k3")):
            done = run("chats", "stop", "--turn", turn, *at)
            assert done.stdout == f"{turn} is discarded.\n", done.output
            assert (
                json.loads(run("chats", "stop", "--key", key, "--json", *at).stdout)["state"] == "discarded"
            )
        assert jobs() == []
        nothing = "No such turn waits or runs.\n"
        missing = first[:-1] + ("1" if first[-1] == "0" else "0")
        for arguments, code, message in (
            (("mine",), 0, nothing),
            (("--key", "unknown"), 0, nothing),
            (("--turn", missing), 2, "turn_not_found: "),
            (("mine", "--policy", "nothing"), 2, "invalid_input: "),
            (("mine", "--key", "k1"), 2, "invalid_input: Give exactly one: "),
            ((), 2, "invalid_input: Give exactly one: "),
        ):
            done = same(store, running.url, "chats", "stop", *arguments)
            assert (done.exit_code, done.stderr[: len(message)]) == (code, message)


def test_running_turn_of_a_chat_is_stopped_from_a_store_and_from_a_server(store: str, server: str) -> None:
    with Client(server) as client:
        for at in (("--store", store), ("--server", server)):
            chat = client.chats.open(conversation_key="stalled")
            turn = chat.enqueue("/stall after 1")
            next(iter(chat.events(turn)))  # it has begun
            done = run("chats", "stop", "stalled", "--policy", "discard", *at)
            assert done.stdout == f"{turn} is discarded.\n", done.output
    assert run("chats", "delete", "stalled", "--purge", "--server", server).exit_code == 0


def test_chats_are_renamed_pinned_archived_and_deleted_on_a_server(store: str, server: str) -> None:
    id = add_turns(store, "mine", ("Hello", "Hi."))
    at = ("--server", server)
    assert run("chats", "rename", "mine", "Ours", *at).stdout == f"Renamed {id} to 'Ours'.\n"
    assert run("chats", "pin", "mine", *at).stdout == f"{id} is pinned.\n"
    assert json.loads(run("chats", "archive", id, "--json", *at).stdout)["archived"] is True
    shown = json.loads(same(store, server, "chats", "show", id, "--json").stdout)
    assert (shown["title"], shown["pinned"], shown["archived"]) == ("Ours", True, True)
    assert run("chats", "delete", "mine", *at).stdout.startswith(f"Deleted {id}. It can be restored until")
    add_turns(store, "mine", ("Hello", "Hi."))
    assert "Another chat now has" in run("chats", "restore", id, *at).stdout
    assert run("chats", "delete", id, "mine", "--purge", *at).stdout.count("permanently") == 2
    lost = same(store, server, "chats", "restore", id)
    assert (lost.exit_code, lost.stdout) == (2, "")


def test_append_adds_one_turn_per_key_to_a_store_and_on_a_server(store: str, server: str) -> None:
    id = add_turns(store, "mail", ("Hello", "Hi."))
    command = ("chats", "append", "mail", "Where is it?", "--answer", "In Lyon.", "--idempotency-key", "m-1")
    first = run(*command, "--server", server)
    assert first.stdout.endswith(" as turn 2.\n"), first.output
    assert run(*command, "--store", store).stdout == first.stdout
    shown = same(store, server, "chats", "show", id).stdout
    assert (shown.count("Where is it?"), shown.count("In Lyon.")) == (1, 1)
    missing = same(store, server, "chats", "append", "nobody", "Hello")
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert run("chats", "delete", "mail", "--purge", "--server", server).exit_code == 0


ITEMS = b"""{"role": "user", "content": "Where is it?"}
{"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}

{"type": "function_call_output", "call_id": "c1", "output": "in Lyon"}
"""


def test_append_that_is_no_interaction_postpones_no_expiry(store: str, server: str) -> None:
    add_turns(store, "unused", ("Hello", "Hi."))

    def used_at() -> int:
        return int(
            json.loads(run("chats", "show", "unused", "--json", "--store", store).stdout)["touched_at"]
        )

    before = used_at()
    for at in (("--store", store), ("--server", server)):
        assert run("chats", "append", "unused", "News", "--no-interaction", *at).exit_code == 0
        assert used_at() == before
    assert run("chats", "append", "unused", "News", "--store", store).exit_code == 0
    assert used_at() > before
    assert run("chats", "delete", "unused", "--purge", "--server", server).exit_code == 0


def test_append_reads_items_of_one_turn_from_standard_input(store: str, server: str) -> None:
    id = add_turns(store, "items", ("Hello", "Hi."))
    for number, at in enumerate((("--store", store), ("--server", server)), 2):
        done = run("chats", "append", "items", *at, input=ITEMS)
        assert done.stdout.endswith(f" as turn {number}.\n"), done.output
    assert run("chats", "append", "items", "--answer", "In Lyon.", "--store", store).exit_code == 0
    turns = json.loads(same(store, server, "chats", "show", id, "--json").stdout)["turns"][1:]
    assert [len(turn["input"]) for turn in turns] == [1, 1, 0]
    assert [[item["type"] for item in turn["output"]] for turn in turns] == [
        *[["function_call", "function_call_output"]] * 2,
        ["message"],
    ]
    assert run("chats", "delete", "items", "--purge", "--server", server).exit_code == 0


@pytest.mark.parametrize(
    ("input", "message"),
    [
        (b"", "no_new_input: There is nothing to append."),
        (
            b'{"role": "user", "content": "a"}\n\n[]\n',
            "invalid_input: Line 3 of standard input is not a JSON",
        ),
        (b"{\n", "invalid_input: Line 1 of standard input is not a JSON object."),
        (b'{"content": "' + b"x" * 20 + b'"}', "invalid_input: Standard input has more than 32 bytes."),
        (ITEMS.splitlines()[-1], "malformed_items: "),
    ],
)
def test_append_refuses_what_is_not_items(
    store: str, monkeypatch: pytest.MonkeyPatch, input: bytes, message: str
) -> None:
    if "32 bytes" in message:
        monkeypatch.setattr("turnledger.cli.commands.chats.ITEMS_BYTES", 32)
    done = run("chats", "append", "order", "--store", store, input=input)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(message)


def test_context_shows_the_last_turns_and_their_tokens(store: str) -> None:
    done = run("chats", "context", "long", "--budget", "100", "--store", store)
    first, *messages = done.stdout.splitlines()
    counted = re.fullmatch(r"(\d+) tokens, (\d+) left of 100, 60 turns in the history", first)
    assert counted is not None, first
    assert int(counted[1]) + int(counted[2]) == 100
    assert messages[-2:] == ["  user: question 59", "  assistant: Yes."]
    assert 2 <= len(messages) < 10
    assert len(run("chats", "context", "long", "--store", store).stdout.splitlines()) == 121
    shown = json.loads(run("chats", "context", "long", "--last", "1", "--json", "--store", store).stdout)
    assert (shown["turns"], len(shown["items"]), shown["budget"]) == (60, 2, None)


def test_import_into_a_server_happens_once_and_keeps_bytes(server: str, url: str, tmp_path: Path) -> None:
    id, file = add_turns(url, "moved", ("Hello", "Hi.")), tmp_path / "moved.jsonl"
    assert run("chats", "export", "--all", "--output", str(file), "--store", url).exit_code == 0
    done = run("chats", "import", str(file), "--server", server)
    assert (done.stdout, done.stderr) == (f"line 1: imported {id} (1 turns)\n", "1 imported\n")
    again = run("chats", "import", "-", "--json", "--server", server, input=file.read_bytes())
    assert json.loads(again.stdout)["did"] == "unchanged"
    assert run("chats", "export", "moved", "--server", server).stdout_bytes == file.read_bytes()
    wrong = run("chats", "import", "-", "--server", server, input=b"nothing\n")
    assert (wrong.exit_code, wrong.stderr) == (2, "1 refused\n")


def test_unreachable_server_is_reported_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnledger.cli.backend import server as server_module

    monkeypatch.setattr(server_module, "FEW_RETRIES", server_module.NO_RETRIES)
    done = run("chats", "list", "--server", "http://127.0.0.1:1")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("server_unavailable: ")
    assert done.stderr.endswith(" The request went to http://127.0.0.1:1.\n")


class CutOff(BaseHTTPRequestHandler):
    """A server that ends in the middle of a file."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"type":"chat"}\n{"type":"tu')

    def log_message(self, *_: object) -> None: ...


def test_export_cut_off_by_the_server_leaves_no_file(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), CutOff) as cut_off:
        Thread(target=cut_off.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{cut_off.server_port}"
        done = run("chats", "export", "--all", "--output", f"{tmp_path}/all.jsonl", "--server", url)
        cut_off.shutdown()
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("server_unavailable: The export stopped early after 1 lines")
    assert list(tmp_path.iterdir()) == []


def test_completion_reads_chats_from_a_server(server: str) -> None:
    env = {"_TURNLEDGER_COMPLETE": "complete_bash", "COMP_CWORD": "3", "TURNLEDGER_SERVER": server}
    done = CliRunner().invoke(
        app, [], prog_name="turnledger", env={**env, "COMP_WORDS": "turnledger chats show wea"}
    )
    assert done.stdout.split() == ["weather"]
    gone = {**env, "COMP_WORDS": "turnledger chats show wea", "TURNLEDGER_SERVER": "http://127.0.0.1:1"}
    done = CliRunner().invoke(app, [], prog_name="turnledger", env=gone)
    assert (done.exit_code, done.output.strip()) == (0, "")


def test_doctor_recognizes_a_running_server_without_disturbing_it(store: str, server: str) -> None:
    done = run("doctor", "--store", store, "--port", server.rpartition(":")[2], "--json")
    findings = {each["subject"]: each["told"] for each in json.loads(done.stdout)["findings"]}
    assert findings["processes"] == "1 process using the store"
    assert "a server already runs" in findings["port"]
    assert "Where is my order?" in run("chats", "list", "--server", server).stdout


def test_tokens_commands_work_on_a_server(url: str) -> None:
    scopes = "chats:read,chats:write,turns:run,admin"
    admin = run("tokens", "create", "--scopes", scopes, "--store", url).stdout.strip()
    with started("turnledger", "serve", "--port", "0", "--store", url, "--log-level", "error") as running:
        _use_tokens(running.url, url, {"TURNLEDGER_API_KEY": admin})


def _use_shares(server: str, store: str, env: dict[str, str]) -> None:
    at = ("--server", server)
    made = run("shares", "create", "--scope", "shop", "--max-uses", "3", "--expires", "12h", *at, **env)
    assert made.stdout.startswith(f"{server}/share#tls_"), made.output
    listed = json.loads(run("shares", "list", "--json", *at, **env).stdout)
    assert listed == json.loads(run("shares", "list", "--json", "--store", store).stdout)
    [share] = listed["data"]
    assert (share["scope"], share["max_uses"], share["visitor_expires_in"]) == ("shop", 3, 86400)
    assert run("shares", "revoke", share["id"], *at, **env).stdout == f"Revoked {share['id']}.\n"
    assert json.loads(run("shares", "list", "--json", "--store", store).stdout) == {"data": []}


def _use_tokens(server: str, store: str, env: dict[str, str]) -> None:
    at = ("--server", server)
    refused = run("chats", "list", *at)
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert refused.stderr.startswith("missing_token: ")
    assert "TURNLEDGER_API_KEY" in refused.stderr
    made = run("tokens", "create", "--owner", "ann", "--name", "phone", "--expires", "12h", *at, **env)
    text = made.stdout.strip()
    assert is_token_text(text)
    assert "Created tok_" in made.stderr
    listed = run("tokens", "list", "--json", *at, **env)
    assert json.loads(listed.stdout)["data"][0]["name"] == "phone"
    here = json.loads(run("tokens", "list", "--json", "--store", store).stdout)
    assert {**json.loads(listed.stdout)["data"][0], "used_at": None} == {**here["data"][0], "used_at": None}
    ended = run("tokens", "revoke", text, *at, **env)
    assert (ended.exit_code, ended.stdout) == (0, f"Revoked {here['data'][0]['id']}.\n")
    again = run("tokens", "revoke", text, *at, **env)
    assert again.stderr == "token_not_found: a text: No valid token has this text. Copy it completely.\n"
    _use_shares(server, store, env)
    too_wide = run("tokens", "create", *at, TURNLEDGER_API_KEY="nonsense")
    assert (too_wide.exit_code, too_wide.stdout) == (2, "")
