"""A user's files are where his platform keeps them, and never in the current folder."""

from pathlib import Path

import pytest

from turnledger.server.config.folders import config_folder, data_folder

HOME = Path("/home/ann")


@pytest.mark.parametrize(
    ("platform", "config", "data"),
    [
        ("linux", ".config/turnledger", ".local/share/turnledger"),
        ("darwin", "Library/Application Support/turnledger", "Library/Application Support/turnledger"),
        ("win32", "AppData/Roaming/turnledger", "AppData/Local/turnledger"),
    ],
)
def test_each_platform_has_its_places(platform: str, config: str, data: str) -> None:
    assert config_folder({}, HOME, platform) == HOME / config
    assert data_folder({}, HOME, platform) == HOME / data


def test_the_environment_may_name_others() -> None:
    environ = {"XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"}
    assert config_folder(environ, HOME, "linux") == Path("/c/turnledger")
    assert data_folder(environ, HOME, "linux") == Path("/d/turnledger")


def test_but_not_the_current_folder() -> None:
    for value in ("", ".", "relative/path"):
        environ = {"XDG_CONFIG_HOME": value, "XDG_DATA_HOME": value}
        assert config_folder(environ, HOME, "linux") == HOME / ".config/turnledger"
        assert data_folder(environ, HOME, "linux") == HOME / ".local/share/turnledger"
