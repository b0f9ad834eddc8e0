"""Small operations for store tests, and ids."""

from random import Random
from typing import Any

import apsw

from turnledger.engine.ports import Tables, WholeStore
from turnledger.engine.tables.lanes import LeaseRows
from turnledger.errors import Superseded
from turnledger.model.conversation import Claim
from turnledger.model.ids import ConversationId, IdSource, LeaseId, TurnId
from turnledger.stores.sqlite.migrations import VERSION

ids = IdSource(lambda: 1_700_000_000_000, Random(7).getrandbits)
CONVERSATION = ids.new(ConversationId)
ATTEMPT = ids.new(TurnId)


async def beat(rows: LeaseRows, id: LeaseId) -> None:
    await rows.beat(id)


async def beat_of(rows: LeaseRows, id: LeaseId) -> int:
    lease = await rows.lease(id)
    return lease.beat if lease else 0


async def leases(whole: WholeStore, _: None) -> set[LeaseId]:
    return {lease.id for lease in await whole.leases()}


async def purge_ended(whole: WholeStore, _: None) -> int:
    return await whole.purge_ended(100)


async def add_claims(tables: Tables, keys: tuple[str, ...]) -> None:
    for key in keys:
        await tables.save_claim(
            Claim(
                owner=tables.owner,
                idempotency_key=key,
                fingerprint=b"",
                conversation=CONVERSATION,
                attempt=ATTEMPT,
            )
        )


async def add_claim_then_refuse(tables: Tables, keys: tuple[str, ...]) -> None:
    await add_claims(tables, keys)
    raise Superseded


async def refuse(rows: Any, _: Any) -> None:
    raise Superseded


async def has_claim(tables: Tables, key: str) -> bool:
    return await tables.claim(key) is not None


def migrate_further(path: str) -> None:
    """Do what a newer Turnledger does when it opens the store: extend the schema and raise its version."""
    newer = apsw.Connection(path)
    newer.execute("BEGIN IMMEDIATE; ALTER TABLE claim ADD COLUMN later INTEGER")
    newer.pragma("user_version", VERSION + 1)
    newer.execute("COMMIT")
    newer.close()
