"""The store of a command: the named one, or that of `turnledger serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnledger.engine.limits import Limits


def limits_of(store: str | None, config: Path | None) -> Limits:
    """Return how long chats last, and deleted ones can be restored: by the server's file, or the library's
    defaults if another store is named. Raises InvalidInput."""
    from turnledger.engine.limits import Limits

    if store is not None and config is None:
        return Limits()
    from turnledger.server.config.file import find_chat_settings
    from turnledger.server.config.folders import config_folder

    folder = config_folder(os.environ, Path.home())
    return Limits(**find_chat_settings(config=config, config_folder=folder).limits)


def store_url(store: str | None, config: Path | None, *, create: bool = False) -> str:
    """Return the URL of the store: `store`, the one in the server's file, or the file in the data folder,
    which is created only with `create`. Raises InvalidInput, and NotAStore if there is none."""
    if store is not None:
        return store
    from turnledger.server.config.file import find_store
    from turnledger.server.config.folders import config_folder, data_folder

    home = Path.home()
    return find_store(
        config=config,
        config_folder=config_folder(os.environ, home),
        data_folder=data_folder(os.environ, home),
        create=create,
    )
