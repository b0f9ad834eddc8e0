"""Power loss at every write of a new store, from the first on: it opens, and has every acknowledged turn.

The disk may have kept any sectors of an unsynced write, and may have undone unsynced deletions.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from random import Random

from tests.unit.stores.sqlite.faults import FaultyDisk
from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.engine.check import CheckRequest, check
from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.scripted_model import ScriptedModel

SECONDS = 600
SEEDS = 12
TURNS = 6


def prove() -> None:
    images = sum(asyncio.run(_lose_power_everywhere(seed)) for seed in range(SEEDS))
    print(f"{images} power losses in {SEEDS} new stores: each opens, and no acknowledged turn is lost")


async def _lose_power_everywhere(seed: int) -> int:
    folder = Path(tempfile.mkdtemp())
    path = folder / "chats.db"
    random = Random(seed)
    acknowledged: list[str] = []
    images: list[tuple[int, Path]] = []
    disk = FaultyDisk()

    def lose_power() -> None:
        image = disk.lose_power(path, folder / str(len(images)), random, torn=bool(random.getrandbits(2)))
        images.append((len(acknowledged), image))

    disk.before_each = lose_power
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    ledger = await Ledger.over(store, clock=FakeClock(), random=Random(seed))
    chat = await ledger.conversation()
    for number in range(TURNS):
        await chat.run(ScriptedModel([f"Answer {number}."]), f"Question {number}?")
        acknowledged.append(f"Answer {number}.")
    await ledger.close()
    disk.before_each = None
    for count, image in images:
        await _check(image, chat, acknowledged[:count])
    disk.unregister()
    shutil.rmtree(folder)
    return len(images)


async def _check(image: Path, chat: Chat, acknowledged: list[str]) -> None:
    store = await SqliteStore.open(image, inline=True)
    ledger = await Ledger.over(store, clock=FakeClock(), random=Random(0))
    report = await store.read(check, CheckRequest())
    assert not any(finding.is_damage for finding in report.findings), (image, report.findings)
    if acknowledged:
        turns = await (await ledger.conversation(str(chat.id))).turns()
        found = [turn.text for turn in turns]
        assert found[: len(acknowledged)] == acknowledged, (image, found, acknowledged)
    await ledger.close()
