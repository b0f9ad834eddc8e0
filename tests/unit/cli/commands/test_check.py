"""`turnledger check` and `backup`: output, exit codes, and no writes by a check."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import use_ledger
from tests.unit.engine.populated_store import populate
from turnledger.cli import NEEDS_TYPER
from turnledger.cli.commands.check import line_of, summary_of
from turnledger.cli.main import app
from turnledger.engine.check.check import Report
from turnledger.model.check import Finding, Rule
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.connections import prepare

run = CliRunner().invoke


@pytest.fixture
def lived_in(tmp_path: Path) -> Path:
    """A file in which everything has happened."""
    path = tmp_path / "chats.db"

    async def live() -> None:
        await (await populate(await SqliteStore.open(path))).ledger.close()

    asyncio.run(live())
    return path


def change(path: Path, statement: str, *bindings: object) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, bindings)
    connection.close()


@pytest.mark.parametrize("arguments", [["--store"], []])
def test_check_reports_a_sound_store_in_one_line(lived_in: Path, arguments: list[str]) -> None:
    done = run(app, ["check", *arguments, f"sqlite:///{lived_in}"])
    assert done.exit_code == 0, done.output
    assert done.output.count("\n") == 1
    assert done.output.startswith("8 conversations, 12 branches, ")
    assert done.output.endswith("no errors.\n")


def test_check_reports_damage_line_by_line_in_printable_text(lived_in: Path) -> None:
    change(
        lived_in,
        "UPDATE claim SET conversation = randomblob(16), idempotency_key = ? WHERE idempotency_key = 'two'",
        "\x1b[2J\nx",
    )
    change(lived_in, "UPDATE branch SET length = length + 1 WHERE ref = 1")
    done = run(app, ["check", f"sqlite:///{lived_in}"])
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == ["chain", "key"]
    assert "Turn 4 is missing." in lines[0]
    assert "owner 'ann' conv_" in lines[0]
    assert "\x1b" not in done.output
    assert r"The idempotency_key '\x1b[2J\nx' refers to" in lines[1]
    assert lines[-1].endswith("2 errors.")


def test_check_reports_damage_as_json(lived_in: Path) -> None:
    change(lived_in, "UPDATE branch SET length = length + 1 WHERE ref = 1")
    done = run(app, ["check", f"sqlite:///{lived_in}", "--json"])
    output = json.loads(done.output)
    assert (done.exit_code, output["ok"], output["is_whole"], output["conversations"]) == (1, False, True, 8)
    assert [(found["rule"], found["is_damage"], found["owner"]) for found in output["findings"]] == [
        ("chain", True, "ann")
    ]


def test_check_counts_turns_without_a_checksum_as_sound(lived_in: Path) -> None:
    change(lived_in, "UPDATE turn SET checksum = NULL WHERE rowid IN (SELECT rowid FROM turn LIMIT 3)")
    done = run(app, ["check", f"sqlite:///{lived_in}"])
    assert done.exit_code == 0
    assert done.output.endswith("no errors; 3 turns from older versions have no checksum.\n")
    output = json.loads(run(app, ["check", f"sqlite:///{lived_in}", "--json"]).output)
    assert (output["ok"], output["turns_without_checksum"]) == (True, 3)


def test_check_stops_at_the_limit_of_findings(lived_in: Path) -> None:
    change(lived_in, "UPDATE branch SET length = length + 1")
    done = run(app, ["check", f"sqlite:///{lived_in}", "--limit", "2"])
    assert done.exit_code == 1
    assert done.output.endswith(": 2 errors, check incomplete.\n")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///{}/none.db", "not_a_store: No store at"),
        ("sqlite:///{}/no/folder.db", "not_a_store: The folder"),
        ("sqlite:///{}/", "not_a_store: "),
        ("memory:", "not_a_store: Other processes cannot open a memory store"),
        ("mysql://u:secret@h/d", "not_a_store: This URL does not name a store"),
    ],
)
def test_check_of_an_unopenable_store_prints_one_error(tmp_path: Path, url: str, message: str) -> None:
    done = run(app, ["check", "--store", url.format(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(message)
    assert "secret" not in done.output
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_check_without_a_store_uses_that_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = run(app, ["check"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"No store at {tmp_path}/turnledger/chats.db" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "served.toml").write_text(f'[server]\nstore = "sqlite:///{tmp_path}/served.db"\n')
    use_ledger(f"sqlite:///{tmp_path}/served.db", lambda ledger: ledger.conversation(conversation_key="k"))
    done = run(app, ["check", "--config", "served.toml"])
    assert (done.exit_code, done.stdout[:16]) == (0, "1 conversations,")
    assert run(app, ["check", "--store", ""]).stderr.startswith("not_a_store: This URL does not name a store")


def test_check_with_two_stores_is_refused() -> None:
    done = run(app, ["check", "sqlite:///a.db", "--store", "sqlite:///b.db"])
    assert done.exit_code == 2
    assert "give the store once" in done.stderr


def test_check_of_a_store_in_use_passes() -> None:
    note = Finding(rule=Rule.NOT_AT_REST, message="It runs.")
    report = Report(findings=[note], conversations=1, branches=1, turns=2, attempts=1, is_whole=True)
    assert summary_of(report).endswith(": no errors; the store is not at rest.")
    assert line_of(note) == "not_at_rest: It runs."


def test_command_without_typer_prints_how_to_install_it() -> None:
    code = "import sys; sys.modules['typer'] = None; from turnledger.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == NEEDS_TYPER
    assert "turnledger[cli]" in NEEDS_TYPER


def test_backup_prints_the_copy_and_how_to_check_it(tmp_path: Path) -> None:
    prepare(str(tmp_path / "chats.db"))
    copy = tmp_path / "copy.db"
    done = run(app, ["backup", str(copy), "--store", f"sqlite:///{tmp_path / 'chats.db'}"])
    assert done.exit_code == 0, done.output
    assert (
        done.output
        == f"{copy}: {copy.stat().st_size} bytes. To check it: turnledger check sqlite:///{copy}\n"
    )
    assert run(app, ["check", f"sqlite:///{copy}"]).exit_code == 0


def test_backup_onto_an_existing_file_exits_with_2(tmp_path: Path) -> None:
    prepare(str(tmp_path / "chats.db"))
    (tmp_path / "copy.db").write_text("mine")
    done = run(app, ["backup", str(tmp_path / "copy.db"), "--store", f"sqlite:///{tmp_path / 'chats.db'}"])
    assert (done.exit_code, "already exists" in done.output) == (2, True)
    assert (tmp_path / "copy.db").read_text() == "mine"
