"""Fork, switch, undo and reset as requests: once for each idempotency_key, the turn that was meant and no
other, and only for who is let in at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.lifecycle.create import reset
from turnledger.engine.lifecycle.moves import fork
from turnledger.engine.turn.begin import begin
from turnledger.errors import (
    AdmissionMoved,
    BranchNotFound,
    ConversationDeleted,
    HistoryDiverged,
    IdempotencyMismatch,
    TurnNotFound,
)
from turnledger.ledger import OWNER
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import BranchId
from turnledger.testing.gates import Fate, When
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    StageProcess,
    asked,
    chain,
    exchange,
    soon,
    tell,
)

UNKNOWN = BranchId("branch_01890a5d000070008000000000000000")
ONCE: dict[str, Any] = {"idempotency_key": "once"}
every_fate = pytest.mark.parametrize("fate", Fate)


async def shown(chat: Chat) -> BranchId:
    return (await chat.info()).branch


async def version(process: StageProcess) -> int:
    return (await process.ledger.tokens.find(None)).version


async def revoke_one(process: StageProcess) -> None:
    token, _ = await process.ledger.tokens.create(owner=OWNER, scopes=tuple(TokenScope))
    await process.ledger.tokens.revoke(token.id)


class UndoneOnce(Contract):
    async def test_an_undo_that_is_repeated_takes_back_one_turn(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await chain(chat, 3)
        made = await soon(chat.undo(**ONCE))
        again = await soon((await there.chat(chat)).undo(**ONCE))
        assert again.id == made.id
        assert await asked(chat) == ["q1", "q2"]
        await soon(chat.undo(idempotency_key="twice"))
        assert await asked(chat) == ["q1"]

    async def test_undos_of_one_key_that_come_at_once_take_back_one_turn(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await chain(chat, 3)
        holder = await stage.hold_lane(chat, "q4")
        undoing = [await stage.line_up(chat, each.undo(**ONCE)) for each in (chat, same, chat)]
        assert len(await stage.tickets(chat)) == 3
        await holder.finish()
        made = {(await soon(each)).id for each in undoing}
        assert len(made) == 1
        assert await asked(chat) == ["q1", "q2", "q3"]
        assert await stage.tickets(chat) == []
        await exchange(chat, "q5", on_busy="reject")

    @every_fate
    async def test_one_whose_answer_is_lost_is_done_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 3)
        here.store.lose_answer(begin, fate, fate, fate)
        await soon(chat.undo(**ONCE))
        await soon(chat.undo(**ONCE))
        assert await asked(chat) == ["q1", "q2"]

    async def test_a_key_stands_for_one_request(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        first = await chain(chat, 2)
        await soon(chat.undo(**ONCE))
        others: tuple[Callable[[], Coroutine[Any, Any, Any]], ...] = (
            lambda: chat.undo(forget=True, **ONCE),
            lambda: chat.undo(first[0].id, **ONCE),
            lambda: chat.switch(first[0].branch, **ONCE),
            lambda: chat.fork(**ONCE),
            lambda: tell(chat.turn("q", **ONCE)),
            lambda: tell(chat.regenerate(**ONCE)),
        )
        for other in others:
            with pytest.raises(IdempotencyMismatch):
                await soon(other())
        await exchange(chat, "q2", idempotency_key="turn")
        with pytest.raises(IdempotencyMismatch):
            await soon(chat.undo(idempotency_key="turn"))
        assert await asked(chat) == ["q1", "q2"]

    async def test_a_key_of_another_chat_stands_for_another_request(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(), await here.chat()
        for each in (chat, other):
            await chain(each, 2)
        await soon(chat.undo(**ONCE))
        with pytest.raises(IdempotencyMismatch):
            await soon(other.undo(**ONCE))
        assert len(await other.turns()) == 2

    async def test_what_was_refused_claims_nothing(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        with pytest.raises(TurnNotFound):
            await soon(chat.undo(**ONCE))
        await chain(chat, 1)
        await soon(chat.undo(**ONCE))
        assert await chat.turns() == []

    async def test_a_key_is_kept_as_long_as_that_of_a_turn(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 3)
        await soon(chat.undo(**ONCE))
        stage.clock.advance(CLAIM_KEPT_MS / 1000 - 1)
        await here.tend()
        await soon(chat.undo(**ONCE))
        assert len(await chat.turns()) == 2
        stage.clock.advance(2)
        await here.tend()
        await soon(chat.undo(**ONCE))
        assert len(await chat.turns()) == 1

    async def test_only_the_turn_that_was_meant_is_taken_back(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turns = await chain(chat, 3)
        same = await there.chat(chat)
        results = await asyncio.gather(
            *(soon(each.undo(turns[2].id)) for each in (chat, same, chat)), return_exceptions=True
        )
        assert [type(each) for each in results].count(HistoryDiverged) == 2
        assert await asked(chat) == ["q1", "q2"]
        await soon(same.undo(turns[1].id))
        assert await asked(chat) == ["q1"]

    @pytest.mark.parametrize("on_busy", ["interrupt", "rollback"])
    async def test_nothing_is_stopped_for_an_undo_of_another_turn(self, stage: Stage, on_busy: str) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "q3")
        with pytest.raises(HistoryDiverged):
            await soon(chat.undo(turns[0].id, on_busy=on_busy))
        await holder.finish()
        assert await asked(chat) == ["q1", "q2", "q3"]

    async def test_the_running_turn_can_be_the_one_that_is_meant(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        await stage.hold_lane(chat, "q2", ["Half"])
        [running] = await chat.attempts()
        await soon(chat.undo(running.attempt.id, on_busy="interrupt"))
        assert await asked(chat) == ["q1"]


class SwitchedOnce(Contract):
    async def test_a_switch_that_is_repeated_late_moves_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turns = await chain(chat, 2)
        old = await shown(chat)
        await tell(chat.edit(turns[1].id, "other"))
        new = await shown(chat)
        await soon(chat.switch(old, **ONCE))
        await soon((await there.chat(chat)).switch(new))
        assert (await soon((await there.chat(chat)).switch(old, **ONCE))).id == old
        assert await shown(chat) == new
        with pytest.raises(IdempotencyMismatch):
            await soon(chat.switch(new, **ONCE))

    async def test_the_branches_are_listed_the_last_made_first(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat, other = await here.chat(), await here.chat()
        turns = await chain(chat, 2)
        for text in ("other", "another"):
            await tell(chat.edit(turns[1].id, text))
            await soon(chat.switch(turns[0].branch))
        first = await tell(chat.edit(turns[0].id, "first"))
        same = await there.chat(chat)
        listed = await same.branches()
        assert [each.base for each in listed] == [None, turns[0].id, turns[0].id, None]
        assert [each.is_current for each in listed] == [True, False, False, False]
        assert [each.branch.length for each in listed] == [1, 2, 2, 2]
        assert listed[0].branch.id == first.branch
        assert listed[-1].branch.id == turns[0].branch
        pages = [await same.branches(limit=3)]
        pages.append(await same.branches(limit=3, before=pages[0][-1].branch.id))
        assert [*pages[0], *pages[1]] == listed
        for wrong in (UNKNOWN, (await other.info()).branch):
            with pytest.raises(BranchNotFound):
                await same.branches(before=wrong)

    async def test_another_branch_can_be_read_without_a_switch(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(), await here.chat()
        turns = await chain(chat, 3)
        await tell(chat.edit(turns[1].id, "other"))
        assert await chat.turns(branch=turns[0].branch) == turns
        assert await chat.turns(branch=turns[0].branch, before=3, limit=1) == turns[1:2]
        assert await asked(chat) == ["q1", "other"]
        for wrong in (UNKNOWN, (await other.info()).branch):
            with pytest.raises(BranchNotFound):
                await chat.turns(branch=wrong)

    async def test_a_page_ends_before_it_is_too_large_but_has_a_turn(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = [await exchange(chat, f"q{number}", "x" * 1_000 * number) for number in range(1, 13)]
        every = [len(turn.body) for turn in turns]
        for room in (1, every[-1], sum(every[-2:]), sum(every[-9:]) + 1, sum(every) - 1, sum(every)):
            fits = max(count for count in range(1, 13) if count == 1 or sum(every[-count:]) <= room)
            assert await chat.turns(most_bytes=room) == turns[-fits:]
            assert await chat.turns(most_bytes=room, limit=2) == turns[-min(fits, 2) :]
        assert await chat.turns(most_bytes=1, before=5) == turns[3:4]
        assert await chat.turns(most_bytes=1, before=1) == []


class ForkedOnce(Contract):
    async def test_a_fork_that_is_repeated_is_one_chat(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turns = await chain(chat, 2)
        made = await soon(chat.fork(turns[0].id, title="T", metadata={"a": "b", "c": "d"}, **ONCE))
        await exchange(chat, "q3")
        same = await there.chat(chat)
        again = await soon(same.fork(turns[0].id, title="T", metadata={"c": "d", "a": "b"}, **ONCE))
        assert (again.id, made.is_new, again.is_new) == (made.id, True, False)
        changes: list[dict[str, Any]] = [{"title": "U"}, {"conversation_key": "k"}, {"metadata": {"a": "b"}}]
        for changed in changes:
            with pytest.raises(IdempotencyMismatch):
                await soon(chat.fork(turns[0].id, **{"title": "T", **changed}, **ONCE))
        with pytest.raises(IdempotencyMismatch):
            await soon(chat.fork(turns[1].id, title="T", **ONCE))
        assert len((await here.ledger.catalogue.list()).chats) == 2

    async def test_forks_of_one_key_that_come_at_once_are_one_chat(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await chain(chat, 2)
        same = await there.chat(chat)
        made = await asyncio.gather(*(soon(each.fork(**ONCE)) for each in (chat, same, chat, same)))
        assert len({each.id for each in made}) == 1
        assert [each.is_new for each in made].count(True) == 1

    @every_fate
    async def test_one_whose_answer_is_lost_is_one_chat(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 1)
        here.store.lose_answer(fork, fate, fate)
        made = await soon(chat.fork(**ONCE))
        assert (await soon(chat.fork(**ONCE))).id == made.id
        assert len((await here.ledger.catalogue.list()).chats) == 2

    async def test_a_fork_that_was_deleted_is_not_made_again(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        made = await soon(chat.fork(**ONCE))
        await made.delete()
        with pytest.raises(ConversationDeleted):
            await soon(chat.fork(**ONCE))

    async def test_everything_is_as_it_should_be(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")
        turns = await chain(chat, 3)
        await soon(chat.fork(turns[1].id, **ONCE))
        await soon(chat.undo(turns[2].id, idempotency_key="undo"))
        await soon(chat.switch(turns[0].branch, idempotency_key="switch"))
        assert await here.ledger.check(at_rest=True) == []


Change: TypeAlias = Callable[[StageProcess, Chat, dict[str, Any]], Coroutine[Any, Any, Any]]
CHANGES: dict[str, tuple[Callable[..., Any], Change]] = {
    "fork": (fork, lambda process, chat, who: chat.fork(**who)),
    "undo": (begin, lambda process, chat, who: chat.undo(**who)),
    "reset": (reset, lambda process, chat, who: process.ledger.reset("k", **who)),
}
every_change = pytest.mark.parametrize("name", CHANGES)


class ChangedByWhoIsLetIn(Contract):
    @every_change
    async def test_a_revocation_that_overtakes_it_counts(self, stage: Stage, name: str) -> None:
        here, there = await stage.processes()
        chat = await here.chat(conversation_key="k")
        await chain(chat, 2)
        operation, change = CHANGES[name]
        admitted = await version(here)
        with here.store.hold(operation) as gate:
            task = stage.start(change(here, chat, {"admitted": admitted}))
            await stage.reach(gate, task)
            await revoke_one(there)
        with pytest.raises(AdmissionMoved):
            await soon(task)
        assert await asked(chat) == ["q1", "q2"]
        assert [each.conversation.id for each in (await here.ledger.catalogue.list()).chats] == [chat.id]

    @every_change
    async def test_who_is_still_let_in_goes_on(self, stage: Stage, name: str) -> None:
        here, there = await stage.processes()
        chat = await here.chat(conversation_key="k")
        await chain(chat, 2)
        admitted = await version(here)
        await revoke_one(there)
        looked_up: list[int] = []

        async def readmit() -> int:
            looked_up.append(await version(here))
            return looked_up[-1]

        _, change = CHANGES[name]
        await soon(change(here, chat, {"admitted": admitted, "readmit": readmit}))
        assert len(looked_up) == 1

    @pytest.mark.parametrize("name", ["fork", "reset"])
    async def test_what_was_done_is_told_though_its_answer_was_lost(self, stage: Stage, name: str) -> None:
        here, there = await stage.processes()
        chat = await here.chat(conversation_key="k")
        await chain(chat, 2)
        operation, change = CHANGES[name]
        admitted = await version(here)
        with here.store.hold(operation, When.AFTER) as gate:
            here.store.lose_answer(operation, Fate.WRITTEN)
            task = stage.start(change(here, chat, {"admitted": admitted}))
            await stage.reach(gate, task)
            await revoke_one(there)
        made = await soon(task)
        assert made.is_new
