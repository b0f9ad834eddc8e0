"""Parallel turns: many follow one turn at once, each on a line of its own, and the shown branch stays."""

from __future__ import annotations

import asyncio
from dataclasses import replace as with_limits

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.conversations.read import ListedBranch, SetAsideAttempt
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.errors import (
    BranchNotFound,
    ConversationBusy,
    ConversationDeleted,
    ConversationExpired,
    InvalidInput,
    TurnledgerError,
    TurnNotFound,
)
from turnledger.model.change import ChangeKind
from turnledger.model.ids import TurnId
from turnledger.model.turn import AttemptState, Turn
from turnledger.testing.gates import Fate, Gate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.deletion import MONTH, changes_of
from turnledger.testing.store_contract.effects import BOOM, PAID, kinds
from turnledger.testing.store_contract.idempotency import NEVER
from turnledger.testing.store_contract.rows.kit import do, read
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    answer_to,
    chain,
    exchange,
    input_texts,
    play,
    run_block,
    soon,
)

MANY = 50
PAYS = (Tool("pay", "paid"), BOOM)


async def side_branches(chat: Chat) -> list[ListedBranch]:
    return [each for each in await chat.branches(limit=1_000) if each.branch.is_side]


async def texts_on(chat: Chat, turn: Turn) -> list[str]:
    """Read the last input of each turn of the branch of this turn."""
    return [each.input[-1].text for each in await chat.turns(limit=1_000, branch=turn.branch)]


async def fail_after(chat: Chat, turn: Turn, idempotency_key: str | None = None) -> None:
    block = chat.turn("Pay.", after=turn.id, idempotency_key=idempotency_key)
    with pytest.raises(RuntimeError):
        await soon(play(block, ScriptedModel([*PAYS])))


async def start_many(
    stage: Stage, chats: list[Chat], after: Turn, count: int = MANY
) -> tuple[Gate, list[asyncio.Task[Turn]]]:
    """Start turns after one turn, in all these processes; return when all of them run."""
    gate = Gate()
    tasks = [
        stage.start(chats[number % len(chats)].run(ScriptedModel(["a", gate]), f"p{number}", after=after.id))
        for number in range(count)
    ]
    await soon(gate.arrived(count))
    return gate, tasks


def holder_of(attempts: list[SetAsideAttempt], text: str) -> TurnId:
    return next(each.attempt.id for each in attempts if each.attempt.input[0].text == text)


class ParallelTurns(Contract):
    async def test_parallel_turns_run_at_once_and_leave_the_shown_branch(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turns = await chain(chat, 3)
        found = await chat.info()
        gate, tasks = await start_many(stage, [chat, await there.chat(chat)], turns[1])
        assert await stage.tickets(chat) == []
        await exchange(chat, "q4")
        gate.release()
        made = await soon(asyncio.gather(*tasks))
        assert (await chat.info()).branch == found.branch
        assert await input_texts(chat) == ["q1", "q2", "q3", "q4"]
        assert {turn.parent for turn in made} == {turns[1].id}
        assert len({turn.branch for turn in made}) == MANY
        for number, turn in enumerate(made):
            assert await texts_on(chat, turn) == ["q1", "q2", f"p{number}"]
        listed = await side_branches(chat)
        assert {(each.branch.length, each.base, each.is_current) for each in listed} == {
            (3, turns[1].id, False)
        }
        assert len(listed) == MANY
        assert len(await chat.siblings(turns[2].id)) == 1
        assert await here.ledger.check(at_rest=True) == []

    async def test_attempts_around_a_branch_leave_out_other_side_branches(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 2)
        holder = await stage.hold_lane(chat)
        gate, tasks = await start_many(stage, [chat], turns[0], 4)
        around = await chat.attempts(limit=3, branch=(await chat.info()).branch)
        assert [each.attempt.input[0].text for each in around] == ["first"]
        side = await side_branches(chat)
        around = await chat.attempts(branch=side[-1].branch.id)
        assert {each.attempt.id for each in around} == {side[-1].branch.running, holder_of(around, "first")}
        assert len(await chat.attempts()) == 5
        with pytest.raises(BranchNotFound):
            await chat.attempts(branch=(await (await here.chat()).info()).branch)
        gate.release()
        await soon(asyncio.gather(holder.finish(), *tasks))

    async def test_turn_after_the_head_takes_the_free_lane(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        first = await exchange(chat, "q1")
        holder = await stage.hold(lambda model: chat.run(model, "q2", after=first.id))
        beside = await exchange(chat, "p", after=first.id)
        await holder.finish()
        assert await input_texts(chat) == ["q1", "q2"]
        assert await texts_on(chat, beside) == ["q1", "p"]
        assert [each.branch.id for each in await side_branches(chat)] == [beside.branch]

    async def test_turn_after_the_head_does_not_pass_those_that_wait(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first = await exchange(chat, "q1")
        await stage.hold_lane(chat, on_stop="discard")
        waiting = await stage.queue(chat, ScriptedModel(["a"]), "q2")
        with here.store.hold(begin) as gate:
            await soon(chat.stop())
            await stage.reach(gate, waiting)
            beside = await exchange(await there.chat(chat), "p", after=first.id)
            gate.release()
            await soon(waiting)
        assert beside.branch != first.branch
        assert await input_texts(chat) == ["q1", "q2"]

    async def test_side_branch_is_continued_at_its_end_and_branched_elsewhere(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turns = await chain(chat, 2)
        first = await exchange(chat, "p1", after=turns[0].id)
        second = await exchange(same, "p2", after=first.id)
        third = await exchange(chat, "p3", after=second.id)
        other = await exchange(same, "x", after=second.id)
        assert first.branch == second.branch == third.branch != other.branch
        assert await texts_on(chat, third) == ["q1", "p1", "p2", "p3"]
        assert await texts_on(chat, other) == ["q1", "p1", "p2", "x"]
        model = ScriptedModel(["a"])
        await soon(same.run(model, "p4", after=third.id))
        asked = [message["content"] for message in model.seen[0] if message["role"] == "user"]
        assert asked == ["q1", "p1", "p2", "p3", "p4"]

    async def test_branch_left_by_a_switch_stays_as_it_was(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 2)
        await run_block(chat.edit(turns[1].id, "other"))
        beside = await exchange(chat, "p", after=turns[1].id)
        assert beside.branch != turns[1].branch
        await soon(chat.switch(turns[1].branch))
        assert await input_texts(chat) == ["q1", "q2"]

    async def test_turns_elsewhere_are_not_found(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(), await here.chat()
        [first] = await chain(other, 1)
        mine = await exchange(chat, "q")
        with pytest.raises(TurnNotFound):
            await exchange(chat, "p", after=first.id)
        foreign = await here.chat(owner="eve")
        await exchange(foreign, "q")
        with pytest.raises(TurnNotFound):
            await exchange(foreign, "p", after=mine.id)
        for on_busy in ("interrupt", "rollback"):
            with pytest.raises(InvalidInput):
                chat.turn("p", after=mine.id, on_busy=on_busy)
        with pytest.raises(InvalidInput):
            chat.edit(mine.id, "p", after=mine.id)
        assert len(await chat.branches()) == len(await foreign.branches()) == 1

    async def test_turn_from_before_a_fork_is_followed_in_the_fork(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 3)
        forked = await soon(chat.fork())
        await soon(forked.undo())
        for number in (2, 0):
            beside = await exchange(forked, "p", after=turns[number].id)
            assert await texts_on(forked, beside) == [f"q{each + 1}" for each in range(number + 1)] + ["p"]
        assert await input_texts(chat) == ["q1", "q2", "q3"]
        assert len(await chat.branches()) == 1


class LostParallelTurns(Contract):
    @pytest.mark.parametrize("fate", list(Fate))
    async def test_repeated_begin_makes_one_branch(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 2)
        here.store.lose_answer(begin, fate)
        beside = await exchange(chat, "p", after=turns[0].id, idempotency_key="i")
        again = await exchange(chat, "p", after=turns[0].id, idempotency_key="i")
        assert again == beside
        assert [each.branch.id for each in await side_branches(chat)] == [beside.branch]
        assert await here.ledger.check(at_rest=True) == []

    @pytest.mark.parametrize("fate", list(Fate))
    async def test_repeated_commit_makes_one_turn(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 2)
        here.store.lose_answer(commit, fate)
        beside = await exchange(chat, "p", after=turns[0].id)
        assert await texts_on(chat, beside) == ["q1", "p"]
        assert await input_texts(chat) == ["q1", "q2"]

    async def test_key_names_the_place_too(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 2)
        await exchange(chat, "p", after=turns[0].id, idempotency_key="i")
        for after in ({"after": turns[1].id}, {}):
            with pytest.raises(TurnledgerError, match="idempotency_key"):
                await exchange(chat, "p", idempotency_key="i", **after)

    async def test_retry_resumes_on_the_branch_of_the_failed_turn(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turns = await chain(chat, 2)
        await fail_after(chat, turns[0], idempotency_key="i")
        model = ScriptedModel(["Paid."])
        done = await soon(play(same.turn("Pay.", after=turns[0].id, idempotency_key="i"), model))
        assert PAID in model.seen[0]
        assert [each.branch.id for each in await side_branches(chat)] == [done.branch]
        assert kinds(await chat.turns(branch=done.branch)) == ["completed", "completed"]

    async def test_retry_that_others_wait_before_receives_its_settled_effects(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first = await exchange(chat, "q1")
        gate = Gate()
        failing = chat.run(ScriptedModel([PAYS[0], gate, BOOM]), "Pay.", after=first.id, idempotency_key="i")
        task = stage.start(failing)
        await stage.reach(gate, task)
        waiting = await stage.queue(chat, ScriptedModel(["a"]), "q2")
        with here.store.hold(begin) as held:
            gate.release()
            await stage.reach(held, waiting)
            same = await there.chat(chat)
            settled = await soon(same.run(NEVER, "Pay.", after=first.id, idempotency_key="i"))
            held.release()
            await soon(waiting)
        assert kinds([settled]) == ["settled"]
        assert (await chat.turns())[1] == settled
        assert await input_texts(chat) == ["q1", "Pay.", "q2"]
        assert await there.ledger.check(at_rest=True) == []
        await asyncio.wait((task,))

    async def test_dead_process_leaves_its_side_branches_free(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turns = await chain(chat, 2)
        _, tasks = await start_many(stage, [chat], turns[0], 3)
        await stage.bury_others(there)
        same = await there.chat(chat)
        aside = [each.attempt for each in await same.attempts()]
        assert [each.state for each in aside] == [AttemptState.FAILED] * 3
        assert {each.branch.running for each in await side_branches(same)} == {None}
        await exchange(same, "q3")
        assert not any(task.done() and task.exception() is None for task in tasks)

    async def test_stop_ends_one_parallel_turn(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turns = await chain(chat, 2)
        gate, tasks = await start_many(stage, [chat], turns[0], 3)
        same = await there.chat(chat)
        [last, *_] = await same.attempts()
        ended = await soon(same.stop(last.attempt.id))
        assert ended is not None
        assert ended.state is AttemptState.KEPT
        assert await soon(same.stop()) is None
        gate.release()
        await soon(asyncio.wait(tasks))
        assert sorted([await texts_on(chat, turn) for turn in [ended.turn] if turn]) == [["q1", "p2"]]
        assert await input_texts(chat) == ["q1", "q2"]


class ParallelEffects(Contract):
    async def test_settled_turn_behind_the_named_one_is_shown(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        [first] = await chain(chat, 1)
        with pytest.raises(RuntimeError):
            await exchange_with(chat, ScriptedModel([*PAYS]))
        holder = await stage.hold_lane(chat)
        model = ScriptedModel(["a"])
        beside = await soon(chat.run(model, "p", after=first.id))
        assert PAID in model.seen[0]
        assert kinds(await chat.turns(branch=beside.branch)) == ["completed", "settled", "completed"]
        await holder.finish()

    @pytest.mark.parametrize("waits", [True, False])
    async def test_effects_of_later_turns_are_shown(self, stage: Stage, waits: bool) -> None:
        chat, same = await stage.shared_chat()
        turns = await chain(chat, 2)
        with pytest.raises(RuntimeError):
            await exchange_with(chat, ScriptedModel([*PAYS]))
        if not waits:
            await exchange(chat, "q3")
        model = ScriptedModel(["a"])
        beside = await soon(same.run(model, "p", after=turns[0].id))
        assert model.seen[0].count(PAID) == 1
        assert kinds(await chat.turns(branch=beside.branch)) == ["completed", "settled", "completed"]

    async def test_effects_of_the_shown_branch_are_shown_beside_another_one(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 3)
        await run_block(chat.edit(turns[1].id, "other"))
        with pytest.raises(RuntimeError):
            await exchange_with(chat, ScriptedModel([*PAYS]))
        model = ScriptedModel(["a"])
        beside = await soon(chat.run(model, "p", after=turns[1].id))
        assert model.seen[0].count(PAID) == 1
        assert (await texts_on(chat, beside))[:2] == ["q1", "q2"]

    async def test_forgotten_effects_stay_forgotten(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 2)
        with pytest.raises(RuntimeError):
            await exchange_with(chat, ScriptedModel([*PAYS]))
        await soon(chat.undo(forget=True))
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "p", after=turns[0].id))
        assert PAID not in model.seen[0]

    async def test_effects_of_a_failed_parallel_turn_wait_on_its_branch(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 2)
        await fail_after(chat, turns[0])
        [made] = await side_branches(chat)
        assert made.branch.unsettled is not None
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q3"))
        assert PAID not in model.seen[0]
        await soon(chat.switch(made.branch.id))
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "on"))
        assert PAID in model.seen[0]
        assert await here.ledger.check(at_rest=True) == []

    async def test_switch_settles_effects_before_it_copies_others(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        asked = await soon(chat.run(ScriptedModel([Ask("choose", call_id="c1")]), "q1"))
        await exchange(chat, "q2")
        with pytest.raises(RuntimeError):
            await soon(chat.run(ScriptedModel([*PAYS]), [answer_to("c1", "red")], after=asked.id))
        with pytest.raises(RuntimeError):
            await exchange_with(chat, ScriptedModel([*PAYS]))
        [made] = await side_branches(chat)
        await soon(chat.switch(made.branch.id))
        assert kinds(await chat.turns()) == ["completed", "settled", "settled"]
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "on"))
        assert model.seen[0].count(PAID) == 2

    async def test_switch_to_a_running_side_branch_follows_it(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turns = await chain(chat, 2)
        gate, [task] = await start_many(stage, [chat], turns[0], 1)
        [made] = await side_branches(chat)
        await soon(same.switch(made.branch.id))
        waiting = await stage.queue(same, ScriptedModel(["a"]), "next")
        gate.release()
        await soon(asyncio.gather(task, waiting))
        assert await input_texts(chat) == ["q1", "p0", "next"]
        assert await side_branches(chat) == []

    async def test_switch_that_needs_copies_leaves_a_running_turn_alone(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 2)
        gate, [task] = await start_many(stage, [chat], turns[0], 1)
        with pytest.raises(RuntimeError):
            await exchange_with(chat, ScriptedModel([*PAYS]))
        [made] = await side_branches(chat)
        with pytest.raises(ConversationBusy, match="runs on that branch"):
            await soon(chat.switch(made.branch.id))
        gate.release()
        done = await soon(task)
        await soon(chat.switch(done.branch))
        assert kinds(await chat.turns()) == ["completed", "completed", "settled"]


async def exchange_with(chat: Chat, model: ScriptedModel) -> Turn:
    return await soon(chat.run(model, "Pay."))


class ParallelLives(Contract):
    """What happens to side branches when their conversation ends, and by themselves."""

    @pytest.mark.parametrize("purge", [False, True])
    async def test_deletion_ends_all_parallel_turns(self, stage: Stage, purge: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turns = await chain(chat, 2)
        same = await there.chat(chat)
        gate, tasks = await start_many(stage, [chat, same], turns[0])
        await soon(there.ledger.delete(chat.id, purge=purge))
        left = await read(here.store, do("running_in", chat.id, owner=chat.owner))
        assert left == []
        gate.release()
        ends = await soon(asyncio.gather(*tasks, return_exceptions=True))
        assert {type(end) for end in ends} == {ConversationDeleted}
        await here.tend()
        assert await here.ledger.check(at_rest=True) == []
        if not purge:
            restored = await here.ledger.restore(chat.id)
            assert await input_texts(restored) == ["q1", "q2"]

    async def test_conversation_with_a_parallel_turn_does_not_expire(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=with_limits(LIMITS, retain_for=90.0))
        chat = await here.chat(expires_after=60.0)
        turns = await chain(chat, 2)
        gate, [task] = await start_many(stage, [chat], turns[0], 1)
        stage.clock.advance(100)
        await here.tend()
        await there.tend()
        assert await input_texts(chat) == ["q1", "q2"]
        assert (await there.ledger.retain()).retired == ()
        gate.release()
        await soon(task)
        stage.clock.advance(61)
        await here.tend()
        with pytest.raises(ConversationExpired):
            await chat.turns()

    async def test_unused_side_branches_are_removed(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=with_limits(LIMITS, purge_rows=2))
        chat = await here.chat()
        turns = await chain(chat, 2)
        before = await here.ledger.for_owner(chat.owner).usage()
        made = [await exchange(chat, f"p{number}", after=turns[0].id) for number in range(6)]
        for number in range(5):  # one is long, so that it takes several steps
            made.append(await exchange(chat, f"more {number}", after=made[-1].id))
        await fail_after(chat, turns[0])
        shown, source = made[0], made[1]
        await soon(chat.switch(shown.branch))
        await soon(chat.switch(turns[0].branch))
        stage.clock.advance(MONTH - 10)
        await keep_side_branches(there, chat, 6)
        kept = await exchange(chat, "late", after=source.id)
        child = await exchange(chat, "child", after=source.id)
        gate, [task] = await start_many(stage, [chat], turns[0], 1)
        stage.clock.advance(11)
        for _ in range(12):
            await there.tend()
            assert await there.ledger.check() == []
        left = {each.branch.id for each in await chat.branches()}
        running = {each.branch.id for each in await side_branches(chat) if each.branch.running}
        assert left == {turns[0].branch, shown.branch, kept.branch, child.branch} | running
        for turn in made[2:]:
            with pytest.raises(BranchNotFound):
                await chat.turns(branch=turn.branch)
            assert await read(there.store, do("turn", turn.id, owner=chat.owner)) is None
        gate.release()
        await soon(task)
        await soon(chat.delete(purge=True))
        for _ in range(20):
            await here.tend()
        assert (await here.ledger.for_owner(chat.owner).usage()).bytes == 0 < before.bytes
        assert await there.ledger.check(at_rest=True) == []

    async def test_side_branch_outlives_the_claim_of_its_key(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, side_branches_kept=60.0))
        chat = await here.chat()
        turns = await chain(chat, 2)
        beside = await exchange(chat, "p", after=turns[0].id, idempotency_key="i")
        stage.clock.advance(CLAIM_KEPT_MS / 1000 - 1)
        await here.tend()
        assert await exchange(chat, "p", after=turns[0].id, idempotency_key="i") == beside
        stage.clock.advance(2)
        await here.tend()
        assert await side_branches(chat) == []

    async def test_side_branches_of_a_deleted_chat_can_be_restored(self, stage: Stage) -> None:
        here = await stage.process(with_limits(LIMITS, side_branches_kept=0.0))
        chat = await here.chat()
        turns = await chain(chat, 2)
        beside = await exchange(chat, "p", after=turns[0].id)
        await soon(chat.delete())
        stage.clock.advance(MONTH - 1)
        await here.tend()
        restored = await here.ledger.restore(chat.id)
        assert await texts_on(restored, beside) == ["q1", "p"]

    async def test_changes_name_the_side_branch(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 2)
        beside = await exchange(chat, "p", after=turns[0].id)
        found = await changes_of(here, chat)
        by_turn = [(each.kind, each.branch) for each in found if each.turn == beside.id]
        assert by_turn == [
            (ChangeKind.TURN_RUNNING, beside.branch),
            (ChangeKind.TURN_COMMITTED, beside.branch),
        ]
        assert not any(each.kind is ChangeKind.CHAT_SWITCHED for each in found)


async def keep_side_branches(process: StageProcess, chat: Chat, count: int) -> None:
    await process.tend()
    assert len(await side_branches(chat)) == count
