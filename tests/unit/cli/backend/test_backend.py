"""Which place is meant, by flags and by the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from turnledger.cli.backend.backend import Where
from turnledger.cli.main import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


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
def test_what_is_nearest_is_meant(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, str | Path], variable: str, server: str | None
) -> None:
    monkeypatch.setenv("TURNLEDGER_SERVER", variable)
    given: dict[str, str | Path | None] = {"server": None, "store": None, "config": None, **flags}
    assert Where(**given).server == server  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--server", "http://127.0.0.1:1", "--store", "memory:"),
            "invalid_input: Chats are at a server or",
        ),
        (("--server", "http://127.0.0.1:1", "--owner", "ann"), "invalid_input: --owner is for stores."),
        (("--server", "localhost:8383"), "invalid_input: --server or TURNLEDGER_SERVER"),
        (("--server", "http://u:secret@h"), "invalid_input: --server or TURNLEDGER_SERVER"),
    ],
)
def test_what_names_no_server_is_told_on_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = run("chats", "list", *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(said)
    assert "secret" not in done.output
