"""The server's page: its commands print what it says, and it leaves out no setting, flag or metric."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import typer

from tests.unit.server.asgi import serving
from tests.unit.server.processes import ServerProcess, started
from turnledger.cli.main import app
from turnledger.server.config.file import load_settings
from turnledger.server.config.settings import (
    ChatSettings,
    ModelSettings,
    ModelTimeouts,
    ServerLimits,
    Settings,
)
from turnledger.server.openapi.document import path_of

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ |```).*\n)*)", re.MULTILINE)
CONSOLE = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        yield server


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.parametrize(("command", "printed"), COMMAND.findall(CONSOLE))
def test_a_command_prints_what_the_page_says(server: ServerProcess, command: str, printed: str) -> None:
    words = shlex.split(command.replace("http://127.0.0.1:8383", server.url))
    assert words[0] == "curl"
    done = subprocess.run(["curl", "--silent", *words[1:]], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed.strip()


def test_there_are_commands() -> None:
    assert len(COMMAND.findall(CONSOLE)) > 3


def test_the_file_that_is_shown_is_understood(tmp_path: Path) -> None:
    config = tmp_path / "turnledger.toml"
    config.write_text("".join(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)))
    settings = load_settings(
        {},
        config=config,
        config_folder=tmp_path,
        data_folder=tmp_path,
        environ={"EXAMPLE_API_KEY": "secret"},
    )
    assert set(settings.models) == {"fast", "smart"}
    assert settings.models["smart"].timeouts == ModelTimeouts(first_byte=60, total=600)


def rows(first: str) -> dict[str, list[str]]:
    """The rows of the table whose head begins like this, by their first cell."""
    table = PAGE[PAGE.index(f"| {first}") :].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip().strip("`") for cell in row.strip("|").split(" | ")] for row in table]
    return {row[0].strip("` "): [cell.strip("` ") for cell in row[1:]] for row in cells}


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ("`[server]`", Settings),
        ("`[server.limits]`", ServerLimits),
        ("`[server.timeouts]`", ModelTimeouts),
        ("`[chats]`", ChatSettings),
    ],
)
def test_every_setting_is_listed_with_its_default(first: str, kind: type[msgspec.Struct]) -> None:
    listed = rows(first)
    fields = {field.name: field.default for field in msgspec.structs.fields(kind)}
    for apart in ("limits", "timeouts", "models", "chats", "scopes"):
        fields.pop(apart, None)
    assert set(listed) == set(fields)
    for name, default in fields.items():
        if isinstance(default, bool) or (isinstance(default, str) and default):
            assert listed[name][0] == str(default).lower()
        elif isinstance(default, int | float):
            assert float(listed[name][0]) == default
        else:  # none, empty, or as it comes
            assert not re.match(r"\d", listed[name][0])


def test_every_setting_of_a_model_is_named() -> None:
    assert [name for name in ModelSettings.__struct_fields__ if f"`{name}`" not in PAGE] == []


def test_every_flag_is_listed() -> None:
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert [flag for flag in flags if f"`{flag}`" not in PAGE] == []
    assert set(re.findall(r"`(--[a-z-]+)`", PAGE)) <= flags


async def test_every_path_is_listed() -> None:
    listed = {path for cell in rows("path") for path in re.findall(r"/[^`]*", cell)}
    async with serving() as asked:
        assert listed == {path_of(endpoint) for endpoint in asked.endpoints}


async def test_every_metric_is_listed() -> None:
    async with serving() as asked:
        told = asked.service.metrics.text().decode()
    names = re.findall(r"^# HELP (\S+)", told, re.MULTILINE)
    real = {name for name in names if not name.endswith("_created")}
    assert set(re.findall(r"^\| `(turnledger_\w+)`", PAGE, re.MULTILINE)) == real
