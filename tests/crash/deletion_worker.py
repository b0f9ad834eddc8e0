"""A process that deletes, restores and purges: `python -m tests.crash.deletion_worker FOLDER SEED`.

It prints `will WHAT ID` before an action and `did WHAT ID` after it. `made ID` is a new chat, `forked ID` a
fork that must stay whole.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

from turnledger import Chat, Ledger, Limits, errors
from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.fake_clock import FakeClock

TURNS = 4
LIMITS = Limits(lease_time=2.0, purge_rows=2, restore_time=10.0)


def report(line: str) -> None:
    print(line, flush=True)


async def made(ledger: Ledger, number: int) -> Chat:
    """Create a chat with a title, an edit, and a fork at its second turn."""
    chat = await ledger.conversation(title=f"chat {number}", metadata={"number": str(number)})
    for count in range(TURNS):
        async with chat.turn(f"q{count}") as turn:
            turn.emit(f"a{count}")
    fork = await chat.fork((await chat.turns())[1].id)
    async with chat.edit((await chat.turns())[2].id, "other") as turn:
        turn.emit("another answer")
    report(f"forked {fork.id}")
    report(f"made {chat.id}")
    return chat


async def step(ledger: Ledger, clock: FakeClock, random: Random, id: str) -> None:
    """Act on a chat, or advance the clock."""
    what = random.choice(("delete", "delete", "restore", "restore", "purge", "tend", "tend"))
    report(f"will {what} {id}")
    try:
        match what:
            case "delete":
                await ledger.delete(id)
            case "restore":
                await ledger.restore(id)
            case "purge":
                await ledger.delete(id, purge=True)
            case "tend":
                clock.advance(random.choice((0, 4)))
                await ledger._recovery.run_round()
    except errors.ConversationDeleted:
        report(f"refused {what} {id}")
    else:
        report(f"did {what} {id}")


async def main(folder: str, seed: str) -> None:
    random, clock = Random(seed), FakeClock()
    store = await SqliteStore.open(Path(folder) / "chats.db")
    ledger = await Ledger.over(store, limits=LIMITS, clock=clock)
    ids = []
    for number in range(1_000_000):
        if number % 10 == 0:
            ids.append(str((await made(ledger, number)).id))
        await step(ledger, clock, random, random.choice(ids[-3:]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
