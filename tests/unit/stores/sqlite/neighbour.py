"""Another process on the same store, for tests: `python -m tests.unit.stores.sqlite.neighbour WHAT PATH …`.

It prints `ready` when its work is done, and exits when its input ends.
"""

import asyncio
import sys

from tests.unit.stores.sqlite.operations import add_claims, beat
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import SqliteStore


async def main(what: str, path: str, *more: str) -> None:
    store = await SqliteStore.open(path)
    if what == "hold":
        await store.keep_lease(LeaseId(more[0]), every=60)
    elif what == "write":
        await store.transact_whole(beat, LeaseId(more[0]))
    elif what == "hammer":
        owner, count = more
        await asyncio.gather(*(store.transact(add_claims, (str(n),), owner) for n in range(int(count))))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
