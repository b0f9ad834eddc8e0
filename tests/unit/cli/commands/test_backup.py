"""`turnledger backup`: what it prints, and how it exits."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from turnledger.cli.main import app
from turnledger.stores.sqlite.connections import prepare

run = CliRunner().invoke


def test_backup_names_the_copy_and_how_to_check_it(tmp_path: Path) -> None:
    prepare(str(tmp_path / "chats.db"))
    copy = tmp_path / "copy.db"
    done = run(app, ["backup", str(copy), "--store", f"sqlite:///{tmp_path / 'chats.db'}"])
    assert done.exit_code == 0, done.output
    assert (
        done.output
        == f"{copy}: {copy.stat().st_size} bytes. To check it: turnledger check sqlite:///{copy}\n"
    )
    assert run(app, ["check", f"sqlite:///{copy}"]).exit_code == 0


def test_backup_onto_a_file_that_exists_exits_with_2(tmp_path: Path) -> None:
    prepare(str(tmp_path / "chats.db"))
    (tmp_path / "copy.db").write_text("mine")
    done = run(app, ["backup", str(tmp_path / "copy.db"), "--store", f"sqlite:///{tmp_path / 'chats.db'}"])
    assert (done.exit_code, "exists already" in done.output) == (2, True)
    assert (tmp_path / "copy.db").read_text() == "mine"
