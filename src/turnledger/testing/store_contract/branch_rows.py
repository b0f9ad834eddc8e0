"""The rows of branches: how one was made from another, whose turns its line is, what moves with them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store, Tables
from turnledger.errors import Superseded
from turnledger.model.attempt import Fork
from turnledger.model.conversation import Branch, Conversation, ConversationState, Origin, Stretch, Ticket
from turnledger.model.ids import BranchId, LeaseId, TurnId
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.store_contract.rows import (
    IDS,
    LATE,
    begun,
    do,
    full_attempt,
    read,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import Contract


async def grow(store: Store, branch: BranchId, count: int, start: int = 0) -> list[Turn]:
    """Add so many turns to a branch; every third is settled."""
    turns: list[Turn] = []
    for number in range(start + 1, start + count + 1):
        made = turn(branch, number, turns[-1].id if turns else None)
        turns.append(replace(made, kind=TurnKind.SETTLED) if number % 3 == 0 else made)
    await write(store, *(do("add_turn", each) for each in turns))
    return turns


async def branch_off(
    store: Store, found: Conversation, base: Turn | None, *line: Stretch, count: int = 0
) -> tuple[Branch, list[Turn]]:
    """Make a branch of a conversation from a turn, with turns of its own."""
    start = base.number if base else 0
    made = Branch(
        id=IDS.new(BranchId),
        conversation=found.id,
        start=start,
        length=start,
        head=base.id if base else None,
    )
    origin = Origin(branch=made.id, conversation=found.id, base=made.head, line=line)
    await write(store, do("add_branch", made), do("add_origin", origin))
    return made, await grow(store, made.id, count, start)


class BranchRows(Contract):
    async def test_a_branch_and_its_origin_come_back_as_they_were(self, stores: list[Store]) -> None:
        found = await begun(stores[0])
        turns = await grow(stores[0], found.branch, 3)
        line = (Stretch(found.branch, 0, 2),)
        made, _ = await branch_off(stores[0], found, turns[1], *line)
        await write(stores[0], do("save_branch", replace(made, settled=2, fence=4)))
        assert await read(stores[1], do("branch", made.id)) == replace(made, settled=2, fence=4)
        expected = Origin(branch=made.id, conversation=found.id, base=turns[1].id, line=line)
        assert await read(stores[1], do("origin", made.id)) == expected
        assert await read(stores[1], do("origin", found.branch)) is None
        assert await read(stores[1], do("origin", IDS.new(BranchId))) is None

    async def test_switches_are_kept_beside_their_conversation(self, stores: list[Store]) -> None:
        found, other = await begun(stores[0]), await begun(stores[0])
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

    async def test_forgotten_effects_are_kept_beside_their_conversation(self, stores: list[Store]) -> None:
        found, other = await begun(stores[0]), await begun(stores[0])
        effects = tuple(bytes([n]) * 16 for n in range(3))
        assert await read(stores[1], do("forgotten", found.id)) == ()
        await write(
            stores[0],
            do("save_forgotten", found.id, effects),
            do("save_conversation", replace(found, revision=2)),
        )
        assert await read(stores[1], do("forgotten", found.id)) == effects
        assert await read(stores[1], do("forgotten", other.id)) == ()

    async def test_a_long_line_comes_back_as_it_was(self, stores: list[Store]) -> None:
        found = await begun(stores[0])
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

    async def test_origins_are_those_of_one_conversation_at_one_turn_in_the_order_of_making(
        self, stores: list[Store]
    ) -> None:
        found, other = await begun(stores[0]), await begun(stores[0])
        turns = await grow(stores[0], found.branch, 2)
        line = (Stretch(found.branch, 0, 1),)
        at_turn = [(await branch_off(stores[0], found, turns[0], *line))[0].id for _ in range(3)]
        at_start = [(await branch_off(stores[0], found, None))[0].id for _ in range(2)]
        (elsewhere, _), _ = (
            await branch_off(stores[0], other, turns[0], *line),
            await branch_off(stores[0], found, turns[1], Stretch(found.branch, 0, 2)),
        )
        for conversation, base, limit, expected in (
            (found, turns[0].id, 9, at_turn),
            (found, turns[0].id, 2, at_turn[:2]),
            (found, None, 9, at_start),
            (other, turns[0].id, 9, [elsewhere.id]),
            (other, None, 9, []),
        ):
            listed = await read(stores[1], do("origins", conversation.id, base, limit))
            assert [origin.branch for origin in listed] == expected
            assert all(origin.conversation == conversation.id for origin in listed)

    async def test_branches_are_those_of_one_conversation_the_last_made_first(
        self, stores: list[Store]
    ) -> None:
        found, other = await begun(stores[0]), await begun(stores[0])
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

    async def test_the_first_branch_is_the_one_that_came_with_the_conversation(
        self, stores: list[Store]
    ) -> None:
        found = await begun(stores[0])
        made, _ = await branch_off(stores[0], found, None)
        await write(stores[0], do("move_conversation", found.id, found.branch, made.id))
        first = await read(stores[1], do("first_branch", found.id))
        assert first == Branch(id=found.branch, conversation=found.id)
        assert (
            await read(stores[1], do("first_branch", replace(found, id=IDS.new(type(found.id))).id)) is None
        )

    async def test_the_pointer_moves_only_from_where_it_is(self, stores: list[Store]) -> None:
        found = await begun(stores[0])
        made, _ = await branch_off(stores[0], found, None)
        other, _ = await branch_off(stores[0], found, None)
        moves = (
            (found.branch, made.id, True),
            (found.branch, other.id, False),
            (made.id, other.id, True),
        )
        for was, now, expected in moves:
            assert await write(stores[0], do("move_conversation", found.id, was, now)) == [expected]
        moved = await read(stores[1], do("conversation", found.owner, found.id))
        assert moved == replace(found, branch=other.id)
        lane = await read(stores[1], do("lane", found.owner, found.id, IDS.new(LeaseId)))
        assert lane[:2] == (moved, other)

    async def test_a_queue_moves_behind_another_in_its_order(self, stores: list[Store]) -> None:
        found = await begun(stores[0])
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
        found = await begun(stores[0])
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

    async def test_the_first_turn_of_a_branch_tells_its_parent(self, stores: list[Store]) -> None:
        found = await begun(stores[0])
        base = (await grow(stores[0], found.branch, 2))[1]
        made, _ = await branch_off(stores[0], found, base, Stretch(found.branch, 0, 2))
        own = [turn(made.id, 3, base.id)]
        own.append(turn(made.id, 4, own[0].id))
        await write(stores[0], *(do("add_turn", each) for each in own))
        assert await read(stores[1], do("turns", made.id, 0, 9, 9)) == own
        assert await read(stores[1], do("turn", found.owner, own[0].id)) == own[0]

    async def test_an_attempt_keeps_where_it_goes(self, stores: list[Store]) -> None:
        found = await begun(stores[0])
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
    async def test_turns_that_a_line_needs_are_purged_with_the_last_that_needs_them(
        self, stores: list[Store], limit: int
    ) -> None:
        source, forked = await begun(stores[0]), await begun(stores[0])
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

    async def test_a_branch_that_was_made_in_vain_leaves_no_trace(self, stores: list[Store]) -> None:
        found = await begun(stores[0])
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
