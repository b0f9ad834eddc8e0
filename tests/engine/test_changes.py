"""Live updates: an owner receives the changes of their chats in order and is notified of every gap."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turnledger.chat import Chat
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


class ReceivedChanges:
    """The changes that one follower receives."""

    def __init__(self, changes: AsyncIterator[LiveChange]) -> None:
        self._changes = changes

    async def next(self) -> LiveChange:
        return await soon(anext(self._changes))

    async def kinds(self, count: int) -> list[str]:
        return [(await self.next()).kind.value for _ in range(count)]

    async def until(self, kind: ChangeKind) -> list[LiveChange]:
        changes = [await self.next()]
        while changes[-1].kind is not kind:
            changes.append(await self.next())
        return changes


@asynccontextmanager
async def following(process: StageProcess, **options: Any) -> AsyncIterator[ReceivedChanges]:
    """Follow from now on, or from after a position."""
    changes = chats_of(process.ledger, options).changes(**options)
    received = ReceivedChanges(changes)
    try:
        if "after" not in options:
            assert (await received.next()).kind is ChangeKind.START
        yield received
    finally:
        await changes.aclose()  # type: ignore[attr-defined]


class TestChanges:
    async def test_turn_is_reported_as_created_running_and_committed_in_every_process(
        self, here: StageProcess, there: StageProcess
    ) -> None:
        async with following(here) as own, following(there) as other:
            chat = await here.chat(title="T")
            turn = await exchange(chat, "hello")
            for received in (own, other):
                created, running, committed = [await received.next() for _ in range(3)]
                assert [each.kind for each in (created, running, committed)] == [
                    ChangeKind.CHAT_CREATED,
                    ChangeKind.TURN_RUNNING,
                    ChangeKind.TURN_COMMITTED,
                ]
                assert {created.conversation, running.conversation} == {chat.id}
                assert running.turn == committed.turn == turn.id
                assert (committed.branch, committed.detail) == (turn.branch, "completed")
                assert created.chat.id == chat.id

    async def test_chat_created_by_a_turn_is_reported_once(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process) as received:
            turn = await soon(process.ledger.run(ScriptedModel(["Yes."]), "hello", conversation_key="k"))
            changes = await received.until(ChangeKind.TURN_COMMITTED)
            assert [each.kind for each in changes].count(ChangeKind.CHAT_CREATED) == 1
            assert changes[-1].turn == turn.id

    async def test_title_by_a_model_is_reported_as_a_chat_change(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "hello")
        async with following(there) as received:
            await Host(here.ledger).name_by_model(chat.id, "By a model")
            change = await received.next()
            assert (change.kind, change.chat.title) == (ChangeKind.CHAT_CHANGED, "By a model")

    async def test_unlisted_chat_that_is_renamed_reports_no_chat_change(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process) as received:

            async def rename_and_fail(turn: RunningTurn) -> None:
                await (await process.ledger.conversation(turn.conversation.id)).update(title="Early")
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await soon(process.ledger.run(rename_and_fail, "hello"))
            changes = await received.until(ChangeKind.TURN_FAILED)
            assert [each.kind for each in changes] == [ChangeKind.TURN_RUNNING, ChangeKind.TURN_FAILED]

    async def test_chat_change_read_later_carries_the_current_title(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat()
        async with following(process) as received:
            start = await process.ledger.position()
            await chat.update(title="First")
            await chat.update(title="Second")
            await received.kinds(2)
        async with following(process, after=start) as received:
            changes = [await received.next() for _ in range(2)]
            assert [each.kind for each in changes] == [ChangeKind.CHAT_CHANGED] * 2
            assert [each.chat.title for each in changes if each.chat] == ["Second"] * 2
            assert changes[0].chat.revision == 3

    async def test_stopped_turn_is_reported_as_interrupted_or_stopped_by_its_policy(
        self, stage: Stage, here: StageProcess, there: StageProcess
    ) -> None:
        chat = await here.chat(title="T")
        for policy, kind, detail in (
            ("keep", ChangeKind.TURN_COMMITTED, "interrupted"),
            ("discard", ChangeKind.TURN_STOPPED, None),
        ):
            holder = await stage.hold_lane(chat)
            async with following(there) as received:
                await soon((await there.chat(chat)).stop(policy=policy))
                change = await received.next()
                assert (change.kind, change.detail) == (kind, detail)
            holder.gate.release()

    async def test_queued_turn_is_reported_as_queued_then_withdrawn_or_stopped(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        async with following(there) as received:
            waiting = await stage.queue(chat, ScriptedModel(["Yes."]), "second")
            queued = await received.next()
            assert queued.kind is ChangeKind.TURN_QUEUED
            waiting.cancel()
            withdrawn = await received.next()
            assert (withdrawn.kind, withdrawn.turn) == (ChangeKind.TURN_WITHDRAWN, queued.turn)
            second = await stage.queue(chat, ScriptedModel(["Yes."]), "third")
            queued = await received.next()
            await soon(chat.stop(queued.turn))
            stopped = await received.next()
            assert (stopped.kind, stopped.turn) == (ChangeKind.TURN_STOPPED, queued.turn)
            await holder.finish()
            second.cancel()

    async def test_flags_are_reported_once_and_only_if_they_change(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        turn = await exchange(chat, "Hello", "Hi.")
        async with following(there) as received:
            for to_model in (False, False, True):
                await chat.flag(turn.id, to_model=to_model)
            await chat.update(title="U")
            changes = await received.until(ChangeKind.CHAT_CHANGED)
            flagged = (ChangeKind.TURN_FLAGGED, chat.id, turn.id)
            assert [(each.kind, each.conversation, each.turn) for each in changes[:-1]] == [flagged] * 2

    async def test_turns_of_a_dead_process_are_reported_by_the_process_that_takes_over(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
        holder = await stage.hold_lane(chat)
        await stage.queue(chat, ScriptedModel(["Yes."]), "second")
        here.store.ignores_hints = True
        async with following(there) as received:
            await stage.bury_others(there)
            changes = [await received.next() for _ in range(2)]
            assert {each.kind for each in changes} == {ChangeKind.TURN_FAILED, ChangeKind.TURN_WITHDRAWN}
            assert "process_died" in {each.detail for each in changes}
        holder.task.cancel()

    async def test_settled_turn_is_reported_before_the_turn_that_settles_it(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat(title="T")
        async with following(process) as received:
            with pytest.raises(ZeroDivisionError):
                await soon(chat.run(ScriptedModel([Tool("pay", result="paid"), ZeroDivisionError()]), "Pay."))
            await received.until(ChangeKind.TURN_FAILED)
            await exchange(chat, "go on")
            changes = await received.until(ChangeKind.TURN_RUNNING)
            assert [(each.kind, each.detail) for each in changes[:-1]] == [
                (ChangeKind.TURN_COMMITTED, "settled")
            ]

    async def test_edit_undo_and_switch_report_the_branch_that_is_shown(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat()
        first = (await chat.info()).branch
        turns = await chain(chat, 2)
        async with following(process) as received:
            edited = await soon(chat.edit(turns[1].id, "other").run(ScriptedModel(["No."])))
            changes = await received.until(ChangeKind.TURN_COMMITTED)
            assert [(each.kind, each.branch) for each in changes[1:]] == [
                (ChangeKind.CHAT_SWITCHED, edited.branch),
                (ChangeKind.TURN_COMMITTED, edited.branch),
            ]
            await soon(chat.undo())
            undone = await received.next()
            assert undone.kind is ChangeKind.CHAT_SWITCHED
            assert undone.branch == (await chat.info()).branch
            await soon(chat.switch(first))
            assert (await received.next()).branch == first
            fork = await soon(chat.fork())
            forked = await received.next()
            assert (forked.kind, forked.conversation) == (ChangeKind.CHAT_CREATED, fork.id)

    async def test_chat_imported_twice_is_reported_once(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat()
        await chain(chat, 2)
        file = b"".join([line async for line in process.ledger.export(chat.id)])
        async with following(process, owner="bob") as received:
            reports = [
                report
                for _ in range(2)
                async for report in process.ledger.for_owner("bob").import_lines((file,))
            ]
            made = await received.next()
            assert (made.kind, made.conversation) == (ChangeKind.CHAT_CREATED, reports[-1].chat)
            last = await process.chat(owner="bob")
            assert (await received.next()).conversation == last.id

    async def test_deletion_of_a_chat_reports_its_running_turn_as_failed_first(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat)
        async with following(there) as received:
            await soon(same.delete())
            changes = await received.until(ChangeKind.CHAT_DELETED)
            assert [each.kind for each in changes] == [ChangeKind.TURN_FAILED, ChangeKind.CHAT_DELETED]
            assert (changes[-1].conversation, changes[-1].chat) == (chat.id, None)
        holder.task.cancel()

    async def test_chat_without_a_committed_turn_reports_no_deletion_and_no_restore(
        self, stage: Stage
    ) -> None:
        [process] = await stage.processes(1)
        async with following(process) as received:
            with pytest.raises(ZeroDivisionError):
                await soon(
                    process.ledger.run(ScriptedModel([ZeroDivisionError()]), "Hi", conversation_key="k")
                )
            failed = (await received.until(ChangeKind.TURN_FAILED))[-1]
            chat = await process.ledger.conversation(failed.conversation)
            await chat.delete()
            await process.ledger.restore(chat.id)
            await exchange(chat, "Hello")
            changes = await received.until(ChangeKind.TURN_COMMITTED)
            assert [each.kind for each in changes] == [
                ChangeKind.TURN_RUNNING,
                ChangeKind.CHAT_CREATED,
                ChangeKind.TURN_COMMITTED,
            ]

    async def test_refused_turn_reports_no_change(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        chat = await process.chat()
        position = await process.ledger.position()
        with pytest.raises(NoNewInput):
            await soon(chat.run(ScriptedModel(["Yes."]), ""))
        assert await process.ledger.position() == position

    async def test_follower_receives_no_changes_of_other_owners_or_internal_chats(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process, owner="ann") as received:
            await exchange(await process.chat(owner="bob"), "hello")
            await exchange(await process.chat(owner="ann", internal=True), "hello")
            anns = await process.chat(owner="ann")
            assert (await received.next()).conversation == anns.id

    async def test_follower_confined_to_a_scope_receives_only_changes_of_that_scope(
        self, stage: Stage
    ) -> None:
        [process] = await stage.processes(1)
        async with following(process, within=Within("shop")) as received:
            start = await process.ledger.position()
            await exchange(await process.chat(scope="desk"), "hello")
            shop = await process.chat(scope="shop")
            assert (await received.next()).conversation == shop.id
        async with following(process, within=Within("shop"), after=start) as received:
            assert (await received.next()).conversation == shop.id

    async def test_follower_confined_to_a_chat_receives_only_changes_of_that_chat(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        first, second = await process.chat(), await process.chat()
        async with following(process, within=Within(chat=second.id)) as received:
            await exchange(first, "hello")
            turn = await exchange(second, "hello")
            assert (await received.next()).turn == turn.id

    async def test_follower_that_reconnects_continues_after_its_last_position(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        async with following(here) as received:
            await chain(chat, 1)
            last = (await received.until(ChangeKind.TURN_COMMITTED))[-1].position
        turns = [await exchange(chat, "while nobody heard"), await exchange(chat, "nor here")]
        async with following(there, after=str(last)) as received:
            changes = [await received.next() for _ in range(4)]
            assert [each.turn for each in changes] == [turns[0].id] * 2 + [turns[1].id] * 2
            later = await exchange(chat, "live again")
            assert (await received.next()).turn == later.id

    async def test_follower_of_an_expired_or_invalid_position_receives_a_gap(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        position = await process.ledger.position()
        chat = await process.chat()
        await chain(chat, 2)
        stage.clock.advance(LIMITS.changes_kept + 1)
        await process.tend()
        for after in (position, "none such", "ffff-00000000", ""):
            async with following(process, after=after) as received:
                gap = await received.next()
                assert (gap.kind, str(gap.position)) == (ChangeKind.GAP, await process.ledger.position())
                turn = await exchange(chat, "after the gap")
                assert (await received.next()).turn == turn.id

    async def test_followers_beyond_the_reader_limit_are_refused(self, stage: Stage) -> None:
        process = await stage.process(Limits(lease_time=600.0, flush_every=6_000.0, readers=1))
        async with following(process):
            with pytest.raises(TooManyReaders):
                await anext(process.ledger.changes())
        async with following(process):
            assert Host(process.ledger).at_work().readers == 1
        assert Host(process.ledger).at_work().readers == 0

    async def test_follower_raises_ledger_closed_when_the_ledger_closes(self, stage: Stage) -> None:
        [process] = await stage.processes(1)
        async with following(process) as received:
            waiting = stage.start(received.next())
            await process.ledger.close()
            with pytest.raises(LedgerClosed):
                await soon(waiting)
