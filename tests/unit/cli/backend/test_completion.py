"""What a shell is offered when somebody presses Tab: nothing that it would take for a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import run, say
from turnledger.cli.main import app

SHELL = '\'; touch owned; $(touch owned) `touch owned` "x" [red] \\ *'


def offered(shell: str, words: str) -> str:
    """What the shell is told for these words, of which the last is not complete."""
    env = {"_TURNLEDGER_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    env |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": words}
    done = CliRunner().invoke(app, [], prog_name="turnledger", env=env)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_ids_and_names_of_chats_are_offered(url: str) -> None:
    order, weather = say(url, "order", ("Where is it?", "On its way.")), say(url, "weather", ("How?", "So."))
    for name in ("-rf", "a b"):  # a flag, and two words
        say(url, name, ("Hello", "Hi."))
    words = offered("bash", f"turnledger chats show --store {url} ").split()
    assert {order, weather, "order", "weather"} < set(words)
    assert not {"-rf", "a", "b"} & set(words)
    assert offered("bash", f"turnledger chats show --store {url} o").split() == ["order"]
    assert offered("bash", f"turnledger chats delete --store {url} order o").split() == []
    assert (
        f"{order}\tWhere is it?" in offered("fish", f"turnledger chats show --store {url} conv").splitlines()
    )


def test_what_is_deleted_is_offered_to_be_restored(url: str) -> None:
    gone, _ = say(url, "gone", ("Hello", "Hi.")), say(url, "here", ("Hello", "Hi."))
    assert run("delete", gone, "--store", url).exit_code == 0
    assert offered("bash", f"turnledger chats restore --store {url} ").split() == [gone]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_no_title_and_no_name_is_a_command(url: str, shell: str) -> None:
    say(url, SHELL, (SHELL, "Hi."))
    told = offered(shell, f"turnledger chats show --store {url} ")
    assert "touch" not in told or shell != "bash"
    ours = "_arguments '*: :((" if shell == "zsh" else ""
    assert told.startswith(ours)
    assert not {*"`$;\\*[]"} & {*told.removeprefix(ours)}
    assert told.count("'") == (2 if shell == "zsh" else 0)
    assert told.count('"') == (4 if shell == "zsh" else 0)


def test_a_store_that_cannot_be_read_is_no_reason_to_fail(url: str) -> None:
    assert offered("bash", f"turnledger chats show --store {url} ").strip() == ""
    assert offered("bash", "turnledger chats show --store nonsense: ").strip() == ""


def test_a_look_takes_no_part_in_the_store(url: str, tmp_path: Path) -> None:
    say(url, "order", ("Hello", "Hi."))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert "order" in offered("bash", f"turnledger chats show --store {url} ")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_look_where_there_is_nothing_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    assert offered("bash", "turnledger chats show ").strip() == ""
    assert run("list").stderr.startswith(
        f"not_a_store: There is no store at {tmp_path}/turnledger/chats.db yet"
    )
    assert list(tmp_path.iterdir()) == []


def test_commands_and_flags_are_offered() -> None:
    assert offered("bash", "turnledger chats re").split() == ["rename", "restore"]
    assert "--json" in offered("bash", "turnledger chats list --").split()
