"""Bytes of a store are damaged, one place at a time: every chat is read as written, or not at all.

That includes text, place (branch, number, parent), kind and times of each turn. Any use raises only
TurnledgerError.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.unit.engine.populated_store import populate, run_turn
from turnledger import Ledger
from turnledger.errors import StoreError, TurnledgerError
from turnledger.model.turn import Turn
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.header import PAGE_SIZE
from turnledger.testing.fake_clock import FakeClock

SECONDS = 900
PLACES = 1500
LONGEST = 8

Result = TypeVar("Result")


def prove() -> None:
    logging.disable(logging.CRITICAL)  # each damage is logged
    asyncio.run(_damage_everywhere())


async def _damage_everywhere() -> None:
    folder = Path(tempfile.mkdtemp())
    path = folder / "chats.db"
    lived = await populate(await SqliteStore.open(path))
    chats = [lived.plain, lived.pending, lived.edited, lived.forked, lived.settled, lived.waiting, lived.kept]
    written = {(str(chat.id), chat.owner): await chat.turns() for chat in chats}
    await lived.ledger.close()
    whole = path.read_bytes()
    used = [at for at in range(PAGE_SIZE, len(whole) - LONGEST) if whole[at]]
    random = Random(7)
    met: Counter[str] = Counter()
    for place in range(PLACES):
        damaged = bytearray(whole)
        at, length = random.choice(used), random.choice((1, 1, 2, LONGEST))
        damaged[at : at + length] = random.randbytes(length)
        image = folder / f"{place}.db"
        image.write_bytes(damaged)
        met.update(await _use(image, written))
        _remove(image)
    shutil.rmtree(folder)
    print(f"{PLACES} damaged places: " + ", ".join(f"{count} × {code}" for code, count in met.most_common()))


def _remove(image: Path) -> None:
    for each in image.parent.glob(f"{image.name}*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()


async def _use(path: Path, written: dict[tuple[str, str], list[Turn]]) -> Counter[str]:
    """Read and write everything; count the outcomes."""
    met: Counter[str] = Counter()

    async def attempt(work: Awaitable[Result]) -> Result | None:
        try:
            result = await work
        except TurnledgerError as problem:
            met[problem.code] += 1
            return None
        met["as it was"] += 1
        return result

    try:
        store = await SqliteStore.open(path, inline=True)
    except StoreError as problem:
        return Counter([problem.code])
    try:
        ledger = await Ledger.over(store, clock=FakeClock(), random=Random(3))
    except StoreError as problem:
        return Counter([problem.code])
    for (id, owner), expected in written.items():
        chat = await attempt(ledger.for_owner(owner).conversation(id, create=False))
        if chat is None:
            continue
        turns = await attempt(chat.turns())
        assert turns in (expected, None), (path, turns)
        for turn in turns or ():
            await attempt(chat.outcome(turn.id))
        await attempt(chat.attempts())
        await attempt(chat.branches())
        await attempt(run_turn(chat, "Are you there?"))
    owner = next(iter(written))[1]
    await attempt(ledger.for_owner(owner).list())
    await attempt(ledger.for_owner(owner).search("Yes"))
    await attempt(ledger.check())
    await ledger.close()
    return met
