"""The history of what was typed, the completion of commands, and lines that fit."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.utils import get_cwidth

from turnledger.cli.chat.prompt import LARGEST_HISTORY, CommandCompleter, fitted, history_in


def test_what_was_typed_is_kept_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    history = history_in(folder)
    for typed in ("one", "two\nlines", "two\nlines", " "):
        history.append_string(typed)
    assert list(history_in(folder).load_history_strings()) == ["two\nlines", "one"]
    assert stat.S_IMODE((folder / "chat_history").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "chat_history").touch(mode=0o644)
    history_in(tmp_path)
    assert stat.S_IMODE((tmp_path / "chat_history").stat().st_mode) == 0o600


def test_a_long_history_loses_its_older_half(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    history.append_string("the first")
    with (tmp_path / "chat_history").open("a") as file:
        file.write("\n# then\n+" + "x" * LARGEST_HISTORY + "\n")
    history.append_string("the last")
    kept = list(history_in(tmp_path).load_history_strings())
    assert kept == ["the last"]
    assert (tmp_path / "chat_history").stat().st_size < LARGEST_HISTORY
    assert stat.S_IMODE((tmp_path / "chat_history").stat().st_mode) == 0o600


def test_without_a_place_for_it_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert isinstance(history_in(tmp_path / "file"), InMemoryHistory)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/e", ["/edit", "/export"]),
        ("/model ", ["large", "small"]),
        ("/model la", ["large"]),
        ("/edit ", []),
        ("hello /e", []),
        ("/e\nx", []),
    ],
)
def test_commands_and_models_are_completed(typed: str, offered: list[str]) -> None:
    commands = [("edit", "change"), ("export", "write"), ("model", "ask")]
    completer = CommandCompleter(commands, lambda name: ["large", "small"] if name == "model" else [])
    found = completer.get_completions(Document(typed), CompleteEvent())
    assert [each.text for each in found] == offered


@pytest.mark.parametrize("columns", range(14))
def test_a_line_fits(columns: int) -> None:
    line = fitted("日本語 and\nmore", columns)
    assert get_cwidth(line) <= columns
    assert line in ("日本語 and more", "") or line.endswith("…")
    assert fitted("short", 5) == "short"
