"""PostgreSQL and the memory reference give the same answers and hold the same rows after any operations.

One operation is in flight at a time, so each sequence can be replayed. On 18 and 16.
"""

from __future__ import annotations

import asyncio

from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.pair import repeatable
from tests.stateful.postgres_pair import PostgresPair
from tests.stateful.test_operations import Branched, Operations
from tests.stateful.test_rows import Rows
from turnledger.stores.postgresql import PostgresStore
from turnledger.testing.postgresql import PostgresServer

SECONDS = 3600


def prove() -> None:
    for version in (18, 16):
        with PostgresServer.start(version) as server:
            PostgresPair.url = server.create_database()
            asyncio.run(create_tables(PostgresPair.url))
            for machine, examples, steps in ((Operations, 20, 30), (Branched, 20, 30), (Rows, 40, 20)):
                machine.kind = PostgresPair
                run_state_machine_as_test(machine, settings=repeatable(examples=examples, steps=steps))
                print(f"{machine.__name__} on {version}: {examples} times {steps} steps, the same rows")


async def create_tables(url: str) -> None:
    await (await PostgresStore.open(url)).close()
