"""Live updates: an owner receives the changes of their chats in order, and learns of every gap."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turnledger.engine.limits import Limits
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import LedgerClosed, NoNewInput, TooManyReaders
from turnledger.hosting import Host
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import Within
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Stage,
    StageProcess,
    chain,
    chats_of,
    exchange,
    soon,
)


class Heard:
    """What one who follows was told, as kinds and what they are about."""

    def __init__(self, changes: AsyncIterator[LiveChange]) -> None:
        self._changes = changes

    async def next(self) -> LiveChange:
        return await soon(anext(self._changes))

    async def kinds(self, count: int) -> list[str]:
        return [(await self.next()).kind.value for _ in range(count)]

    async def until(self, kind: ChangeKind) -> list[LiveChange]:
        heard = [await self.next()]
        while heard[-1].kind is not kind:
            heard.append(await self.next())
        return heard


@asynccontextmanager
async def following(process: StageProcess, **options: Any) -> AsyncIterator[Heard]:
    """Follow from now on, or from after a position."""
    changes = chats_of(process.ledger, options).changes(**options)
    heard = Heard(changes)
    try:
        if "after" not in options:
            assert (await heard.next()).kind is ChangeKind.START
        yield heard
    finally:
        await changes.aclose()  # type: ignore[attr-defined]


class TestChanges:
    async def test_a_turn_is_told_in_all_processes(self, stage: Stage) -> None:
        here, there = await stage.processes()
        async with following(here) as own, following(there) as other:
            chat = await here.chat(title="T")
            turn = await exchange(chat, "hello")
            for heard in (own, other):
                created, running, committed = [await heard.next() for _ in range(3)]
                assert [each.kind for each in (created, running, committed)] == [
                    ChangeKind.CHAT_CREATED,
                    ChangeKind.TURN_RUNNING,
                    ChangeKind.TURN_COMMITTED,
                ]
                assert {created.conversation, running.conversation} == {chat.id}
                assert running.turn == committed.turn == turn.id
                assert (committed.branch, committed.detail) == (turn.branch, "completed")
                assert created.chat.id == chat.id

    async def test_a_chat_that_a_turn_makes_is_told_of_once(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process) as heard:
            turn = await soon(process.ledger.run(ScriptedModel(["Yes."]), "hello", conversation_key="k"))
            told = await heard.until(ChangeKind.TURN_COMMITTED)
            assert [each.kind for each in told].count(ChangeKind.CHAT_CREATED) == 1
            assert told[-1].turn == turn.id

    async def test_a_chat_that_is_not_there_yet_is_not_told_as_changed(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process) as heard:

            async def rename_and_fail(turn: RunningTurn) -> None:
                await (await process.ledger.conversation(turn.conversation.id)).update(title="Early")
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await soon(process.ledger.run(rename_and_fail, "hello"))
            told = await heard.until(ChangeKind.TURN_FAILED)
            assert [each.kind for each in told] == [ChangeKind.TURN_RUNNING, ChangeKind.TURN_FAILED]

    async def test_what_is_said_about_a_chat_comes_as_it_is_by_now(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat()
        async with following(process) as heard:
            start = await process.ledger.position()
            await chat.update(title="First")
            await chat.update(title="Second")
            await heard.kinds(2)
        async with following(process, after=start) as heard:
            told = [await heard.next() for _ in range(2)]
            assert [each.kind for each in told] == [ChangeKind.CHAT_CHANGED] * 2
            assert [each.chat.title for each in told if each.chat] == ["Second"] * 2
            assert told[0].chat.revision == 3

    async def test_stops_are_told_by_what_they_left(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        for policy, kind, detail in (
            ("keep", ChangeKind.TURN_COMMITTED, "interrupted"),
            ("discard", ChangeKind.TURN_STOPPED, None),
        ):
            holder = await stage.hold_lane(chat)
            async with following(there) as heard:
                await soon((await there.chat(chat)).stop(policy=policy))
                told = await heard.next()
                assert (told.kind, told.detail) == (kind, detail)
            holder.gate.release()

    async def test_who_waits_is_told_of_and_so_is_who_gives_up(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        async with following(there) as heard:
            waiting = await stage.queue(chat, ScriptedModel(["Yes."]), "second")
            queued = await heard.next()
            assert queued.kind is ChangeKind.TURN_QUEUED
            waiting.cancel()
            withdrawn = await heard.next()
            assert (withdrawn.kind, withdrawn.turn) == (ChangeKind.TURN_WITHDRAWN, queued.turn)
            second = await stage.queue(chat, ScriptedModel(["Yes."]), "third")
            queued = await heard.next()
            await soon(chat.stop(queued.turn))
            stopped = await heard.next()
            assert (stopped.kind, stopped.turn) == (ChangeKind.TURN_STOPPED, queued.turn)
            await holder.finish()
            second.cancel()

    async def test_the_turns_of_a_dead_process_are_told_by_who_buries_it(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        await stage.queue(chat, ScriptedModel(["Yes."]), "second")
        here.store.ignores_hints = True
        async with following(there) as heard:
            await stage.bury_others(there)
            told = [await heard.next() for _ in range(2)]
            assert {each.kind for each in told} == {ChangeKind.TURN_FAILED, ChangeKind.TURN_WITHDRAWN}
            assert "process_died" in {each.detail for each in told}
        holder.task.cancel()

    async def test_what_is_settled_is_told_before_the_turn_that_settles_it(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat(title="T")
        async with following(process) as heard:
            with pytest.raises(ZeroDivisionError):
                await soon(chat.run(ScriptedModel([Tool("pay", result="paid"), ZeroDivisionError()]), "Pay."))
            await heard.until(ChangeKind.TURN_FAILED)
            await exchange(chat, "go on")
            told = await heard.until(ChangeKind.TURN_RUNNING)
            assert [(each.kind, each.detail) for each in told[:-1]] == [
                (ChangeKind.TURN_COMMITTED, "settled")
            ]

    async def test_edits_undo_and_switch_tell_which_branch_is_shown(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat()
        first = (await chat.info()).branch
        turns = await chain(chat, 2)
        async with following(process) as heard:
            edited = await soon(chat.edit(turns[1].id, "other").run(ScriptedModel(["No."])))
            told = await heard.until(ChangeKind.TURN_COMMITTED)
            assert [(each.kind, each.branch) for each in told[1:]] == [
                (ChangeKind.CHAT_SWITCHED, edited.branch),
                (ChangeKind.TURN_COMMITTED, edited.branch),
            ]
            await soon(chat.undo())
            undone = await heard.next()
            assert undone.kind is ChangeKind.CHAT_SWITCHED
            assert undone.branch == (await chat.info()).branch
            await soon(chat.switch(first))
            assert (await heard.next()).branch == first
            fork = await soon(chat.fork())
            forked = await heard.next()
            assert (forked.kind, forked.conversation) == (ChangeKind.CHAT_CREATED, fork.id)

    async def test_a_chat_that_comes_from_a_file_is_told_of_once(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat()
        await chain(chat, 2)
        file = b"".join([line async for line in process.ledger.export(chat.id)])
        async with following(process, owner="bob") as heard:
            reports = [
                report
                for _ in range(2)
                async for report in process.ledger.for_owner("bob").import_lines((file,))
            ]
            made = await heard.next()
            assert (made.kind, made.conversation) == (ChangeKind.CHAT_CREATED, reports[-1].chat)
            last = await process.chat(owner="bob")
            assert (await heard.next()).conversation == last.id

    async def test_a_deletion_is_told_with_what_ends_by_it(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        async with following(there) as heard:
            await soon((await there.chat(chat)).delete())
            told = await heard.until(ChangeKind.CHAT_DELETED)
            assert [each.kind for each in told] == [ChangeKind.TURN_FAILED, ChangeKind.CHAT_DELETED]
            assert (told[-1].conversation, told[-1].chat) == (chat.id, None)
        holder.task.cancel()

    async def test_a_chat_without_a_committed_turn_is_neither_deleted_nor_restored_for_others(
        self, stage: Stage
    ) -> None:
        [process] = await stage.processes(1)
        async with following(process) as heard:
            with pytest.raises(ZeroDivisionError):
                await soon(
                    process.ledger.run(ScriptedModel([ZeroDivisionError()]), "Hi", conversation_key="k")
                )
            failed = (await heard.until(ChangeKind.TURN_FAILED))[-1]
            chat = await process.ledger.conversation(failed.conversation)
            await chat.delete()
            await process.ledger.restore(chat.id)
            await exchange(chat, "Hello")
            told = await heard.until(ChangeKind.TURN_COMMITTED)
            assert [each.kind for each in told] == [
                ChangeKind.TURN_RUNNING,
                ChangeKind.CHAT_CREATED,
                ChangeKind.TURN_COMMITTED,
            ]

    async def test_what_is_undone_is_not_told(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat()
        position = await process.ledger.position()
        with pytest.raises(NoNewInput):
            await soon(chat.run(ScriptedModel(["Yes."]), ""))
        assert await process.ledger.position() == position

    async def test_nobody_is_told_of_others_nor_of_internal_chats(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process, owner="ann") as heard:
            await exchange(await process.chat(owner="bob"), "hello")
            await exchange(await process.chat(owner="ann", internal=True), "hello")
            anns = await process.chat(owner="ann")
            assert (await heard.next()).conversation == anns.id

    async def test_who_is_confined_to_a_scope_is_told_of_that_only(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process, within=Within("shop")) as heard:
            start = await process.ledger.position()
            await exchange(await process.chat(scope="desk"), "hello")
            shop = await process.chat(scope="shop")
            assert (await heard.next()).conversation == shop.id
        async with following(process, within=Within("shop"), after=start) as heard:
            assert (await heard.next()).conversation == shop.id

    async def test_who_is_confined_to_one_chat_is_told_of_that_only(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        first, second = await process.chat(), await process.chat()
        async with following(process, within=Within(chat=second.id)) as heard:
            await exchange(first, "hello")
            turn = await exchange(second, "hello")
            assert (await heard.next()).turn == turn.id

    async def test_who_was_cut_off_goes_on_where_he_was(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        async with following(here) as heard:
            await chain(chat, 1)
            last = (await heard.until(ChangeKind.TURN_COMMITTED))[-1].position
        turns = [await exchange(chat, "while nobody heard"), await exchange(chat, "nor here")]
        async with following(there, after=str(last)) as heard:
            told = [await heard.next() for _ in range(4)]
            assert [each.turn for each in told] == [turns[0].id] * 2 + [turns[1].id] * 2
            later = await exchange(chat, "live again")
            assert (await heard.next()).turn == later.id

    async def test_what_is_not_kept_is_told_as_a_gap(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        position = await process.ledger.position()
        chat = await process.chat()
        await chain(chat, 2)
        stage.clock.advance(LIMITS.changes_kept + 1)
        await process.tend()
        for after in (position, "none such", "ffff-00000000", ""):
            async with following(process, after=after) as heard:
                gap = await heard.next()
                assert (gap.kind, str(gap.position)) == (ChangeKind.GAP, await process.ledger.position())
                turn = await exchange(chat, "after the gap")
                assert (await heard.next()).turn == turn.id

    async def test_so_many_follow_and_no_more(self, stage: Stage) -> None:
        process = await stage.process(Limits(lease_time=600.0, flush_every=6_000.0, readers=1))
        async with following(process):
            with pytest.raises(TooManyReaders):
                await anext(process.ledger.changes())
        async with following(process):
            assert Host(process.ledger).at_work().readers == 1
        assert Host(process.ledger).at_work().readers == 0

    async def test_closing_ends_it(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process) as heard:
            waiting = stage.start(heard.next())
            await process.ledger.close()
            with pytest.raises(LedgerClosed):
                await soon(waiting)
