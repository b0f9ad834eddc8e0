"""Look at a database without changing it: can a server use it, and what is wrong if not."""

from __future__ import annotations

import msgspec

from turnledger.errors import NotAStore, StoreReadOnly
from turnledger.model.ids import LeaseId
from turnledger.stores.postgresql import connections
from turnledger.stores.postgresql.failures import connect_failure, translate
from turnledger.stores.postgresql.migrations import VERSION, check_version, version_of
from turnledger.stores.postgresql.tables.queries import QUERIES

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


class DatabaseExamination(msgspec.Struct, frozen=True, kw_only=True):
    place: str
    server: str
    """The version of PostgreSQL."""
    schema: int
    """0 if the tables are yet to be created."""
    known_schema: int = VERSION
    leases: tuple[LeaseId, ...]
    """Of the processes that use it, or died while they did."""
    newest_ms: int | None
    """When the last turn was committed, by the clock of its process."""
    is_synced: bool
    """Whether commits reach the disk of the database."""
    oldest_transaction: float | None
    """Seconds since it began, in any database of the cluster; None if none is known."""


async def examine(url: str) -> DatabaseExamination:
    """Examine the database of a URL. Raises what `PostgresStore.open` would, and StoreReadOnly if a right is
    missing."""
    settings = connections.settings_of(url)
    try:
        connection = await connections.connect(settings)
    except BaseException as error:
        raise connect_failure(error, settings.place) from error
    try:
        connections.check_server(connection, settings)
        version = await version_of(connection)
        check_version(version)
        leases, newest, oldest = [], None, None
        if not version:
            if not await connection.fetchval("SELECT has_schema_privilege(current_schema(), 'CREATE')"):
                raise StoreReadOnly(
                    f"{settings.place}: this user may not create tables. GRANT CREATE ON SCHEMA public to it."
                )
        else:
            for right in RIGHTS:
                if not await connection.fetchval("SELECT has_table_privilege('turn', $1)", right):
                    raise StoreReadOnly(
                        f"{settings.place}: this user lacks {right}. GRANT it on all tables, or own them."
                    )
            leases = [LeaseId.trusted(id) for (id,) in await connection.fetch("SELECT id FROM lease")]
            newest = await connection.fetchval("SELECT committed_at FROM turn ORDER BY id DESC LIMIT 1")
            oldest = await connection.fetchval(QUERIES["oldest_transaction"])
        return DatabaseExamination(
            place=settings.place,
            server=connections.server_version(connection),
            schema=version,
            leases=tuple(leases),
            newest_ms=newest,
            is_synced=await connection.fetchval("SHOW fsync") == "on",
            oldest_transaction=oldest,
        )
    except BaseException as error:
        raise translate(error, settings.place) from error
    finally:
        connection.terminate()


async def check_exists(connection: connections.AnyConnection, settings: connections.DatabaseSettings) -> None:
    """Raise NotAStore unless the tables are there, in the current version; change nothing."""
    version = await version_of(connection)
    check_version(version)
    if version == 0:
        raise NotAStore(f"{settings.place} has no tables of Turnledger. `turnledger serve` creates them.")
    if version < VERSION:
        raise NotAStore(
            f"{settings.place} is of an older version (schema {version}). `turnledger serve` upgrades it."
        )
