"""An id of another owner is answered as one that never was: every route and role, whatever state it is in.

Alice's chats are live, deleted, purged and expired; her turns committed, interrupted, failed, stopped,
running, queued and enqueued. Each is requested on every route with an id, by callers without access, on both
stores, and beside it an id that never existed. The answers are compared byte for byte, without ids and times.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.guarded.foreign_probes import ROLES, Ids, add_roles, differences, ids_of, own_of, probes
from tests.guarded.town import Town, town
from turnledger.chat import Chat
from turnledger.engine.ports import Store
from turnledger.hosting import Host
from turnledger.model.ids import TurnId
from turnledger.stores.memory import MemoryStore
from turnledger.stores.url import open_store

SECONDS = 900


async def _run_turn(chat: Chat, text: str = "Hi", idempotency_key: str | None = None) -> TurnId:
    async with chat.turn(text, idempotency_key=idempotency_key) as turn:
        turn.emit("Hello.")
    return turn.id


async def _run_failing_turn(chat: Chat) -> TurnId:
    try:
        async with chat.turn("Fail") as turn:
            turn.emit("Half")
            raise RuntimeError("boom")
    except RuntimeError:
        return turn.id


async def _run_stopped_turn(chat: Chat, policy: str) -> TurnId:
    async with chat.turn("Stop", on_stop=policy) as turn:
        turn.emit("Half")
        turn.stop()
    return turn.id


@asynccontextmanager
async def _ids_by_state(place: Town) -> AsyncIterator[dict[str, Ids]]:
    """Yield Alice's ids, by state."""
    found: dict[str, Ids] = {}

    async def chat(state: str, **details: object) -> Chat:
        place.clock.advance(1)
        key = f"private-{state.replace(' ', '-')}-000000000000"
        return await place.ledger.for_owner("alice").conversation(conversation_key=key, **details)  # type: ignore[arg-type]

    async def note(state: str, of: Chat, turn: TurnId) -> None:
        found[state] = await ids_of(place, of, turn)

    live = await chat("live")
    await note("live", live, await _run_turn(live, idempotency_key=live.conversation_key))
    failed = await chat("failed")
    await note("failed", failed, await _run_failing_turn(failed))
    for policy in ("keep", "discard"):
        stopped = await chat(f"stopped {policy}")
        await note(f"stopped, {policy}", stopped, await _run_stopped_turn(stopped, policy))
    edited = await chat("edited")
    first = await _run_turn(edited)
    async with edited.edit(first, "Other") as other:
        other.emit("Hello.")
    await note("edited", edited, first)
    for state in ("deleted", "purged"):
        gone = await chat(state)
        turn = await _run_turn(gone)
        await note(state, gone, turn)
        await gone.delete(purge=state == "purged")
    lapsed = await chat("expired", expires_after=10)
    turn = await _run_turn(lapsed)
    await note("expired", lapsed, turn)
    place.clock.advance(20)
    async with AsyncExitStack() as stack:
        busy = await chat("running")
        running = await stack.enter_async_context(busy.turn("Wait"))
        running.emit("Half")
        await note("running", busy, running.id)
        job = await busy.enqueue("Later", idempotency_key=busy.conversation_key)
        await note("enqueued", busy, job)
        queued = busy.turn("Next")
        waiting = asyncio.create_task(_enter(queued))
        while not Host(place.ledger).at_work().waiting:
            await asyncio.sleep(0)
        found["queued"] = await ids_of(place, busy, queued.id)
        stack.callback(waiting.cancel)
        yield found


async def _enter(block: object) -> None:
    async with block as turn:  # type: ignore[attr-defined]
        turn.emit("Late.")


async def _prove_on(name: str, store: Store) -> None:
    async with town(store) as place:
        await add_roles(place)
        requests, found = 0, list[str]()
        async with _ids_by_state(place) as things:
            for who in ROLES:
                own = await own_of(place, who)
                for state, theirs in things.items():
                    requests += 2 * len(list(probes(place, theirs, own)))
                    found += [f"{state}: {each}" for each in await differences(place, who, theirs, own)]
        print(
            f"{name}: {requests} requests in {len(things)} states by {len(ROLES)} roles, {len(found)} differ"
        )
        if found:
            raise AssertionError("\n".join(found[:5]))


async def _prove() -> None:
    await _prove_on("memory", MemoryStore())
    with tempfile.TemporaryDirectory() as folder:
        await _prove_on("sqlite", await open_store(f"sqlite:///{Path(folder) / 'chats.db'}"))


def prove() -> None:
    asyncio.run(_prove())
