"""Shared parts of all commands: fast start, help, dates, and shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import add_turns, run
from turnledger.cli.main import app
from turnledger.cli.options import date_of, expiry_of
from turnledger.errors import InvalidInput

invoke = CliRunner().invoke
SLOW = ("apsw", "httpx2", "msgspec", "prompt_toolkit", "pydantic", "rich", "starlette")
IN_BASH = """
eval "$(turnledger --show-completion)"
COMP_WORDS=(turnledger chats show or) COMP_CWORD=3
_turnledger_completion turnledger
printf '%s,' "${COMPREPLY[@]}"
"""


def test_command_line_import_loads_only_light_modules() -> None:
    code = "import sys, turnledger.cli.main; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert "turnledger.cli.main" in loaded
    ours = [name for name in loaded if name.startswith("turnledger.") and ".cli" not in name]
    assert sorted(ours) == [
        "turnledger.errors",
        "turnledger.model",
        "turnledger.model.text",
        "turnledger.model.text.plain",
    ]
    assert [name for name in SLOW if name in loaded] == []


def test_ctrl_c_before_a_command_runs_exits_silently() -> None:
    code = """
import sys
class Interrupted:
    @property
    def app(self):
        raise KeyboardInterrupt
sys.modules["turnledger.cli.main"] = Interrupted()
from turnledger.cli import main
main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("command", [(), ("chats",), ("tokens",), ("shares",)])
def test_help_describes_each_command(command: tuple[str, ...]) -> None:
    done = invoke(app, [*command, "--help"], prog_name="turnledger")
    assert done.exit_code == 0
    named = done.stdout.split("Commands:\n")[1].splitlines()
    assert len(named) >= 3
    assert all(len(line.split()) > 2 for line in named)
    assert "\x1b" not in done.output


def test_version_option_prints_the_version() -> None:
    assert invoke(app, ["--version"]).stdout.startswith("turnledger 0.")
    assert "Show the version." in invoke(app, ["--help"]).stdout


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs bash")
def test_bash_completes_the_key_of_a_chat(tmp_path: Path) -> None:
    (tmp_path / "turnledger").mkdir()
    for name in ("order", "origin", "weather"):
        add_turns(f"sqlite:///{tmp_path}/turnledger/chats.db", name, ("Hello", "Hi."))
    command = tmp_path / "bin" / "turnledger"
    command.parent.mkdir()
    command.write_text(f'#!/bin/bash\nexec "{sys.executable}" -m turnledger "$@"\n')
    command.chmod(0o755)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", "-c", IN_BASH],
        env={**env, "PATH": f"{command.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("origin,order,", "")


NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90m", NOW + 5_400_000),
        ("12h", NOW + 43_200_000),
        ("30d", NOW + 2_592_000_000),
        ("2w", NOW + 1_209_600_000),
        ("0d", NOW),
        ("1970-01-02", 86_400_000),
        ("1970-01-02T00:00:01", 86_401_000),
        ("1970-01-02T01:00+01:00", 86_400_000),
        ("1970-01-02T00:00:00Z", 86_400_000),
    ],
)
def test_expiry_accepts_spans_and_dates(text: str, time: int) -> None:
    assert expiry_of(text, NOW) == time


@pytest.mark.parametrize(
    "text",
    [
        "",
        "never",
        "12",
        "d",
        "-1d",
        "1.5h",
        "12 h",
        "1y",
        "9999999999d",
        "31.12.2027",
    ],
)
def test_expiry_that_is_malformed_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="30d"):
        expiry_of(text, NOW)


def test_date_is_printed_in_utc() -> None:
    assert date_of(NOW) == "2027-01-15 08:00"


@pytest.mark.parametrize("time", [2**53, -(2**53), 10**30])
def test_date_outside_the_calendar_is_printed_in_milliseconds(time: int) -> None:
    assert date_of(time) == f"{time} ms"


SHELL = '\'; touch owned; $(touch owned) `touch owned` "x" [red] \\ *'


def offered(shell: str, words: str) -> str:
    """The completions for these words, of which the last is incomplete."""
    env = {"_TURNLEDGER_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    env |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": words}
    done = CliRunner().invoke(app, [], prog_name="turnledger", env=env)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_completion_offers_chat_ids_and_keys(url: str) -> None:
    order, weather = (
        add_turns(url, "order", ("Where is it?", "On its way.")),
        add_turns(url, "weather", ("How?", "So.")),
    )
    for name in ("-rf", "a b"):  # a flag, and two words
        add_turns(url, name, ("Hello", "Hi."))
    words = offered("bash", f"turnledger chats show --store {url} ").split()
    assert {order, weather, "order", "weather"} < set(words)
    assert not {"-rf", "a", "b"} & set(words)
    assert offered("bash", f"turnledger chats show --store {url} o").split() == ["order"]
    assert offered("bash", f"turnledger chats delete --store {url} order o").split() == []
    assert (
        f"{order}\tWhere is it?" in offered("fish", f"turnledger chats show --store {url} conv").splitlines()
    )


def test_completion_of_restore_offers_deleted_chats(url: str) -> None:
    gone, _ = add_turns(url, "gone", ("Hello", "Hi.")), add_turns(url, "here", ("Hello", "Hi."))
    assert run("delete", gone, "--store", url).exit_code == 0
    assert offered("bash", f"turnledger chats restore --store {url} ").split() == [gone]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_never_offers_shell_syntax(url: str, shell: str) -> None:
    add_turns(url, SHELL, (SHELL, "Hi."))
    offers = offered(shell, f"turnledger chats show --store {url} ")
    assert "touch" not in offers or shell != "bash"
    ours = "_arguments '*: :((" if shell == "zsh" else ""
    assert offers.startswith(ours)
    assert not {*"`$;\\*[]"} & {*offers.removeprefix(ours)}
    assert offers.count("'") == (2 if shell == "zsh" else 0)
    assert offers.count('"') == (4 if shell == "zsh" else 0)


def test_completion_of_an_unreadable_store_offers_no_chats(url: str) -> None:
    assert offered("bash", f"turnledger chats show --store {url} ").strip() == ""
    assert offered("bash", "turnledger chats show --store nonsense: ").strip() == ""


def test_completion_does_not_change_the_store(url: str, tmp_path: Path) -> None:
    add_turns(url, "order", ("Hello", "Hi."))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert "order" in offered("bash", f"turnledger chats show --store {url} ")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_completion_without_a_store_creates_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    assert offered("bash", "turnledger chats show ").strip() == ""
    assert run("list").stderr.startswith(f"not_a_store: No store at {tmp_path}/turnledger/chats.db yet")
    assert list(tmp_path.iterdir()) == []


def test_completion_offers_commands_and_flags() -> None:
    assert offered("bash", "turnledger chats re").split() == ["rename", "restore"]
    assert "--json" in offered("bash", "turnledger chats list --").split()
