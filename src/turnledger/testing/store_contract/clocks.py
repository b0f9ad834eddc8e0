"""Clocks: a wall clock that jumps ends and forgets nothing; one that has been right for long does."""

from __future__ import annotations

from dataclasses import replace as limited
from typing import Any

import pytest

from turnledger.engine.ports import ClockMark, Store
from turnledger.errors import ConversationDeleted, ConversationExpired, TurnReplayed
from turnledger.model.retention import ResetPolicy
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.rows import begun, do, read, turn, write
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    OpenStore,
    Stage,
    StageProcess,
    exchange,
    soon,
)

HOUR = 3600.0
DAY = 24 * HOUR
YEARS = 3650 * DAY
SHORT = limited(
    LIMITS,
    restore_time=10 * HOUR,
    attempts_kept=10 * HOUR,
    retain_for=10 * HOUR,
    tokens_kept=10 * HOUR,
)
OURS: dict[str, Any] = {"expires_after": 10 * HOUR}
IDLE = ResetPolicy.idle(10 * HOUR)
JUMPS = pytest.mark.parametrize("seconds", [2 * HOUR, 11 * HOUR, YEARS, -2 * HOUR, -DAY, -YEARS])


class Kept:
    """Something of each kind that time ends."""

    def __init__(self, process: StageProcess) -> None:
        self.process = process

    async def make(self, name: str) -> None:
        here = self.process
        self.name = name
        self.lasting = await here.chat(conversation_key=f"{name} l", owner="ann")
        await exchange(self.lasting, "q", "a")
        self.expiring = await here.chat(conversation_key=f"{name} e", **OURS)
        await exchange(self.expiring, "q", "a", idempotency_key=name)
        self.keyed = await here.chat(conversation_key=f"{name} k", reset=IDLE)
        self.deleted = await here.chat()
        await exchange(self.deleted, "q", "a")
        with pytest.raises(RuntimeError):
            await self.lasting.run(ScriptedModel([RuntimeError()]), "failing")
        await self.deleted.delete()
        self.token, _ = await here.ledger.tokens.create(owner="ann", scopes=["chats:read"], lifetime=1.0)

    async def all_there(self, process: StageProcess | None = None) -> None:
        """Everything is as it was."""
        process = process or self.process
        await process.tend()
        await process.ledger.retain()
        assert len(await (await process.chat(self.lasting)).turns()) == 1
        assert len(await (await process.chat(self.expiring)).turns()) == 1
        assert (await process.chat(conversation_key=f"{self.name} k")).id == self.keyed.id
        assert len(await (await process.chat(self.lasting)).attempts()) == 1
        assert (await soon(self._said_again(process))).input[-1].text == "q"
        assert self.deleted.id in [each.id for each in await process.listed(deleted=True)]
        tokens = await read(process.store, do("tokens", "ann", None, 99))
        assert self.token.id in [each.id for each in tokens]

    async def _said_again(self, process: StageProcess) -> Any:
        chat = await process.chat(self.expiring)
        with pytest.raises(TurnReplayed) as replayed:
            async with chat.turn("q", idempotency_key=self.name):
                raise AssertionError("it ran again")
        return replayed.value.turn

    async def all_gone(self) -> None:
        """Everything has ended that time ends."""
        process = self.process
        await process.tend()
        await process.ledger.retain()
        for chat, problem in ((self.lasting, ConversationDeleted), (self.expiring, ConversationExpired)):
            with pytest.raises(problem):
                await process.chat(chat)
        with pytest.raises(ConversationDeleted):
            await process.ledger.restore(self.deleted.id)
        assert (await process.chat(conversation_key=f"{self.name} k")).id != self.keyed.id
        assert await read(process.store, do("all_claims", None, 99)) == []


def jump(stage: Stage, seconds: float) -> None:
    """Set the wall clock, and nothing else."""
    stage.clock.set_wall_clock(stage.clock.now_ms() + round(seconds * 1000))


class Clocks(Contract):
    @JUMPS
    async def test_a_wall_clock_that_is_wrong_for_a_moment_ends_nothing(
        self, stage: Stage, seconds: float
    ) -> None:
        here = await stage.process(SHORT)
        before, meanwhile = Kept(here), Kept(here)
        await before.make("before")
        jump(stage, seconds)
        await before.all_there()
        await meanwhile.make("meanwhile")
        await meanwhile.all_there()
        stage.clock.advance(0.5)
        jump(stage, -seconds)
        for passed in (0.0, HOUR - 1, 2.0, HOUR):
            stage.clock.advance(passed)
            await here.store.beat()
            await before.all_there()
            await meanwhile.all_there()

    async def test_a_wall_clock_that_is_right_for_long_ends_what_is_due(self, stage: Stage) -> None:
        """Not the jump itself, but an hour in which both clocks agree."""
        here = await stage.process(SHORT)
        kept = Kept(here)
        await kept.make("kept")
        jump(stage, 2 * DAY)
        await kept.all_there()
        for _ in range(4):
            stage.clock.advance((HOUR - 1) / 4)
            await kept.all_there()
        stage.clock.advance(1)
        await kept.all_gone()

    @JUMPS
    async def test_a_machine_that_starts_with_a_wrong_clock_ends_nothing(
        self, stage: Stage, seconds: float
    ) -> None:
        before = Kept(await stage.process(SHORT))
        await before.make("before")
        right = stage.clock.now_ms()
        stage.clock.restart(right + round(seconds * 1000))
        here = await stage.process(SHORT)
        meanwhile = Kept(here)
        await before.all_there(here)
        await meanwhile.make("meanwhile")
        stage.clock.advance(60)
        stage.clock.set_wall_clock(right + 60_000)
        for passed in (0.0, HOUR - 1, 2.0, HOUR):
            stage.clock.advance(passed)
            await before.all_there(here)
            await meanwhile.all_there()

    async def test_time_in_which_the_machine_slept_counts(self, stage: Stage) -> None:
        here = await stage.process(SHORT)
        kept = Kept(here)
        await kept.make("kept")
        stage.clock.sleep(2 * DAY)
        await kept.all_gone()

    async def test_processes_that_live_for_a_moment_trust_each_other(self, stage: Stage) -> None:
        """None of them sees an hour pass; the store knows that it has."""
        kept = Kept(await stage.process(SHORT))
        await kept.make("kept")
        stage.clock.restart(stage.clock.now_ms() + round(2 * DAY * 1000))
        await kept.all_there(await stage.process(SHORT))
        stage.clock.advance(HOUR - 1)
        await kept.all_there(await stage.process(SHORT))
        stage.clock.advance(1)
        kept.process = await stage.process(SHORT)
        await kept.all_gone()

    async def test_the_clock_mark_is_the_last_one_saved(self, stores: list[Store]) -> None:
        assert await read(stores[0], do("clock_mark")) is None
        for mark in (ClockMark("one", 1, -2, 0), ClockMark("two", 3, 4, 5)):
            await write(stores[0], do("save_clock_mark", mark))
            assert await read(stores[1], do("clock_mark")) == mark

    async def test_the_newest_time_is_that_of_the_last_turn_or_change(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await read(store, do("newest_time")) is None
        found = await begun(store)
        await write(store, do("add_turn", turn(found.branch, 1)))
        assert await read(store, do("newest_time")) == turn(found.branch, 1).committed_at
        await store.close()
