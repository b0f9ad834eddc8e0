"""Usage: the stored bytes of an owner and of a share link are counted exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from turnledger.chat import Chat
from turnledger.engine.usage import CountUsage, UsagePage, count_usage
from turnledger.errors import StorageFull, TurnStopped
from turnledger.hosting import Host
from turnledger.model.conversation import BLOCK, ROW, Usage, Within, block_bytes, branch_bytes
from turnledger.model.usage import ModelUsage
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.rows.kit import do, read
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    exchange,
    run_block,
    soon,
)

LONG = "x" * BLOCK
"""An answer larger than a block."""
FULL = replace(LIMITS, owner_bytes=3 * BLOCK)


async def stored_bytes(process: StageProcess, owner: str = "ann") -> int:
    return (await process.ledger.for_owner(owner).usage()).bytes


async def turn_bytes(process: StageProcess, chat: Chat) -> int:
    """Count the bytes of the turns of a conversation and of their logs."""
    turns = await chat.turns(limit=1_000)
    logs = [await read(process.store, do("turn_log", turn.id, owner=chat.owner)) for turn in turns]
    return sum(len(turn.body) for turn in turns) + sum(map(len, logs))


class UsedModels(Contract):
    async def test_usage_is_counted_by_owner_and_model_page_by_page(self, stage: Stage) -> None:
        here, there = await stage.processes()
        reported: list[tuple[str, str, dict[str, Any]]] = [
            ("ann", "", {"model": "small", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
            ("ann", "shop", {"model": "small", "usage": {"input_tokens": 30, "output_tokens": 40}}),
            ("ann", "", {"model": "large", "usage": {"prompt_tokens": -1, "completion_tokens": "many"}}),
            ("bob", "shop", {"model": "x" * 600, "usage": [1]}),
            ("bob", "", {}),
        ]
        sizes: dict[tuple[str, str | None], int] = {}
        for owner, scope, details in reported:
            chat = await here.chat(owner=owner, scope=scope)
            async with chat.turn("q") as running:
                running.details.update(details)
                await running.add("Yes.")
            name = (owner, details.get("model") if owner == "ann" else None)
            sizes[name] = sizes.get(name, 0) + await turn_bytes(here, chat)
        counts = {("ann", "large"): (1, 0, 0), ("ann", "small"): (2, 33, 44), ("bob", None): (2, 0, 0)}
        expected = [
            ModelUsage(
                owner=owner,
                model=model,
                turns=turns,
                input_tokens=read,
                output_tokens=written,
                bytes=sizes[owner, model],
            )
            for (owner, model), (turns, read, written) in counts.items()
        ]
        assert await self._counted(there, CountUsage(None)) == expected
        assert await self._counted(there, CountUsage(None, turns=1)) == expected
        assert await self._counted(there, CountUsage(None, bytes=1)) == expected
        shop = await self._counted(there, CountUsage(None, Within("shop"), turns=2))
        assert [(each.owner, each.model) for each in shop] == [("ann", "small"), ("bob", None)]
        assert [each.turns for each in shop] == [1, 1]
        page = await Host(there.ledger).usage()
        assert (len(page.data), await Host(there.ledger).usage(after=page.next)) == (3, UsagePage((), None))

    async def _counted(self, process: StageProcess, request: CountUsage) -> list[ModelUsage]:
        """Add up the pages."""
        found: dict[tuple[str, str | None], ModelUsage] = {}
        while True:
            page = await process.store.read_whole(count_usage, request)
            for each in page.data:
                before = found.get((each.owner, each.model))
                found[each.owner, each.model] = each if before is None else before + each
            if page.next is None:
                return sorted(found.values(), key=lambda each: (each.owner, each.model or ""))
            request = structs.replace(request, after=page.next)


class StoredBytes(Contract):
    async def test_chats_and_branches_count_at_least_one_block(self, stage: Stage) -> None:
        here, there = await stage.processes()
        assert await here.ledger.for_owner("ann").usage() == Usage(bytes=0, chats=0)
        chat = await here.chat(owner="ann", title="T")
        assert await there.ledger.for_owner("ann").usage() == Usage(bytes=BLOCK, chats=1)
        await exchange(chat, "q")
        await chat.fork()
        await chat.undo()
        assert await there.ledger.for_owner("ann").usage() == Usage(bytes=3 * BLOCK, chats=2)
        assert await here.ledger.check(at_rest=True) == []

    async def test_titles_metadata_and_tags_count_beyond_a_row(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", metadata={"a": "x" * 400}, tags=["t"])
        assert await stored_bytes(here) == BLOCK
        long = {str(number): "\N{SNOWMAN}" * 500 for number in range(16)}
        await chat.update(metadata=long)
        assert await stored_bytes(here) == BLOCK + block_bytes(16 * 1_500)
        await chat.update(metadata={}, title="\N{SNOWMAN}" * 400)
        assert await stored_bytes(here) == 2 * BLOCK
        assert await here.ledger.check(at_rest=True) == []
        await chat.delete()
        assert await stored_bytes(here) == 2 * BLOCK
        await chat.delete(purge=True)
        assert await stored_bytes(here) == BLOCK
        await here.tend()
        assert await here.ledger.for_owner("ann").usage() == Usage(bytes=0, chats=0)

    async def test_failed_turns_count_with_journal_and_log_until_removed(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([Tool("pay", LONG), LONG, RuntimeError("boom")]), "q" * 5_000)
        with_effects = await stored_bytes(here) - BLOCK
        assert with_effects > ROW + 2 * len(LONG) + 5_000
        assert await here.ledger.check(at_rest=True) == []
        await exchange(chat, "next")  # settles it: journal and log now belong to a turn
        kept = block_bytes(await turn_bytes(here, chat) + ROW)
        assert kept < await stored_bytes(here) < kept + with_effects - len(LONG)
        assert await here.ledger.check(at_rest=True) == []
        stage.clock.advance(LIMITS.attempts_kept + 1)
        await here.tend()
        assert await stored_bytes(here) == kept
        assert await here.ledger.check(at_rest=True) == []

    async def test_journal_taken_up_by_a_retry_counts_once(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([Tool("pay", LONG), RuntimeError("boom")]), "q", idempotency_key="k")
        before = await stored_bytes(here)
        await chat.run(ScriptedModel([Tool("pay", LONG), "Done."]), "q", idempotency_key="k")
        assert await stored_bytes(here) < before + 2 * BLOCK
        assert await here.ledger.check(at_rest=True) == []

    async def test_turn_stopped_in_the_queue_counts(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        holder = await stage.hold_lane(chat, "q1")
        waiting = await stage.queue(chat, ScriptedModel(), "q2")
        before = await stored_bytes(here)
        [ticket] = await stage.tickets(chat)
        await chat.stop(ticket.attempt)
        with pytest.raises(TurnStopped):
            await soon(waiting)
        assert await stored_bytes(here) >= before + ROW
        await holder.finish()
        assert await here.ledger.check(at_rest=True) == []

    async def test_turns_count_in_whole_blocks_per_branch(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(owner="ann")
        await exchange(chat, "q")
        assert await stored_bytes(there) == BLOCK
        answer = "y" * (BLOCK // 5)
        for _ in range(12):
            await exchange(chat, "q", answer)
            size = await turn_bytes(here, chat)
            assert await stored_bytes(there) == branch_bytes(size)
        before = await stored_bytes(here)
        await exchange(await there.chat(owner="ann"), "q")
        assert await stored_bytes(here) == before + BLOCK
        assert await stored_bytes(here, "eve") == 0
        assert await here.ledger.check(at_rest=True) == []

    async def test_branches_count_own_and_copied_turns(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        first = await exchange(chat, "q1", LONG)
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([Tool("pay", LONG), RuntimeError("boom")]), "q2")
        await exchange(chat, "q3")
        one = await stored_bytes(here)
        await run_block(chat.edit(first.id, "q1 again"))
        assert await here.ledger.check(at_rest=True) == []
        two = await stored_bytes(here)
        assert two >= one + 2 * BLOCK  # with a copy of the settled turn
        await chat.undo()
        assert await here.ledger.check(at_rest=True) == []
        three = await stored_bytes(here)
        fork = await chat.fork()
        assert await stored_bytes(here) == three + BLOCK  # both begin with what is there
        await exchange(fork, "q")
        assert await stored_bytes(here) == three + BLOCK
        assert await here.ledger.check(at_rest=True) == []

    async def test_expired_chat_does_not_count(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", expires_after=10)
        await exchange(chat, "q", LONG)
        stage.clock.advance(11)
        await here.tend()
        assert await stored_bytes(here) == 0

    async def test_purged_chat_does_not_count(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=replace(LIMITS, purge_rows=1))
        chat, rest = await here.chat(owner="ann"), await here.chat(owner="ann")
        await exchange(rest, "q")
        for _ in range(3):
            await exchange(chat, "q", LONG)
        seen = [await stored_bytes(here)]
        await chat.delete(purge=True)
        while seen[-1] > BLOCK:
            await there.tend()
            seen.append(await stored_bytes(here))
            assert await there.ledger.check(at_rest=True) == []
        assert seen == sorted(seen, reverse=True)
        assert seen[-1] == BLOCK
        await rest.delete(purge=True)
        for _ in range(3):
            await there.tend()
        assert await stored_bytes(here) == 0

    async def test_turns_that_a_fork_needs_still_count(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        await exchange(chat, "q1", LONG)
        fork = await chat.fork()
        await exchange(chat, "q2", LONG)
        both = await stored_bytes(here)
        await chat.delete(purge=True)
        await here.tend()
        assert 0 < await stored_bytes(here) < both
        assert await here.ledger.check(at_rest=True) == []
        await fork.delete(purge=True)
        await here.tend()
        await here.tend()
        assert await stored_bytes(here) == 0


class LinkUsage(Contract):
    async def test_chats_of_visitors_count_for_their_link(self, stage: Stage) -> None:
        here, there = await stage.processes()
        share, code = await Host(here.ledger).shares.create(scope="shop")
        one, two = [await self._visitor(here, code, number) for number in (1, 2)]
        chat = await here.chat(owner=one, scope="shop")
        await exchange(chat, "q", LONG)
        await exchange(await there.chat(owner=two, scope="shop"), "q")
        [kept] = await Host(there.ledger).shares.list()
        assert (kept.id, kept.bytes, kept.chats) == (share.id, 3 * BLOCK, 2)
        assert await here.ledger.check(at_rest=True) == []
        await chat.delete(purge=True)
        await here.tend()
        [kept] = await Host(there.ledger).shares.list()
        assert (kept.bytes, kept.chats) == (BLOCK, 1)
        assert await here.ledger.check(at_rest=True) == []

    async def test_link_has_the_quota_of_an_owner(self, stage: Stage) -> None:
        here = await stage.process(FULL)
        _, code = await Host(here.ledger).shares.create(scope="shop")
        await self._reach(here, code, "Storage quota reached")

    async def test_link_with_its_own_limits_has_that_quota(self, stage: Stage) -> None:
        here = await stage.process()
        _, code = await Host(here.ledger).shares.create(scope="shop", bytes=3 * BLOCK)
        await self._reach(here, code, "49152 bytes")
        _, code = await Host(here.ledger).shares.create(scope="shop", chats=1)
        await here.chat(owner=await self._visitor(here, code, 1), scope="shop")
        visitor = await self._visitor(here, code, 2)
        with pytest.raises(StorageFull, match="1 chats"):
            await here.chat(owner=visitor, scope="shop")
        with pytest.raises(StorageFull, match="1 chats"):
            await run_block(here.ledger.for_owner(visitor, scope="shop").turn("q"))

    async def _reach(self, here: StageProcess, code: str, message: str) -> None:
        one, two = [
            await here.chat(owner=await self._visitor(here, code, number), scope="shop") for number in (1, 2)
        ]
        await exchange(one, "q", LONG)
        with pytest.raises(StorageFull, match=message):
            await exchange(two, "q")
        third = await self._visitor(here, code, 3)
        with pytest.raises(StorageFull, match=message):
            await here.chat(owner=third, scope="shop")

    async def _visitor(self, here: StageProcess, code: str, number: int) -> str:
        visit = await Host(here.ledger).shares.exchange(code, nonce=f"made-up-by-the-page-of-{number}")
        return visit.token.owner
