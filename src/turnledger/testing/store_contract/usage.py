"""Usage: what is stored for an owner is counted exactly, and bounded where it is to be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnledger.chat import Chat
from turnledger.engine.retries import Retry
from turnledger.errors import StorageFull, TurnReplayed
from turnledger.model.usage import BLOCK
from turnledger.testing.scripted_model import ScriptedModel, Step, Tool
from turnledger.testing.store_contract.rows import do, read
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Process,
    Stage,
    exchange,
    said,
    soon,
    tell,
    user,
)

LONG = "x" * BLOCK
"""An answer that takes more than a block."""
FULL = replace(LIMITS, owner_bytes=3 * BLOCK)


async def stored(process: Process, owner: str = "ann") -> int:
    return (await process.ledger.usage(owner=owner)).bytes


async def in_turns(process: Process, chat: Chat) -> int:
    """The bytes of the turns that a conversation shows, and of their logs."""
    turns = await chat.turns(limit=1_000)
    logs = [await read(process.store, do("turn_log", turn.id)) for turn in turns]
    return sum(len(turn.body) for turn in turns) + sum(map(len, logs))


async def fill(chat: Chat) -> None:
    """Store as much as FULL allows."""
    await exchange(chat, "q1", LONG)
    await exchange(chat, "q2", LONG)


class Counting(Contract):
    async def test_a_new_owner_stores_nothing(self, stage: Stage) -> None:
        here = await stage.process()
        assert await stored(here) == 0
        await here.chat(owner="ann", title="T")
        assert await stored(here) == 0

    async def test_turns_are_counted_in_whole_blocks_of_their_branch(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(owner="ann")
        await exchange(chat, "q")
        assert await stored(there) == BLOCK
        answer = "y" * (BLOCK // 5)
        for _ in range(12):
            await exchange(chat, "q", answer)
            size = await in_turns(here, chat)
            assert await stored(there) == -(-size // BLOCK) * BLOCK
        other = await there.chat(owner="ann")
        before = await stored(here)
        await exchange(other, "q")
        assert await stored(here) == before + BLOCK
        assert await stored(here, "eve") == 0
        assert await here.ledger.check(at_rest=True) == []

    async def test_what_is_kept_or_settled_counts_and_what_failed_does_not(self, stage: Stage) -> None:
        here = await stage.process()
        failing, kept, settled = [await here.chat(owner=owner) for owner in ("ann", "ben", "cleo")]
        boom: list[Step] = [LONG, RuntimeError("boom")]
        with pytest.raises(RuntimeError):
            await failing.run(ScriptedModel(boom), "q")
        with pytest.raises(RuntimeError):
            await kept.run(ScriptedModel(boom), "q", on_failure="keep")
        with pytest.raises(RuntimeError):
            await settled.run(ScriptedModel([Tool("pay", LONG), *boom]), "q")
        assert [await stored(here, owner) for owner in ("ann", "ben", "cleo")] == [0, 2 * BLOCK, 0]
        await exchange(settled, "next")
        size = await in_turns(here, settled)
        assert size > BLOCK
        assert await stored(here, "cleo") == -(-size // BLOCK) * BLOCK
        assert await here.ledger.check(at_rest=True) == []

    async def test_branches_count_their_own_turns_and_what_they_carry_along(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        first = await exchange(chat, "q1", LONG)
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([Tool("pay", LONG), RuntimeError("boom")]), "q2")
        await exchange(chat, "q3")
        one = await stored(here)
        await tell(chat.edit(first.id, "q1 again"))
        assert await here.ledger.check(at_rest=True) == []
        two = await stored(here)
        assert two >= one + 2 * BLOCK  # the settled turn went along
        await chat.undo()
        assert await here.ledger.check(at_rest=True) == []
        fork = await chat.fork()
        assert await stored(here) == two  # both begin with what is there
        await exchange(fork, "q")
        assert await stored(here) == two + BLOCK
        assert await here.ledger.check(at_rest=True) == []

    async def test_what_is_purged_no_longer_counts(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=replace(LIMITS, purge_rows=1))
        chat, rest = await here.chat(owner="ann"), await here.chat(owner="ann")
        await exchange(rest, "q")
        for _ in range(3):
            await exchange(chat, "q", LONG)
        seen = [await stored(here)]
        await chat.delete(purge=True)
        while seen[-1] > BLOCK:
            await there.tend()
            seen.append(await stored(here))
            assert await there.ledger.check(at_rest=True) == []
        assert seen == sorted(seen, reverse=True)
        assert seen[-1] == BLOCK
        await rest.delete(purge=True)
        for _ in range(3):
            await there.tend()
        assert await stored(here) == 0

    async def test_turns_that_a_fork_needs_count_on(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        await exchange(chat, "q1", LONG)
        fork = await chat.fork()
        await exchange(chat, "q2", LONG)
        both = await stored(here)
        await chat.delete(purge=True)
        await here.tend()
        assert 0 < await stored(here) < both
        assert await here.ledger.check(at_rest=True) == []
        await fork.delete(purge=True)
        await here.tend()
        await here.tend()
        assert await stored(here) == 0

    async def test_what_has_expired_no_longer_counts(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", expires_after=10)
        await exchange(chat, "q", LONG)
        stage.clock.advance(11)
        await here.tend()
        assert await stored(here) == 0

    async def test_it_is_there_after_a_restart(self, stage: Stage) -> None:
        if not self.capabilities.survives_restart:
            pytest.skip("nothing survives")
        here = await stage.process()
        await exchange(await here.chat(owner="ann"), "q", LONG)
        before = await stored(here)
        assert await stored(await stage.restart()) == before > 0


class Bounded(Contract):
    async def test_who_stores_as_much_as_may_be_begins_no_turn(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=FULL)
        chat = await here.chat(owner="ann", conversation_key="k")
        await exchange(chat, "q1", LONG)
        await exchange(chat, "q2", LONG)
        before = await chat.turns()
        same = await there.chat(chat)
        for refused in (
            chat.turn("q3"),
            same.turn("q3", on_busy="interrupt"),
            chat.resent([user("q3")], sent="new"),
            chat.edit(before[0].id, "q3"),
            chat.regenerate(),
            there.ledger.turn("q3", conversation_key="k", owner="ann"),
            there.ledger.turn("q3", owner="ann"),
        ):
            with pytest.raises(StorageFull, match="Purge conversations"):
                await tell(refused)
        assert await chat.turns() == before
        assert await chat.attempts() == []
        assert len(await here.listed(owner="ann")) == 1
        await exchange(await here.chat(owner="eve"), "q")

    async def test_what_was_answered_is_answered_again(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=FULL)
        chat = await here.chat(owner="ann")
        once = await exchange(chat, "q1", LONG, idempotency_key="i")
        asked = chat.turn("q2", retry=Retry(b"digest"))
        lost = await tell(asked, LONG)
        here.ledger.lost(asked)
        await here.tend()
        same = await there.chat(chat)
        assert await exchange(same, "q1", idempotency_key="i") == once
        with pytest.raises(TurnReplayed) as replay:
            await tell(same.turn("q2", retry=Retry(b"digest", 1)))
        assert replay.value.turn == lost

    async def test_what_runs_goes_on_and_what_waits_is_refused(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        holder = await stage.hold_lane(chat, "q1")
        waiting = await stage.queue(chat, ScriptedModel(), "q2")
        await fill(other)
        await holder.finish()
        with pytest.raises(StorageFull):
            await soon(waiting)
        assert await said(chat) == ["q1", "Working done."]
        assert await stage.tickets(chat) == []

    async def test_everything_but_a_turn_can_be_done(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat = await here.chat(owner="ann")
        await fill(chat)
        assert len(await chat.turns()) == 2
        await chat.update(title="T")
        await chat.flag((await chat.turns())[0].id, to_model=False)
        await chat.undo()
        await chat.fork()
        assert await chat.stop() is None

    async def test_there_is_room_again_after_a_purge(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        await fill(chat)
        with pytest.raises(StorageFull):
            await exchange(other, "q")
        await chat.delete(purge=True)
        await here.tend()
        await exchange(other, "q")

    async def test_without_a_bound_nothing_is_refused(self, stage: Stage) -> None:
        here, there = await stage.process(FULL), await stage.process()
        chat = await here.chat(owner="ann")
        await fill(chat)
        await exchange(await there.chat(chat), "q3")
