"""`turnledger copy`: copy a store into another one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.options import AsJson
from turnledger.cli.output.progress import Progress
from turnledger.cli.output.streams import json_of, print_message, print_result

if TYPE_CHECKING:
    from turnledger.engine.transfer.store_copy import StoreCopyReport

LINE_EVERY = 10.0
"""Seconds between two lines about one stage, without a terminal."""
COUNTED = (
    ("conversation", "conversations"),
    ("branch", "branches"),
    ("turn", "turns"),
    ("attempt", "attempts set aside or running"),
    ("claim", "idempotency keys"),
    ("token", "tokens"),
    ("share", "share links"),
)
"""Tables that the summary counts, and their names in it."""


def copy(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="The URL of a store that no process uses. Stays unchanged.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The URL of an empty store, or of an unfinished copy.")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy a store into another one, as from SQLite into PostgreSQL, and compare both.

    Copies everything but what belongs to one store: the search index is rebuilt by the next server, and
    followers of changes read anew. If the command is interrupted, repeat it: it continues. Until it has
    finished, no server opens the copy. Repeated after that, it only compares.
    """
    import asyncio

    report = asyncio.run(_copy(source, target))
    if as_json:
        typer.echo(json_of(document_of(report)))
        return
    print_result(summary_of(report))


async def _copy(source_url: str, target_url: str) -> StoreCopyReport:
    from turnledger.engine.limits import Limits
    from turnledger.engine.transfer.store_copy import copy_store
    from turnledger.stores.url import open_source, open_target

    source = await open_source(source_url)
    try:
        target = await open_target(target_url)
        try:
            with CopyProgressLines() as progress:
                return await copy_store(source, target, progress, lease_time=Limits().lease_time)
        finally:
            await target.close()
    finally:
        await source.close()


class CopyProgressLines:
    """Shows a bar for each stage on a terminal, and lines on another standard error."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bar: Progress | None = None
        self._stage, self._total, self._done, self._due = "", 0, 0, 0.0

    def __enter__(self) -> CopyProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.__exit__()

    def wait(self, place: str, processes: int, seconds: float) -> None:
        print_message(
            f"{place} may be in use by {processes} process(es). Watching for {seconds:.0f} seconds whether "
            "they are alive."
        )

    def begin(self, stage: str, total: int, done: int) -> None:
        self.__exit__()
        self._bar = Progress(stage, total)
        self._stage, self._total, self._done = stage, total, done
        self._line()

    def advance(self, records: int) -> None:
        self._done += records
        if self._bar is not None:
            self._bar.reach(self._done)
        if self._clock() >= self._due:
            self._line()

    def end(self, table: str, records: int) -> None:
        if records:
            self._line(f", {table} complete")

    def _line(self, detail: str = "") -> None:
        self._due = self._clock() + LINE_EVERY
        if self._bar is None or self._bar.poll_interval is None:
            print_message(f"{self._stage}: {self._done} of {self._total} records{detail}")


def document_of(report: StoreCopyReport) -> dict[str, Any]:
    return {"was_complete": report.was_complete, "records": report.records}


def summary_of(report: StoreCopyReport) -> str:
    counts = ", ".join(f"{report.records[table]} {noun}" for table, noun in COUNTED)
    verdict = "was complete, nothing changed" if report.was_complete else "copied"
    return f"{counts}: {verdict}. Both stores are equal, record by record."
