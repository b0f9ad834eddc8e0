from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from tests.unit.server.logging_state import kept_logging


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that serves takes over the log of the whole process."""
    with kept_logging():
        yield


build_once = cache(get_command)


@pytest.fixture(autouse=True)
def commands_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typer builds all commands anew for each call, which takes ten times as long as the call."""
    monkeypatch.setattr("typer.testing._get_command", build_once)


@pytest.fixture(autouse=True)
def no_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURNLEDGER_SERVER", "TURNLEDGER_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store that is not there yet."""
    return f"sqlite:///{tmp_path}/mine.db"


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of the user below `tmp_path`, and an empty current one, `here`."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
