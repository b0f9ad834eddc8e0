"""The PostgreSQL store fulfils the contract of turns through PgBouncer in transaction mode, where consecutive
transactions of a connection may run in different sessions of the server."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from tests.contract.test_postgresql import empty
from turnledger.engine.ports import Store
from turnledger.errors import StoreUnavailable
from turnledger.stores.postgresql import PostgresStore
from turnledger.testing.postgresql import NOBODY, PostgresServer
from turnledger.testing.store_contract import Capabilities, OpenStore
from turnledger.testing.store_contract.atomicity import Atomicity
from turnledger.testing.store_contract.idempotency import Idempotency, UnknownOutcome
from turnledger.testing.store_contract.lanes import Fences, Lanes

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PORT = 6432
CONFIGURATION = f"""
[databases]
* = host={{folder}} user=postgres
[pgbouncer]
listen_port = {PORT}
unix_socket_dir = {{folder}}
auth_type = any
pool_mode = transaction
default_pool_size = 3
"""

pytestmark = pytest.mark.skipif(
    PROGRAM is None and os.environ.get("CI") != "true",
    reason="there is no pgbouncer: apt-get install pgbouncer",
)


@pytest.fixture(scope="module")
def pooled() -> Iterator[tuple[str, str]]:
    """The URL of a database, directly and through PgBouncer."""
    assert PROGRAM is not None, "apt-get install pgbouncer"
    with PostgresServer.start() as server:
        url = server.create_database()
        file = server.folder / "pgbouncer.ini"
        file.write_text(CONFIGURATION.format(folder=server.folder))
        identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        with subprocess.Popen(  # it refuses to run as root
            [PROGRAM, file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **identity,
        ) as pooler:
            try:
                host = quote(str(server.folder), safe="")
                through = (
                    f"postgresql://postgres@/{urlsplit(url).path[1:]}?host={host}&port={PORT}&pgbouncer=on"
                )
                asyncio.run(opened(through))
                yield url, through
            finally:
                pooler.terminate()


async def opened(url: str) -> None:
    """Open the store as soon as PgBouncer listens."""
    while True:
        try:
            await (await PostgresStore.open(url)).close()
        except StoreUnavailable as problem:
            if not isinstance(problem.__cause__, OSError):
                raise
            await asyncio.sleep(0)
        else:
            return


async def test_sessions_are_shared_by_connections(pooled: tuple[str, str]) -> None:
    url = pooled[1].partition("&pgbouncer")[0]
    connections = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(10)]
    served_by = {await each.fetchval("SELECT pg_backend_pid()") for each in connections}
    assert len(served_by) <= 3
    for each in connections:
        await each.close()


class TestStoreBehindPgBouncer(Atomicity, Idempotency, UnknownOutcome, Lanes, Fences):
    capabilities = Capabilities(survives_restart=True)

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def open_store(self, pooled: tuple[str, str]) -> OpenStore:
        await empty(pooled[0])

        async def open_store() -> Store:
            return await PostgresStore.open(f"{pooled[1]}&pool=4")

        return open_store
