"""Copies between stores: killed at any moment and resumed, they end up equal, record by record, and usable."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crash.all_rows import all_rows
from tests.crash.killed_copy import copy
from tests.crash.stocked_store import LONG, ODD, WAITING
from tests.fork_server import ForkedProcess
from tests.long_form import IS_LONG
from turnledger import Ledger, Limits
from turnledger.engine.check.check import CheckRequest, check
from turnledger.errors import InvalidInput, NotAStore, StoreCorrupt, StoreUnavailable, TurnReplayed
from turnledger.hosting import Host
from turnledger.model.access.token import digest_of
from turnledger.stores.url import visit_store
from turnledger.testing.postgresql import PostgresServer
from turnledger.testing.scripted_model import ScriptedModel

SMALL, LARGE = 20_000, 2_000_000
"""Bytes of a page: each table has one or more, or all are one."""
LEASE_TIME = 0.4
KINDS = ("sqlite", "postgresql")
PAIRS = [(source, target) for source in KINDS for target in KINDS]


@dataclass(frozen=True)
class Stocked:
    """A store whose process was killed, and what its clients know."""

    url: str
    known: dict[str, Any]
    rows: dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as running:
        yield running


@pytest.fixture
def new_store(server: PostgresServer, tmp_path: Path) -> Callable[[str], str]:
    """Makes the URL of an empty store of a kind."""
    names = iter(range(100))

    def make(kind: str) -> str:
        return server.create_database() if kind == "postgresql" else f"sqlite:///{tmp_path}/{next(names)}.db"

    return make


@pytest.fixture(scope="module")
def stocked(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stocked]:
    folder = tmp_path_factory.mktemp("stocked")
    urls = {"sqlite": f"sqlite:///{folder}/chats.db", "postgresql": server.create_database()}
    return {kind: stocked_store(url) for kind, url in urls.items()}


def stocked_store(url: str) -> Stocked:
    with ForkedProcess("tests.crash.stocked_store", url) as process:
        out, errors = process.communicate(60)
    assert process.returncode == -signal.SIGKILL, errors
    return Stocked(url, json.loads(out), asyncio.run(all_rows(url)))


def run_killed(source: str, target: str, page: int, moment: int, *broken: str) -> tuple[int, str]:
    with ForkedProcess("tests.crash.killed_copy", source, target, str(page), str(moment), *broken) as process:
        _, errors = process.communicate(60)
    return process.wait(), errors


async def findings(url: str) -> list[str]:
    visit = await visit_store(url)
    try:
        report = await visit.inspect(check, CheckRequest())
    finally:
        await visit.close()
    return [finding.message for finding in report.findings if finding.is_damage]


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_copy_has_every_row_of_its_source_and_passes_the_check(
    stocked: dict[str, Stocked], new_store: Callable[[str], str], source: str, target: str
) -> None:
    url = new_store(target)
    report = await copy(stocked[source].url, url, SMALL)
    assert min(report.records.values()) > 0, "a table is empty: this shows nothing of it"
    assert await all_rows(url) == stocked[source].rows
    assert await findings(url) == []


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_copy_run_again_changes_nothing(
    stocked: dict[str, Stocked], new_store: Callable[[str], str], source: str, target: str
) -> None:
    url = new_store(target)
    first = await copy(stocked[source].url, url, LARGE)
    again = await copy(stocked[source].url, url, LARGE)
    assert (first.was_complete, again.was_complete) == (False, True)
    assert first.records == again.records
    assert await all_rows(url) == stocked[source].rows
    assert await findings(url) == []


@pytest.mark.parametrize(("source", "target"), PAIRS if IS_LONG else [("sqlite", "postgresql"), KINDS[::-1]])
def test_copy_killed_at_every_moment_and_resumed_equals_its_source(
    stocked: dict[str, Stocked], new_store: Callable[[str], str], source: str, target: str
) -> None:
    url, page = new_store(target), 2_000 if IS_LONG else SMALL
    kills = 0
    # Each process passes the three moments of a page at most: the next one continues there.
    while (ended := run_killed(stocked[source].url, url, page, kills % 3 + 1))[0] == -signal.SIGKILL:
        kills += 1
        with pytest.raises(NotAStore, match="unfinished copy"):
            asyncio.run(visit_store(url))
    assert ended[0] == 0, ended[1]
    assert kills > 30
    assert asyncio.run(all_rows(url)) == stocked[source].rows
    assert asyncio.run(findings(url)) == []


@pytest.mark.parametrize("target", KINDS)
def test_copy_that_saves_progress_apart_from_records_is_found_to_differ(
    stocked: dict[str, Stocked], new_store: Callable[[str], str], target: str
) -> None:
    url = new_store(target)
    assert run_killed(stocked["sqlite"].url, url, SMALL, 5, "apart")[0] == -signal.SIGKILL
    with pytest.raises(StoreCorrupt, match=r"differs from .*: conversation \(0 of 18 records\)"):
        asyncio.run(copy(stocked["sqlite"].url, url, SMALL))
