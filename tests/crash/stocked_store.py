"""A process that fills a store with rows of every kind, and kills itself amid its work:
`python -m tests.crash.stocked_store URL`. Prints what a client knows by then, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

from tests.unit.engine.populated_store import fail, populate, run_turn
from turnledger import Ledger, Limits
from turnledger.engine.lifecycle.delete import EndDueRequest, end_due
from turnledger.engine.ports import Inspection
from turnledger.hosting import Host
from turnledger.model.turn import AttemptState
from turnledger.stores.url import open_store
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import ScriptedModel, Tool

WAITING = ("next", "last")
"""Messages that wait behind the running turn."""
LONG = "A long text without end. " * 400
ODD = "nul \x00, \ue000 and 🦋"
"""PostgreSQL cannot store a NUL as it is."""


async def stock(url: str) -> dict[str, Any]:
    """Fill the store; return what clients know. Leaves a running turn, and two that wait."""
    store = await open_store(url)
    populated = await populate(store)
    await populated.plain.flag((await populated.plain.turns())[0].id, [0, 1], to_model=False)
    await populated.plain.flag((await populated.plain.turns())[1].id, to_user=False)
    await populated.plain.undo()
    expiring = await populated.ledger.for_owner("ann").conversation(
        expires_after=1.0
    )  # by a clock that stands
    await run_turn(expiring, "Soon over")
    await populated.ledger.close()
    ledger = await Ledger.open(url, limits=Limits(flush_every=0.01, clock_tolerance=1e9))
    host = Host(ledger)
    ann = ledger.for_owner("ann")
    token, text = await host.tokens.create(scopes=["admin", "turns:run"], owner="ann", name=ODD)
    child, _ = await host.tokens.create(scopes=["turns:run"], owner="ann", parent=str(token.id), max_tokens=5)
    await host.tokens.revoke(str(child.id))
    await host.tokens.record_uses({token.id: int(time.time() * 1000)})
    _, code = await host.shares.create(owner="ann", scope="desk", max_uses=3, lifetime=9e6, turns=2)
    ended, _ = await host.shares.create(owner="ann", scope="desk", name="ended")
    await host.shares.revoke(str(ended.id))
    visit = await host.shares.exchange(code, "n" * 24)
    await run_turn(await ledger.for_owner(visit.token.owner, scope="desk").conversation(), "Hello?")

    detailed = await ann.conversation(
        conversation_key="detailed", title=ODD, metadata={"a": ODD}, tags=["x", "🦋"], expires_after=9e6
    )
    await run_turn(detailed, LONG, "Yes. " * 3000, idempotency_key=ODD)
    await detailed.update(pinned=True, title="Butterflies")
    for side in range(3):  # branches beside the shown one, in an order
        async with detailed.turn(f"side {side}", after=(await detailed.turns())[0].id) as turn:
            turn.emit("Yes.")
    archived = await ledger.for_owner("bob", scope="desk").conversation(conversation_key="mine")
    await run_turn(archived, "Hi", instructions="Be short.")
    await archived.update(archived=True)
    deleted = await ann.conversation(conversation_key="deleted")
    await run_turn(deleted, "Away")
    await deleted.delete()
    await ann.conversation(internal=True)
    await ann.reset("edited")
    failed = await ann.conversation(conversation_key="failed")
    await fail(failed, LONG, "Once", Tool("pay"), "upon", idempotency_key="failed")
    waiting = await ann.conversation(conversation_key="jobs")
    job = await waiting.enqueue("Work on this.", idempotency_key="job")
    now = int(time.time() * 1000)
    await ledger._process.store.transact(end_due, EndDueRequest([expiring.id], now, now, 0), "ann")

    running = await ann.conversation(conversation_key="running")
    await run_turn(running, "First")
    acting = Gate()
    model = ScriptedModel(["I look.", Tool("look"), "I am just about to", acting], ["Next."], ["Last."])
    turns = [asyncio.ensure_future(running.run(model, LONG, idempotency_key="running"))]
    await acting.arrived()
    turns += [asyncio.ensure_future(running.run(model, text, idempotency_key=text)) for text in WAITING]
    while not await ledger._process.store.inspect(_is_written, None):
        await asyncio.sleep(0.01)
    return {
        "token": text,
        "job": job,
        "running": running.id,
        "deleted": deleted.id,
        "expiring": expiring.id,
        "position": await ann.position(),
        "turns": len(turns),
    }


async def _is_written(rows: Inspection, _: None) -> bool:
    """Return whether the running turn has a draft on disk, and the others wait."""
    tickets = await rows.all_tickets(None, 10)
    attempts = [
        await rows.of(each.owner or "").attempt(each.row) for each in await rows.all_attempts(None, 99)
    ]
    running = [each for each in attempts if each is not None and each.state is AttemptState.RUNNING]
    has_draft = [await rows.of(each.owner).log_chunks(each.id, 0, 1) for each in running]
    return len(tickets) == 1 + len(WAITING) and any(has_draft)


async def main(url: str) -> None:
    print(json.dumps(await stock(url)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
