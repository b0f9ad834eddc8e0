"""The store that a command works on: the one that is named, or the one that `turnledger serve` would use."""

from __future__ import annotations

import os
from pathlib import Path

from turnledger.errors import InvalidInput


def store_url(store: str | None, config: Path | None) -> str:
    """The URL of the store: `store`, or what the server's file names, or the file in the data folder. Raises
    InvalidInput."""
    if store is not None:
        return store
    try:
        from turnledger.server.folders import config_folder, data_folder
        from turnledger.server.settings_file import find_store
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] == "turnledger":
            raise
        raise InvalidInput(
            "Where the server keeps its store is not known here: name it with --store."
        ) from None
    home = Path.home()
    return find_store(
        config=config,
        config_folder=config_folder(os.environ, home),
        data_folder=data_folder(os.environ, home),
    )
