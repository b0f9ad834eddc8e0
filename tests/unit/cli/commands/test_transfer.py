"""`turnledger chats export` and `import`: files, output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import add_turns
from turnledger.cli.commands.transfer import Format, export, import_chats
from turnledger.cli.main import app
from turnledger.errors import InvalidInput


def run(*arguments: str, input: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["chats", *arguments], input=input)


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    return f"sqlite:///{tmp_path}/mine.db", f"sqlite:///{tmp_path}/other.db"


def test_export_of_all_chats_imports_into_an_identical_store(urls: tuple[str, str], tmp_path: Path) -> None:
    here, there = urls
    ids = [add_turns(here, name, ("Hello", "Hi.")) for name in ("a", "b")]
    file = tmp_path / "chats.jsonl"
    done = run("export", "--all", "--output", str(file), "--store", here)
    assert done.exit_code == 0, done.output
    assert [path.name for path in tmp_path.glob("*.part")] == []
    done = run("import", str(file), "--store", there)
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith(f"Created the store {there}.")
    assert done.stdout.splitlines() == [
        f"line 1: imported {ids[0]} (1 turns)",
        f"line 3: imported {ids[1]} (1 turns)",
    ]
    again = run("export", "--all", "--store", there)
    assert again.stdout_bytes == file.read_bytes()
    done = run("import", "-", "--store", there, input=file.read_bytes())
    assert done.exit_code == 0, done.output
    assert done.stderr == "2 unchanged\n"


def test_export_of_one_chat_by_key_as_json_lines_or_markdown(urls: tuple[str, str]) -> None:
    add_turns(urls[0], "a", ("Hello <b>", "Hi."))
    lines = run("export", "a", "--store", urls[0]).stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["chat", "turn"]
    output = run("export", "a", "--format", "markdown", "--store", urls[0]).stdout
    assert "## User\n\n```text\nHello <b>\n```" in output


def test_import_reports_refused_lines_and_exits_with_2(urls: tuple[str, str]) -> None:
    add_turns(urls[0], "a", ("Hello", "Hi."))
    done = run("import", "-", "--store", urls[0], input=b'{"type": "odd", "schema_version": 1}\nnothing')
    assert done.exit_code == 2
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["line 1", "line 2"]
    done = run("import", "-", "--json", "--store", urls[0], input=b"nothing")
    assert json.loads(done.stdout)["did"] == "refused"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export"], "Give the chats"),
        (["export", "a", "--all"], "Give the chats"),
        (["export", "--all", "--format", "markdown"], "markdown"),
        (["export", "missing"], "conversation_not_found"),
        (["import", "/nowhere/at/all"], "cannot be read"),
        (["export", "--all", "--output", "/nowhere/at/all"], "cannot be written"),
    ],
)
def test_invalid_transfer_is_reported_on_one_line(
    urls: tuple[str, str], arguments: list[str], words: str
) -> None:
    add_turns(urls[0], "a", ("Hello", "Hi."))
    done = run(*arguments, "--store", urls[0])
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_export_to_a_dash_writes_to_stdout(
    urls: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add_turns(urls[0], "a", ("Hello", "Hi."))
    output = run("export", "a", "--store", urls[0]).stdout
    assert run("export", "a", "--output", "-", "--store", urls[0]).stdout == output
    assert not Path("-").exists()


def test_closed_standard_streams_raise_no_internal_error(
    urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_turns(urls[0], "a", ("Hello", "Hi."))
    monkeypatch.setattr("sys.stdout", None)
    export(chats=["a"], format=Format.JSONL, store=urls[0])
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InvalidInput, match="Give a file"):
        import_chats(file="-", store=urls[0])
