"""The reference pages say what the code says, all of it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from tools.reference.__main__ import main
from tools.reference.pages import FOLDER, PAGES
from turnledger.cli.main import app


def test_reference_pages_are_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["--check"]), capsys.readouterr().out) == (0, "")
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_every_command_and_option_is_told() -> None:
    page = PAGES["command-line.md"]()

    def walk(command: Any, path: str) -> int:
        section = page[page.index(f"# {path}\n") :].partition("\n#")[0]
        options = [
            option for each in command.params if each.param_type_name == "option" for option in each.opts
        ]
        assert [option for option in options if option not in section] == []
        below = getattr(command, "commands", {})
        return len(options) + sum(walk(each, f"{path} {name}") for name, each in below.items())

    assert walk(typer.main.get_command(app), "turnledger") > 100
    serve = page[page.index("### turnledger serve\n") :].partition("\n###")[0]
    for option in ("--store URL", "--port N", "--host TEXT", "--workers N"):
        assert f"| `{option}` |" in serve
