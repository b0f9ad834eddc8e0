"""Branches: origins, lines, shared turns, and the effects that a new branch copies."""

from __future__ import annotations

from dataclasses import replace as with_limits
from random import Random

import pytest
from msgspec.structs import replace

from turnledger.chat import Chat
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Store, Tables
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
    Superseded,
    TurnNotFound,
)
from turnledger.model.conversation import Branch, Conversation, ConversationState, Origin, Stretch, Ticket
from turnledger.model.ids import BranchId, LeaseId, TurnId
from turnledger.model.turn import Fork, Turn, TurnKind
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.effects import BOOM, PAID, fail
from turnledger.testing.store_contract.isolation import as_seen_by
from turnledger.testing.store_contract.rows import (
    IDS,
    LATE,
    conversation,
    do,
    full_attempt,
    insert_conversation,
    read,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    answer_to,
    call,
    chain,
    exchange,
    input_texts,
    play,
    run_block,
    soon,
)


async def sibling_inputs(chat: Chat, turn: str) -> list[str]:
    return [each.turn.input[-1].text for each in await chat.siblings(turn)]


async def grow(store: Store, branch: BranchId, count: int, start: int = 0) -> list[Turn]:
    """Add turns to a branch; every third is settled."""
    turns: list[Turn] = []
    for number in range(start + 1, start + count + 1):
        made = turn(branch, number, turns[-1].id if turns else None)
        turns.append(replace(made, kind=TurnKind.SETTLED) if number % 3 == 0 else made)
    await write(store, *(do("add_turn", each) for each in turns))
    return turns


async def branch_off(
    store: Store, found: Conversation, base: Turn | None, *line: Stretch, count: int = 0
) -> tuple[Branch, list[Turn]]:
    start = base.number if base else 0
    made = Branch(
        id=IDS.new(BranchId), conversation=found.id, start=start, length=start, head=base.id if base else None
    )
    origin = Origin(branch=made.id, conversation=found.id, base=made.head, line=line)
    await write(store, do("add_branch", made), do("add_origin", origin))
    return made, await grow(store, made.id, count, start)


class BranchRows(Contract):
    async def test_branch_and_origin_are_read_as_written(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        turns = await grow(stores[0], found.branch, 3)
        line = (Stretch(found.branch, 0, 2),)
        made, _ = await branch_off(stores[0], found, turns[1], *line)
        await write(stores[0], do("save_branch", replace(made, settled=2, fence=4)))
        assert await read(stores[1], do("branch", made.id)) == replace(made, settled=2, fence=4)
        expected = Origin(branch=made.id, conversation=found.id, base=turns[1].id, line=line)
        assert await read(stores[1], do("origin", made.id)) == expected
        assert await read(stores[1], do("origin", found.branch)) is None
        assert await read(stores[1], do("origin", IDS.new(BranchId))) is None

    async def test_switches_are_stored_with_their_conversation(self, stores: list[Store]) -> None:
        found, other = await insert_conversation(stores[0]), await insert_conversation(stores[0])
        made = tuple(IDS.new(TurnId) for _ in range(3))
        assert await read(stores[1], do("switches", found.id)) == ()
        await write(stores[0], do("save_switches", found.id, made[:2]))
        assert await read(stores[1], do("switches", found.id)) == made[:2]
        await write(
            stores[1],
            do("save_switches", found.id, made[1:]),
            do("save_conversation", replace(found, revision=2)),
        )
        assert await read(stores[0], do("switches", found.id)) == made[1:]
        assert await read(stores[0], do("switches", other.id)) == ()

        async def fails(_: Tables) -> None:
            raise Superseded

        with pytest.raises(Superseded):
            await write(stores[0], do("save_switches", found.id, made), fails)
        assert await read(stores[1], do("switches", found.id)) == made[1:]

    async def test_forgotten_effects_are_stored_with_their_conversation(self, stores: list[Store]) -> None:
        found, other = await insert_conversation(stores[0]), await insert_conversation(stores[0])
        effects = tuple(bytes([n]) * 16 for n in range(3))
        assert await read(stores[1], do("forgotten", found.id)) == ()
        await write(
            stores[0],
            do("save_forgotten", found.id, effects),
            do("save_conversation", replace(found, revision=2)),
        )
        assert await read(stores[1], do("forgotten", found.id)) == effects
        assert await read(stores[1], do("forgotten", other.id)) == ()

    async def test_long_line_is_read_as_written(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        turns = await grow(stores[0], found.branch, 1)
        line: list[Stretch] = [Stretch(found.branch, 0, 1)]
        for _ in range(70):
            made, added = await branch_off(stores[0], found, turns[-1], *line, count=1)
            turns += added
            line.insert(0, Stretch(made.id, made.start, made.start + 1))
        last, _ = await branch_off(stores[0], found, turns[-1], *line)
        origin = await read(stores[1], do("origin", last.id))
        assert origin.line == tuple(line)
        assert await read(stores[1], do("turns_in", line)) == turns
        assert await read(stores[1], do("turns_in", line[5:9])) == turns[-9:-5]

    async def test_origins_at_a_turn_are_read_per_conversation_in_order_of_creation(
        self, stores: list[Store]
    ) -> None:
        found, other = await insert_conversation(stores[0]), await insert_conversation(stores[0])
        turns = await grow(stores[0], found.branch, 2)
        line = (Stretch(found.branch, 0, 1),)
        at_turn = [(await branch_off(stores[0], found, turns[0], *line))[0].id for _ in range(3)]
        at_start = [(await branch_off(stores[0], found, None))[0].id for _ in range(2)]
        (elsewhere, _), _ = (
            await branch_off(stores[0], other, turns[0], *line),
            await branch_off(stores[0], found, turns[1], Stretch(found.branch, 0, 2)),
        )
        for each, base, limit, expected in (
            (found, turns[0].id, 9, at_turn),
            (found, turns[0].id, 2, at_turn[:2]),
            (found, None, 9, at_start),
            (other, turns[0].id, 9, [elsewhere.id]),
            (other, None, 9, []),
        ):
            listed = await read(stores[1], do("origins", each.id, base, limit))
            assert [origin.branch for origin in listed] == expected
            assert all(origin.conversation == each.id for origin in listed)

    async def test_branches_are_read_per_conversation_newest_first(self, stores: list[Store]) -> None:
        found, other = await insert_conversation(stores[0]), await insert_conversation(stores[0])
        turns = await grow(stores[0], found.branch, 1)
        made = [(await branch_off(stores[0], found, turns[0]))[0] for _ in range(3)]
        await branch_off(stores[0], other, None)
        await write(stores[0], do("save_branch", replace(made[0], fence=3, preview="Yes.")))
        first = await read(stores[1], do("branch", found.branch))
        expected = [made[2], made[1], replace(made[0], fence=3, preview="Yes."), first]
        for before, limit, listed in (
            (None, 9, expected),
            (None, 2, expected[:2]),
            (made[1].id, 9, expected[2:]),
            (made[1].id, 1, expected[2:3]),
            (found.branch, 9, []),
        ):
            assert await read(stores[1], do("branches", found.id, before, limit)) == listed

    async def test_first_branch_is_the_one_created_with_the_conversation(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        made, _ = await branch_off(stores[0], found, None)
        await write(stores[0], do("move_conversation", found.id, found.branch, made.id))
        first = await read(stores[1], do("first_branch", found.id))
        assert first == Branch(id=found.branch, conversation=found.id)
        assert (
            await read(stores[1], do("first_branch", replace(found, id=IDS.new(type(found.id))).id)) is None
        )

    async def test_pointer_moves_only_from_the_expected_branch(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        made, _ = await branch_off(stores[0], found, None)
        other, _ = await branch_off(stores[0], found, None)
        moves = ((found.branch, made.id, True), (found.branch, other.id, False), (made.id, other.id, True))
        for was, now, expected in moves:
            assert await write(stores[0], do("move_conversation", found.id, was, now)) == [expected]
        moved = await read(stores[1], do("conversation", found.owner, found.id))
        assert moved == replace(found, branch=other.id)
        lane = await read(stores[1], do("lane", found.owner, found.id, IDS.new(LeaseId)))
        assert lane[:2] == (moved, other)

    async def test_moved_queue_keeps_its_order_behind_another(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        made, _ = await branch_off(stores[0], found, None)
        there = [await self._ticket(stores[0], found, made.id) for _ in range(2)]
        here = [await self._ticket(stores[0], found, found.branch, front=place == 2) for place in range(3)]
        await write(stores[0], do("move_tickets", found.branch, made.id))
        queue = await read(stores[1], do("tickets", made.id))
        assert [ticket.attempt for ticket in queue] == [here[2], *there, *here[:2]]
        assert {ticket.branch for ticket in queue} == {made.id}
        assert await read(stores[1], do("tickets", found.branch)) == []
        later = await self._ticket(stores[0], found, made.id)
        queue = await read(stores[1], do("tickets", made.id))
        assert queue[-1].attempt == later
        assert len({ticket.number for ticket in queue}) == len(queue)

    async def _ticket(
        self, store: Store, found: Conversation, branch: BranchId, *, front: bool = False
    ) -> TurnId:
        ticket = Ticket(
            attempt=IDS.new(TurnId),
            conversation=found.id,
            branch=branch,
            front=front,
            lease=IDS.new(LeaseId),
            deadline=LATE,
        )
        await write(store, do("add_ticket", ticket))
        return ticket.attempt

    async def test_stretches_of_several_branches_are_read_in_order(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        first = await grow(stores[0], found.branch, 30)
        made, second = await branch_off(stores[0], found, first[19], Stretch(found.branch, 0, 20), count=12)
        own, shared = Stretch(made.id, 20, 32), Stretch(found.branch, 0, 20)
        line = [*first[:20], *second]
        for stretches, expected in (
            ([own, shared], line),
            ([Stretch(made.id, 20, 22), Stretch(found.branch, 17, 20)], line[17:22]),
            ([Stretch(made.id, 20, 20), Stretch(found.branch, 3, 3)], []),
            ([Stretch(made.id, 30, 99)], line[30:]),
            ([], []),
        ):
            assert await read(stores[1], do("turns_in", stretches)) == expected
            settled = [each for each in expected if each.kind is TurnKind.SETTLED]
            assert await read(stores[1], do("effects_in", stretches)) == settled

    async def test_first_turn_of_a_branch_has_its_parent(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        base = (await grow(stores[0], found.branch, 2))[1]
        made, _ = await branch_off(stores[0], found, base, Stretch(found.branch, 0, 2))
        own = [turn(made.id, 3, base.id)]
        own.append(turn(made.id, 4, own[0].id))
        await write(stores[0], *(do("add_turn", each) for each in own))
        assert await read(stores[1], do("turns", made.id, 0, 9, 9)) == own
        assert await read(stores[1], do("turn", found.owner, own[0].id)) == own[0]

    async def test_attempt_is_stored_with_its_target(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        places = [
            Fork(
                branch=IDS.new(BranchId), base=IDS.new(TurnId), number=7, forget=True, repeats=IDS.new(TurnId)
            ),
            Fork(branch=IDS.new(BranchId), base=None, number=0),
        ]
        for place in places:
            attempt = full_attempt(found, fork=place)
            await write(stores[0], do("add_attempt", attempt))
            assert await read(stores[1], do("attempt", found.owner, attempt.id)) == attempt

    @pytest.mark.parametrize("limit", [1, 2, 500])
    async def test_shared_turns_are_purged_with_the_last_line_that_needs_them(
        self, stores: list[Store], limit: int
    ) -> None:
        source, forked = await insert_conversation(stores[0]), await insert_conversation(stores[0])
        first = await grow(stores[0], source.branch, 5)
        made, second = await branch_off(stores[0], source, first[2], Stretch(source.branch, 0, 3), count=3)
        stretches = (Stretch(made.id, 3, 5), Stretch(source.branch, 0, 3))
        fork, third = await branch_off(stores[0], forked, second[1], *stretches, count=2)
        await self._end(stores[0], source, limit)
        needed = [*first[:3], *second[:2]]
        assert await read(stores[1], do("turns_in", stretches)) == needed
        assert await self._left(stores[1], [*first, *second, *third]) == [*needed, *third]
        assert (await read(stores[1], do("origin", fork.id))).line == stretches
        await self._end(stores[0], forked, limit)
        assert await self._left(stores[1], [*first, *second, *third]) == []
        assert await read(stores[1], do("origin", fork.id)) is None

    async def _end(self, store: Store, found: Conversation, limit: int) -> None:
        await write(store, do("save_conversation", replace(found, state=ConversationState.PURGED)))
        for _ in range(20):
            [removed] = await write(store, do("purge_ended", limit))
            assert removed <= limit

    async def _left(self, store: Store, turns: list[Turn]) -> list[Turn]:
        found = [await read(store, do("turn", "ann", each.id)) for each in turns]
        return [each for each in found if each is not None]

    async def test_branch_of_a_failed_transaction_leaves_no_rows(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        [base] = await grow(stores[0], found.branch, 1)
        made = Branch(id=IDS.new(BranchId), conversation=found.id, start=1, length=1, head=base.id)
        line = (Stretch(found.branch, 0, 1),)
        await self._ticket(stores[0], found, found.branch)

        async def break_off(tables: Tables) -> None:
            raise Superseded

        with pytest.raises(Superseded):
            await write(
                stores[0],
                do("add_branch", made),
                do("add_origin", Origin(branch=made.id, conversation=found.id, base=base.id, line=line)),
                do("move_conversation", found.id, found.branch, made.id),
                do("move_tickets", found.branch, made.id),
                break_off,
            )
        for store in stores:
            assert await read(store, do("branch", made.id)) is None
            assert await read(store, do("origin", made.id)) is None
            assert await read(store, do("origins", found.id, base.id, 9)) == []
            assert await read(store, do("conversation", found.owner, found.id)) == found
            assert len(await read(store, do("tickets", found.branch))) == 1


class EffectRows(Contract):
    async def test_turns_with_effects_are_found_for_a_new_branch(self, stores: list[Store]) -> None:
        here, there = stores
        home = await insert_conversation(here, conversation())
        made: list[Turn] = []
        for kind, effects in (
            (TurnKind.COMPLETED, None),
            (TurnKind.INTERRUPTED, (0,)),
            (TurnKind.INTERRUPTED, ()),
            (TurnKind.SETTLED, None),
            (TurnKind.INTERRUPTED, None),
        ):
            turn = Turn.of(
                id=IDS.new(TurnId),
                branch=home.branch,
                number=len(made) + 1,
                parent=made[-1].id if made else None,
                kind=kind,
                created_at=1,
                committed_at=1,
                input=(),
                output=(call("pay", "c"), answer_to("c", "paid")),
                effects=effects,
            )
            made.append(turn)
        await write(here, *[do("add_turn", turn) for turn in made])
        found = await read(there, do("effects_in", [Stretch(home.branch, 0, len(made))]))
        assert found == [made[1], made[3], made[4]]
        assert [turn.effects for turn in found] == [(0,), (0,), (0,)]


async def all_turns(chat: Chat) -> list[Turn]:
    return await chat.turns(limit=1_000)


class NestedEdits(Contract):
    async def test_lines_of_nested_edits_are_read_as_written(self, stage: Stage) -> None:
        """Compare with plain lists: a hundred random edits, then every branch and random pages."""
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        random = Random(7)
        line = await chain(chat, 4)
        lines: dict[BranchId, list[Turn]] = {}
        for number in range(100):
            using = (chat, same)[number % 2]
            lines[(await chat.info()).branch] = list(line)
            place = random.randrange(len(line) - 2, len(line))
            edited = await run_block(using.edit(line[place].id, f"edit {number}"), f"answer {number}")
            line = [*line[:place], edited]
            for _ in range(random.randrange(1, 3)):
                line.append(await exchange(using, "more", "yes"))
        lines[(await chat.info()).branch] = line
        assert len(line) > 70
        for limit in (1, 3, 50, 1_000):
            for before in (None, *range(1, len(line) + 3, 5)):
                end = len(line) if before is None else before - 1
                assert await chat.turns(before=before, limit=limit) == line[:end][-limit:]
        for branch, expected in random.sample(sorted(lines.items()), 12):
            await chat.switch(branch)
            assert await all_turns(same) == expected
            assert await same.turns(limit=2) == expected[-2:]
            await exchange(same, "on")
            assert (await all_turns(chat))[:-1] == expected


FEW = with_limits(LIMITS, purge_rows=2)
"""Purges in steps small enough to look at the rows in between."""


async def purge_all(process: StageProcess, *chats: Chat) -> None:
    """Purge beyond the last removal, and read these chats after each round."""
    expected = [await chat.turns(limit=1_000) for chat in chats]
    for _ in range(8):
        await process.tend()
        assert [await chat.turns(limit=1_000) for chat in chats] == expected


class SharedTurns(Contract):
    async def test_branch_operations_by_another_owner_are_refused(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        turns = await chain(chat, 2)
        await run_block(chat.edit(turns[1].id, "other"))
        before, found = await chat.turns(), await chat.info()
        eve = await as_seen_by("eve", here, chat)
        for attempt in (
            lambda: run_block(eve.edit(turns[0].id, "q")),
            lambda: run_block(eve.regenerate()),
            lambda: eve.undo(),
            lambda: eve.switch(turns[0].branch),
            lambda: eve.fork(),
            lambda: eve.siblings(turns[0].id),
        ):
            with pytest.raises(ConversationNotFound):
                await soon(attempt())
        assert await chat.turns() == before
        assert await chat.info() == found
        own = await here.chat(owner="eve")
        await chain(own, 1)
        for id in (turns[0].id, before[1].id):
            with pytest.raises(TurnNotFound):
                await run_block(own.edit(id, "q"))
            with pytest.raises(TurnNotFound):
                await soon(own.fork(id))
            with pytest.raises(TurnNotFound):
                await soon(own.siblings(id))

    @pytest.mark.parametrize("way", ["deleted", "expired"])
    @pytest.mark.parametrize("grown", [False, True])
    async def test_fork_outlives_its_source(self, stage: Stage, way: str, grown: bool) -> None:
        here, there = await stage.processes(limits=FEW)
        chat = await here.chat(expires_after=60.0 if way == "expired" else None)
        turns = await chain(chat, 4)
        await run_block(chat.edit(turns[3].id, "other"))
        await exchange(chat, "more")
        line = await chat.turns()
        forked = await soon(chat.fork(line[3].id))
        if grown:
            await exchange(forked, "mine")
        expected = await forked.turns()
        if way == "deleted":
            await chat.delete(purge=True)
        else:
            stage.clock.advance(61)
        await purge_all(there, forked)
        with pytest.raises(ConversationDeleted if way == "deleted" else ConversationExpired):
            await chat.turns()
        assert await _turns_there(here, [*turns, *line, *expected]) == {turn.id for turn in expected}
        model = ScriptedModel(["a"])
        await soon((await there.chat(forked)).run(model, "on"))
        assert len(model.seen[0]) == 2 * len(expected) + 1
        await run_block(forked.edit(expected[1].id, "early"))
        assert await input_texts(forked) == ["q1", "early"]
        assert await sibling_inputs(forked, (await forked.turns())[1].id) == ["q2", "early"]

    @pytest.mark.parametrize("limits", [FEW, LIMITS], ids=["few", "many"])
    @pytest.mark.parametrize("order", ["source first", "fork first", "together"])
    async def test_deletion_of_all_forks_leaves_no_rows(
        self, stage: Stage, order: str, limits: Limits
    ) -> None:
        here = await stage.process(limits)
        chat = await here.chat()
        turns = await chain(chat, 5)
        for number in (4, 3, 1):
            turns.append(await run_block(chat.edit(turns[number].id, "other")))
            await soon(chat.switch(turns[0].branch))
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await soon(chat.undo())
        turns += await chat.turns()
        forked = await soon(chat.fork(turns[2].id))
        turns.append(await exchange(forked, "mine"))
        again = await soon(forked.fork())
        turns.append(await run_block(again.edit(turns[1].id, "again")))
        turns.append(await exchange(again, "more"))
        chats = {"source first": [chat, forked, again], "fork first": [again, forked, chat]}
        for number, each in enumerate(chats.get(order, [forked, chat, again])):
            left = chats.get(order, [forked, chat, again])[number + 1 :]
            await each.delete(purge=True)
            if order != "together":
                await purge_all(here, *left)
        await purge_all(here)
        assert await _turns_there(here, turns) == set()
        assert await _lines_there(here, {turn.branch for turn in turns}) == []

    async def test_branches_survive_restart(self, stage: Stage) -> None:
        if not self.capabilities.survives_restart:
            pytest.skip("the store is gone with its process")
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 3)
        edited = await run_block(chat.edit(turns[1].id, "other"))
        forked = await soon(chat.fork())
        with pytest.raises(RuntimeError):
            await soon(play(forked.edit(edited.id, "third"), ScriptedModel([Tool("pay", "paid"), BOOM])))
        again = await stage.restart()
        assert await (await again.chat(chat)).turns() == [turns[0], edited]
        model = ScriptedModel(["a"])
        await soon((await again.chat(forked)).run(model, "next"))
        assert PAID in model.seen[0]
        assert await input_texts(await again.chat(forked)) == ["q1", "other", "third", "next"]


async def _turns_there(process: StageProcess, turns: list[Turn]) -> set[TurnId]:
    async def there(tables: Tables, ids: set[TurnId]) -> set[TurnId]:
        return {id for id in ids if await tables.turn("local", id) is not None}

    return await process.store.read(there, {turn.id for turn in turns})


async def _lines_there(process: StageProcess, branches: set[BranchId]) -> list[Turn]:
    async def there(tables: Tables, ids: set[BranchId]) -> list[Turn]:
        return [turn for id in ids for turn in await tables.turns(id, 0, 1_000, 1_000)]

    return await process.store.read(there, branches)
