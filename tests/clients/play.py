"""Play scenarios: `python -m tests.clients.play [--client embedded|python|async|typescript|browser] [WORDS]`

Runs the scenarios whose names contain all the words, on every driver that can run them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.clients.drivers.all_drivers import CLIENTS, start_driver
from tests.clients.drivers.browser import browser_driver, page_site
from tests.clients.drivers.driver import Driver
from tests.clients.drivers.embedded import EmbeddedDriver
from tests.clients.places import Place, embedded_place, guarded_place, process_place, served_place
from tests.clients.player import Play
from tests.clients.scenario import Scenario, all_scenarios
from turnledger.runners.demo import DemoModel
from turnledger.server.config.settings import Settings

DRIVERS = ("embedded", *CLIENTS, "browser")


@asynccontextmanager
async def stage(driver: str, folder: Path) -> AsyncIterator[tuple[Driver, dict[str | None, Place]]]:
    """Yield a driver, and its places by the server that a scenario needs."""
    if driver == "embedded":
        async with embedded_place() as (ledger, embedded):
            yield EmbeddedDriver(ledger, DemoModel(pace=0)), {None: embedded}
    elif driver == "browser":
        async with (
            page_site() as site,
            served_place(Settings(origins=(site.origin,))) as served,
            guarded_place(Settings(origins=(site.origin,))) as guarded,
            browser_driver(site) as page,
        ):
            yield page, {None: served, "guarded": guarded}
    else:
        async with (
            served_place() as served,
            guarded_place() as guarded,
            process_place(folder) as process,
            start_driver(driver) as client,
        ):
            yield client, {None: served, "guarded": guarded, "process": process}


def can_play(driver: str, scenario: Scenario) -> bool:
    """Return whether a driver can run a scenario: not each has a connection or a killable server."""
    if driver == "embedded":
        return scenario.is_contract
    return driver != "browser" or scenario.server != "process"


async def _main(given: argparse.Namespace) -> int:
    chosen = {
        name: scenario
        for name, scenario in all_scenarios().items()
        if all(word in name for word in given.words)
    }
    failed = 0
    for client in given.client or DRIVERS:
        with tempfile.TemporaryDirectory() as folder:
            async with stage(client, Path(folder)) as (driver, places):
                played = 0
                for name, scenario in chosen.items():
                    if not can_play(client, scenario):
                        continue
                    played += 1
                    try:
                        await Play(scenario, driver, places[scenario.server]).run()
                    except AssertionError as problem:
                        failed += 1
                        print(f"{client}, {name}: {problem}", flush=True)
        print(f"{client}: {played} scenarios", flush=True)
    return 1 if failed else 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.play", description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--client", action="append", choices=DRIVERS)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # writes to disconnected clients are expected
    sys.exit(asyncio.run(_main(parser.parse_args())))


if __name__ == "__main__":
    main()
