"""Many concurrent clients with changing tokens get documented answers only, and leave only their turns."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.fuzz.api_description import ApiDescription
from tests.fuzz.crowd import Crowd
from tests.unit.server.asgi import run_app
from turnledger.testing.simulated_loop import SimulatedLoop
from turnledger.testing.simulation.stores import open_inner

SEEDS = int(os.environ.get("FUZZ_SEEDS", "10"))
"""More of them for a longer run: FUZZ_SEEDS=1000."""
FIRST = int(os.environ.get("FUZZ_FIRST_SEED", "0"))
CLIENTS = 60
PATIENCE = 3600
"""Virtual seconds within which the last client has left."""


@pytest.fixture(scope="module")
def description() -> ApiDescription:
    async def read() -> ApiDescription:
        async with run_app() as app:
            return ApiDescription(app.endpoints)

    return asyncio.run(read())


def played(seed: int, kind: str, description: ApiDescription) -> list[str]:
    """What happened, in order."""
    loop = SimulatedLoop(seed)
    crowd = Crowd(seed, loop, description)

    async def play() -> None:
        await crowd.open(await open_store())
        async with asyncio.timeout(PATIENCE):
            await crowd.run_clients(CLIENTS)
        await crowd.at_rest()
        await crowd.close()

    try:
        with open_inner(kind) as open_store:
            loop.run_until_complete(play())
    except BaseException as problem:
        problem.add_note("\n".join([f"seed {seed}", *crowd.log[-20:]]))
        raise
    finally:
        loop.close()
    assert loop.errors == []
    return crowd.log


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_server_after_a_crowd_of_clients_holds_only_their_turns(
    seed: int, description: ApiDescription
) -> None:
    kind = "sqlite" if seed % 2 else "memory"
    assert len(played(seed, kind, description)) > CLIENTS / 2


def test_crowd_of_clients_with_one_seed_plays_the_same_sequence(description: ApiDescription) -> None:
    assert played(3, "memory", description) == played(3, "memory", description)
