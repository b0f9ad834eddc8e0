"""Where a user's files belong on each platform: the configuration and the conversations."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

NAME = "turnledger"


def config_folder(environ: Mapping[str, str], home: Path, platform: str = sys.platform) -> Path:
    """The folder of `turnledger.toml`."""
    if platform == "win32":
        return _named(environ, "APPDATA", home / "AppData" / "Roaming")
    if platform == "darwin":
        return home / "Library" / "Application Support" / NAME
    return _named(environ, "XDG_CONFIG_HOME", home / ".config")


def data_folder(environ: Mapping[str, str], home: Path, platform: str = sys.platform) -> Path:
    """The folder of the SQLite file that is used when no store is named."""
    if platform == "win32":
        return _named(environ, "LOCALAPPDATA", home / "AppData" / "Local")
    if platform == "darwin":
        return home / "Library" / "Application Support" / NAME
    return _named(environ, "XDG_DATA_HOME", home / ".local" / "share")


def _named(environ: Mapping[str, str], variable: str, otherwise: Path) -> Path:
    # A relative path is ignored: it would mean the current folder, which another user may own.
    named = Path(environ.get(variable, ""))
    return (named if named.is_absolute() else otherwise) / NAME
