"""`turnledger backup`: a copy of a store that is in use."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from turnledger.cli.options import Config, Store
from turnledger.cli.output.progress import Progress


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy. It must not exist yet.")],
    store: Store = None,
    config: Config = None,
) -> None:
    """Copy a store into one file, as it is at one moment, while servers go on using it.

    The copy is on disk and whole when the command ends, or not there. Only its user may read it. To go back
    to it, stop the server and put it in place of the store's file, without the old `-wal` and `-shm`.
    """
    from turnledger.cli.backend.own_store import store_url
    from turnledger.stores.url import back_up_store

    with ExitStack() as shown:
        bars: list[Progress] = []

        def report(done: int, total: int) -> None:
            if not bars:
                bars.append(shown.enter_context(Progress("Copying", total, in_bytes=True)))
            bars[0].reach(done)

        back_up_store(store_url(store, config), str(file), report)
    typer.echo(f"{file}: {file.stat().st_size} bytes. To check it: turnledger check sqlite:///{file}")
