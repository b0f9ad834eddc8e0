"""Small operations for store tests, and ids."""

from random import Random
from typing import Any

import apsw

from turnledger.engine.ports import Tables
from turnledger.errors import Superseded
from turnledger.model.conversation import Claim
from turnledger.model.ids import ConversationId, IdSource, LeaseId, TurnId
from turnledger.stores.sqlite.migrations import VERSION

ids = IdSource(lambda: 1_700_000_000_000, Random(7).getrandbits)
CONVERSATION = ids.new(ConversationId)
ATTEMPT = ids.new(TurnId)


async def beat(tables: Tables, id: LeaseId) -> None:
    await tables.beat(id)


async def beat_of(tables: Tables, id: LeaseId) -> int:
    lease = await tables.lease(id)
    return lease.beat if lease else 0


async def leases(tables: Tables, _: None) -> set[LeaseId]:
    return {lease.id for lease in await tables.leases()}


async def purge_ended(tables: Tables, _: None) -> int:
    return await tables.purge_ended(100)


async def add_claims(tables: Tables, names: tuple[str, ...]) -> None:
    """The first name is the owner, the rest are idempotency keys."""
    owner, *keys = names
    for key in keys:
        await tables.save_claim(
            Claim(
                owner=owner,
                idempotency_key=key,
                fingerprint=b"",
                conversation=CONVERSATION,
                attempt=ATTEMPT,
            )
        )


async def add_claim_then_refuse(tables: Tables, names: tuple[str, ...]) -> None:
    await add_claims(tables, names)
    raise Superseded


async def refuse(tables: Tables, _: Any) -> None:
    raise Superseded


async def has_claim(tables: Tables, names: tuple[str, str]) -> bool:
    return await tables.claim(*names) is not None


def migrate_further(path: str) -> None:
    """Do what a newer Turnledger does when it opens the store: extend the schema and raise its version."""
    newer = apsw.Connection(path)
    newer.execute("BEGIN IMMEDIATE; ALTER TABLE claim ADD COLUMN later INTEGER")
    newer.pragma("user_version", VERSION + 1)
    newer.execute("COMMIT")
    newer.close()
