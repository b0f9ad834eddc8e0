"""`turnledger copy`: output, exit codes, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.cli.commands.test_check import lived_in
from turnledger import Ledger
from turnledger.cli.main import app

run = CliRunner().invoke
__all__ = ["lived_in"]
SUMMARY = (
    "8 conversations, 12 branches, 18 turns, 3 attempts set aside or running, 4 idempotency keys, 0 tokens, "
    "0 share links: "
)


def test_copy_reports_its_steps_and_its_result(lived_in: Path, tmp_path: Path) -> None:
    urls = f"sqlite:///{lived_in}", f"sqlite:///{tmp_path}/copy.db"
    done = run(app, ["copy", *urls])
    assert (done.exit_code, done.stdout) == (
        0,
        f"{SUMMARY}copied. Both stores are equal, record by record.\n",
    )
    lines = done.stderr.splitlines()
    assert lines[0] == "Copying: 0 of 57 records"
    assert "Copying: 44 of 57 records, turn complete" in lines
    assert lines[-1] == "Comparing: 57 of 57 records, clock complete"
    again = run(app, ["copy", *urls])
    assert again.exit_code == 0
    assert again.stdout.startswith(f"{SUMMARY}was complete, nothing changed.")
    assert run(app, ["check", urls[1]]).exit_code == 0


def test_copy_prints_json_for_programs(lived_in: Path, tmp_path: Path) -> None:
    done = run(app, ["copy", f"sqlite:///{lived_in}", f"sqlite:///{tmp_path}/copy.db", "--json"])
    report = json.loads(done.stdout)
    assert report["was_complete"] is False
    assert (report["records"]["turn"], report["records"]["branch"]) == (18, 12)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("sqlite:///{there}", "sqlite:///{there}", "invalid_input: {there} is {there}, or a backup of it."),
        (
            "sqlite:///{absent}",
            "sqlite:///{absent}",
            "not_a_store: No store at {absent}. Name an existing one.",
        ),
        ("sqlite:///{there}", "memory:", "not_a_store: A store in memory cannot be copied."),
        ("memory:", "sqlite:///{absent}", "not_a_store: A store in memory cannot be copied."),
        ("sqlite:///{there}", "mysql://ann:secret@db/chats", "not_a_store: This URL does not name a store."),
    ],
)
def test_copy_refuses_with_the_reason(
    lived_in: Path, tmp_path: Path, source: str, target: str, message: str
) -> None:
    names = {"there": str(lived_in), "absent": f"{tmp_path}/absent.db"}
    done = run(app, ["copy", source.format(**names), target.format(**names)])
    assert done.exit_code == 2
    assert done.output.startswith(message.format(**names))
    assert "secret" not in done.output
    assert not Path(names["absent"]).exists()


def test_copy_of_a_store_in_use_is_refused(lived_in: Path, tmp_path: Path) -> None:
    urls = f"sqlite:///{lived_in}", f"sqlite:///{tmp_path}/copy.db"

    async def work() -> None:
        async with await Ledger.open(urls[0]):
            done = await asyncio.to_thread(run, app, ["copy", *urls])
        assert done.exit_code == 2
        assert "store_unavailable" in done.stderr
        assert "is in use by 1 process. Stop all of them, and copy again." in done.stderr

    asyncio.run(work())
