"""The folders for a user's configuration and conversations on each platform."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

NAME = "turnledger"


def config_folder(environ: Mapping[str, str], home: Path, platform: str = sys.platform) -> Path:
    """Return the folder of `turnledger.toml`."""
    if platform == "win32":
        return _folder_from(environ, "APPDATA", home / "AppData" / "Roaming")
    if platform == "darwin":
        return home / "Library" / "Application Support" / NAME
    return _folder_from(environ, "XDG_CONFIG_HOME", home / ".config")


def data_folder(environ: Mapping[str, str], home: Path, platform: str = sys.platform) -> Path:
    """Return the folder of the default SQLite file."""
    if platform == "win32":
        return _folder_from(environ, "LOCALAPPDATA", home / "AppData" / "Local")
    if platform == "darwin":
        return home / "Library" / "Application Support" / NAME
    return _folder_from(environ, "XDG_DATA_HOME", home / ".local" / "share")


def _folder_from(environ: Mapping[str, str], variable: str, default: Path) -> Path:
    # A relative path is ignored: it would refer to the current folder, which another user may own.
    folder = Path(environ.get(variable, ""))
    return (folder if folder.is_absolute() else default) / NAME
