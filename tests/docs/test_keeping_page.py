"""The page on what is kept: the settings that it shows are understood, and mean what it says."""

from __future__ import annotations

import re
from pathlib import Path

from turnledger.server.config.file import load_settings
from turnledger.server.config.settings import ChatSettings, ScopeSettings
from turnledger.server.models.titles import AT_ONCE, PATIENCE, WAITING

PAGE = (Path(__file__).parents[2] / "docs" / "keeping.md").read_text()


def settings_of(tmp_path: Path, toml: str) -> ChatSettings:
    config = tmp_path / "turnledger.toml"
    config.write_text(toml)
    folders = {"config_folder": tmp_path, "data_folder": tmp_path}
    return load_settings({}, config=config, environ={}, **folders).chats


def test_the_settings_that_it_shows_are_understood(tmp_path: Path) -> None:
    keeping, titles = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    shown = settings_of(tmp_path, keeping)
    assert (shown.keep, shown.scopes) == (True, {"confessional": ScopeSettings(keep=False)})
    assert settings_of(tmp_path, titles).title_model == "llama3.2"


def test_its_numbers_are_those_of_the_server() -> None:
    assert (AT_ONCE, WAITING, PATIENCE) == (4, 200, 60.0)
    assert "Four titles" in PAGE
    assert f"{WAITING} chats may wait" in PAGE
