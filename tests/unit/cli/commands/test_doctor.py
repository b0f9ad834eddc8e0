"""`turnledger doctor`: output and exit codes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnledger import Ledger
from turnledger.cli.commands.doctor import summary_of, to_text
from turnledger.cli.main import app
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.server import doctor
from turnledger.server.doctor import fail, ok, warn

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def enough_open_files(own_folders: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "allowed_files", lambda wanted: wanted)  # as few as there may be here


def test_doctor_on_a_fresh_machine_finds_no_problem() -> None:
    done = run(app, ["doctor", "--port", "0"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("No problems found.\n")
    assert all(line.startswith("OK  ") for line in done.stdout.splitlines()[:-1])


def test_doctor_prints_a_failure_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "chats.db").write_text("this is not a database" * 100)
    done = run(app, ["doctor", "--port", "0", "--store", f"sqlite:///{tmp_path}/chats.db"])
    assert done.exit_code == 1
    assert f"FAIL  store     {tmp_path}/chats.db is not a database." in done.stdout
    assert done.stdout.endswith("1 failure.\n")


def test_doctor_names_the_line_of_a_settings_error(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text("[server]\nprot = 1\n")
    done = run(app, ["doctor", "--config", str(config)])
    assert done.exit_code == 1
    assert f"{config}, line 2: `prot`" in done.stdout


def test_doctor_prints_json_without_the_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    flags = ["--upstream", "http://127.0.0.1:9/v1", "--api-key-env", "SOME_KEY", "--port", "0"]
    done = run(app, ["doctor", "--json", *flags])
    output = json.loads(done.stdout)
    assert (done.exit_code, output["ok"]) == (1, False)
    [upstream] = [each for each in output["findings"] if each["subject"] == "upstream 127.0.0.1:9"]
    assert upstream["level"] == "FAIL"
    assert "sk-very-secret" not in done.stdout


def test_doctor_lines_are_aligned_and_sanitized() -> None:
    found = [ok("a", "fine"), warn("longer", "odd \x1b[31m", "Look.")]
    assert to_text(found).splitlines() == [
        "OK    a       fine",
        "WARN  longer  odd \\x1b[31m",
        "              Look.",
        "1 warning.",
    ]
    assert summary_of([fail("a", "b", "c")] * 2 + found) == "2 failures and 1 warning."


async def test_doctor_on_a_public_address_requires_a_token(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/chats.db"
    flags = ["doctor", "--host", "0.0.0.0", "--port", "0", "--store", store, "--json"]
    async with await Ledger.open(store) as ledger:
        output = await asyncio.to_thread(access, flags)
        assert (output["level"], "turnledger tokens create" in output["remedy"]) == ("FAIL", True)
        await Host(ledger).tokens.create(owner="somebody", scopes={TokenScope.TURNS_RUN})
        output = await asyncio.to_thread(access, flags)
        assert (output["level"], output["told"]) == ("OK", "0.0.0.0:0 requires a token")


def access(flags: list[str]) -> dict[str, str]:
    [found] = [each for each in json.loads(run(app, flags).stdout)["findings"] if each["subject"] == "access"]
    return dict(found)
