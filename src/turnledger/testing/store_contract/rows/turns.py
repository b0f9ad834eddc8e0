"""The rows of branches, turns, and the flags of their items."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store
from turnledger.errors import StoreError
from turnledger.model.conversation import (
    Branch,
    ConversationState,
    NewBranch,
    Origin,
    Stretch,
    Usage,
    branch_bytes,
)
from turnledger.model.flags import SHOWN, WHOLE, Flags
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.text.search import Phrase
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.store_contract.rows.kit import (
    IDS,
    LATE,
    TEXT,
    add_ticket,
    branch_off,
    conversation,
    do,
    do_whole,
    ended_attempt,
    grow,
    insert_all,
    insert_conversation,
    read,
    read_all,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import Contract, Stage, answer_to, call, exchange


def full_branch(conversation: ConversationId, id: BranchId | None = None) -> Branch:
    return Branch(
        id=id or IDS.new(BranchId),
        conversation=conversation,
        fence=5,
        head=IDS.new(TurnId),
        length=4,
        start=1,
        settled=2,
        running=IDS.new(TurnId),
        unsettled=IDS.new(TurnId),
        pending=(call("look", "c"), call("pay", TEXT)),
        instructed=3,
        bytes=6,
        preview=TEXT,
        used_at=LATE,
    )


class StoredBranches(Contract):
    async def test_branch_is_read_as_added(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        made = full_branch(found.id)
        await write(here, do("add_branch", made))
        assert await read(there, do("branch", made.id)) == made
        assert await read(there, do("branch", IDS.new(BranchId))) is None

    async def test_branch_has_the_number_of_its_last_ticket(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        numbers = [(await add_ticket(here, found)).number for _ in range(2)]
        assert (await read(there, do("branch", found.branch))).last_ticket == numbers[-1]

    async def test_add_branch_refuses_a_taken_id_and_a_missing_conversation(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        for made in (
            Branch(id=found.branch, conversation=other.id),
            Branch(id=IDS.new(BranchId), conversation=IDS.new(ConversationId)),
        ):
            with pytest.raises(StoreError):
                await write(there, do("add_branch", made))
        assert (await read(there, do("branch", found.branch))).conversation == found.id
        assert await read(there, do("usage")) == Usage(bytes=2 * branch_bytes(0), chats=2)

    async def test_add_branches_adds_the_same_as_one_by_one(self, here: Store, there: Store) -> None:
        found = conversation()
        first = full_branch(found.id, found.branch)
        turns = [turn(first.id, 2)]
        turns += [turn(first.id, number, turns[-1].id) for number in (3,)]
        made = Branch(id=IDS.new(BranchId), conversation=found.id, start=2, length=2, head=turns[0].id)
        origin = Origin(
            branch=made.id, conversation=found.id, base=made.head, line=(Stretch(first.id, 0, 2),)
        )
        own = turn(made.id, 3, turns[0].id)
        branches = [
            NewBranch(first, None, ((turns[0], b"log"), (turns[1], b""))),
            NewBranch(made, origin, ((own, b""),)),
        ]
        await write(here, do("add_conversation", found), do("add_branches", branches, owner="ann"))
        assert await read(there, do("branches", found.id, None, 9)) == [made, first]
        assert await read_all(there, "origin", (made.id,), (first.id,)) == [origin, None]
        assert await read(there, do("turns", first.id, 0, 9, 9)) == turns
        assert await read(there, do("turns", made.id, 0, 9, 9)) == [own]
        assert await read_all(there, "turn_log", *((each.id,) for each in turns)) == [b"log", b""]
        stored = Usage(bytes=branch_bytes(first.bytes) + branch_bytes(0), chats=1)
        assert await read(there, do("usage")) == stored

    async def test_add_branches_adds_many_turns(self, here: Store, there: Store) -> None:
        found, turns = conversation(), list[Turn]()
        for number in range(1, 451):
            turns.append(turn(found.branch, number, turns[-1].id if turns else None, str(number)))
        branch = Branch(id=found.branch, conversation=found.id, length=450, head=turns[-1].id)
        made = NewBranch(branch, None, tuple((each, each.input[0].text.encode()) for each in turns))
        await write(here, do("add_conversation", found), do("add_branches", [made], owner="ann"))
        assert await read(there, do("turns", found.branch, 0, 999, 999)) == turns
        assert await read(there, do("turn_log", turns[448].id)) == b"449"

    async def test_save_branch_updates_all_but_conversation_start_and_last_ticket(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        added = await add_ticket(here, found)
        saved = full_branch(other.id, found.branch)
        await write(here, do("save_branch", replace(saved, last_ticket=99)))
        expected = replace(saved, conversation=found.id, start=0, last_ticket=added.number)
        assert await read(there, do("branch", found.branch)) == expected
        assert await read(there, do("branches", other.id, None, 9)) == [
            Branch(id=other.branch, conversation=other.id)
        ]

    async def test_save_branch_makes_a_side_branch_an_ordinary_one(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        [base] = await grow(here, found.branch, 1)
        made, _ = await branch_off(here, found, base, Stretch(found.branch, 0, 1))
        for used_at, expected in ((5, []), (None, [made.id])):
            await write(here, do("save_branch", replace(made, used_at=used_at)))
            listed = await read(there, do("origins", found.id, base.id, 9))
            assert [each.branch for each in listed] == expected
            assert (await read(there, do("branch", made.id))).used_at == used_at

    async def test_has_offshoots_of_the_branch_of_the_base_only(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        [base] = await grow(here, found.branch, 1)
        made, _ = await branch_off(here, found, base, Stretch(found.branch, 0, 1), count=1)
        same, _ = await branch_off(here, found, base, Stretch(found.branch, 0, 1))
        asked = [(found.branch,), (made.id,), (same.id,), (IDS.new(BranchId),)]
        assert await read_all(there, "has_offshoots", *asked) == [True, False, False, False]

    async def test_drop_turns_removes_the_last_ones_of_one_branch(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        [base] = await grow(here, found.branch, 1)
        made, own = await branch_off(here, found, base, Stretch(found.branch, 0, 1), count=3)
        last = turn(made.id, 5, own[2].id, "secret")
        await write(here, do("add_turn", last, b"log"), do("save_flags", last.id, {0: Flags(False, False)}))
        await write(here, do_whole("index_texts", 99))
        [size] = await write(here, do("drop_turns", made.id, 3))
        assert size == len(own[2].body) + len(last.body) + len(b"log")
        assert await read(there, do("turns", made.id, 0, 9, 9)) == own[:2]
        assert await read_all(there, "turn", (base.id,), (last.id,)) == [base, None]
        assert await read(there, do("turn_log", last.id)) == b""
        assert await read(there, do("flags", [last.id])) == {}
        assert await read(there, do("search", None, [Phrase(("secret",))], None, 9)) == []
        assert await read(there, do("inconsistencies", 9)) == []
        assert await write(here, do("drop_turns", made.id, 3)) == [0]

    async def test_drop_branch_removes_its_origin_and_ended_attempts(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        [base] = await grow(here, found.branch, 1)
        made, _ = await branch_off(here, found, base, Stretch(found.branch, 0, 1))
        here_ended, there_ended = ended_attempt(found, branch=made.id, bytes=5), ended_attempt(found)
        for each in (here_ended, there_ended):
            await write(here, do("add_attempt", each), do("add_records", each.id, 0, [b"record"]))
            await write(here, do("count_bytes", each.bytes))
        await write(here, do("drop_branch", made.id))
        assert await read_all(there, "branch", (made.id,)) == [None]
        assert await read(there, do("origin", made.id)) is None
        assert await read(there, do("has_offshoots", found.branch)) is False
        assert await read(there, do("attempts", found.id, 9)) == [there_ended]
        assert await read_all(there, "journal", (here_ended.id,), (there_ended.id,)) == [[], [b"record"]]
        assert await read(there, do("usage")) == Usage(bytes=branch_bytes(0), chats=1)
        assert await read(there, do("inconsistencies", 9)) == []
        await write(here, do("add_branch", made), do("drop_branch", IDS.new(BranchId)))
        assert await read(there, do("branch", made.id)) == made

    async def test_drop_branch_frees_the_turns_of_an_ended_conversation(
        self, here: Store, there: Store
    ) -> None:
        ended, found = await insert_all(here, [conversation(), conversation()])
        [base] = await grow(here, ended.branch, 1)
        made, _ = await branch_off(here, found, base, Stretch(ended.branch, 0, 1))
        await write(here, do("save_conversation", replace(ended, state=ConversationState.PURGED)))
        await write(here, do("purge_ended", 9))
        assert await read(there, do("turn", base.id)) == base
        await write(here, do("drop_branch", made.id))
        await write(here, do("purge_ended", 9))
        assert await read(there, do("turn", base.id)) is None

    async def test_first_branch_is_the_one_created_with_the_conversation(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here)
        made, _ = await branch_off(here, found, None)
        await write(here, do("move_conversation", found.id, found.branch, made.id))
        first = Branch(id=found.branch, conversation=found.id)
        unknown = IDS.new(ConversationId)
        assert await read_all(there, "first_branch", (found.id,), (unknown,)) == [first, None]

    async def test_branches_of_a_conversation_are_newest_first(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        turns = await grow(here, found.branch, 1)
        made = [(await branch_off(here, found, turns[0]))[0] for _ in range(3)]
        await branch_off(here, other, None)
        saved = replace(made[0], fence=3, preview="Yes.")
        await write(here, do("save_branch", saved))
        first = Branch(id=found.branch, conversation=found.id)
        expected = [made[2], made[1], saved, first]
        for before, limit, listed in (
            (None, 9, expected),
            (None, 2, expected[:2]),
            (made[1].id, 9, expected[2:]),
            (made[1].id, 1, expected[2:3]),
            (found.branch, 9, []),
        ):
            assert await read(there, do("branches", found.id, before, limit)) == listed
        assert await read(there, do("branches", IDS.new(ConversationId), None, 9)) == []

    async def test_origin_is_read_as_added(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        turns = await grow(here, found.branch, 3)
        line = (Stretch(found.branch, 0, 2),)
        made, _ = await branch_off(here, found, turns[1], *line)
        expected = Origin(branch=made.id, conversation=found.id, base=turns[1].id, line=line)
        ids = [made.id, found.branch, IDS.new(BranchId)]
        assert await read_all(there, "origin", *((id,) for id in ids)) == [expected, None, None]

    async def test_add_origin_keeps_a_long_line(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        turns = await grow(here, found.branch, 1)
        line: list[Stretch] = [Stretch(found.branch, 0, 1)]
        for _ in range(70):
            made, added = await branch_off(here, found, turns[-1], *line, count=1)
            turns += added
            line.insert(0, Stretch(made.id, made.start, made.start + 1))
        last, _ = await branch_off(here, found, turns[-1], *line)
        assert (await read(there, do("origin", last.id))).line == tuple(line)
        assert await read(there, do("turns_in", line)) == turns
        assert await read(there, do("turns_in", line[5:9])) == turns[-9:-5]

    async def test_origins_at_a_turn_are_those_of_a_conversation_oldest_first(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        turns = await grow(here, found.branch, 2)
        line = (Stretch(found.branch, 0, 1),)
        at_turn = [(await branch_off(here, found, turns[0], *line))[0].id for _ in range(3)]
        at_start = [(await branch_off(here, found, None))[0].id for _ in range(2)]
        elsewhere, _ = await branch_off(here, other, turns[0], *line)
        await branch_off(here, found, turns[1], Stretch(found.branch, 0, 2))
        for each, base, limit, expected in (
            (found, turns[0].id, 9, at_turn),
            (found, turns[0].id, 2, at_turn[:2]),
            (found, None, 9, at_start),
            (other, turns[0].id, 9, [elsewhere.id]),
            (other, None, 9, []),
        ):
            listed = await read(there, do("origins", each.id, base, limit))
            assert [origin.branch for origin in listed] == expected
            assert all((one.conversation, one.base) == (each.id, base) for one in listed)

    async def test_empty_branches_at_a_turn_are_those_of_any_conversation_without_own_turns(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        turns = await grow(here, found.branch, 2)
        line = (Stretch(found.branch, 0, 1),)
        empty = [(await branch_off(here, each, turns[0], *line))[0].id for each in (found, other, found)]
        full, own = await branch_off(here, found, turns[0], *line, count=1)
        await write(here, do("save_branch", replace(full, head=own[0].id, length=2)))
        lists = await read_all(there, "empty_branches_at", (turns[0], 9), (turns[0], 2), (turns[1], 9))
        assert lists == [empty, empty[:2], []]


class StoredTurns(Contract):
    async def test_turn_is_read_as_added(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        for number, kind in enumerate(TurnKind, 1):
            made = Turn.of(
                id=IDS.new(TurnId),
                branch=found.branch,
                number=number,
                parent=IDS.new(TurnId),
                kind=kind,
                created_at=2**52,
                committed_at=2**52,
                input=(call("pay", TEXT),),
                output=(answer_to(TEXT, "paid"),),
                effects=(1,) if kind is TurnKind.INTERRUPTED else None,
                instructed=number,
            )
            await write(here, do("add_turn", made))
            assert await read(there, do("turn", made.id)) == made
        assert await read(there, do("turn", IDS.new(TurnId))) is None

    async def test_turn_that_is_the_first_of_its_branch_has_its_parent(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here)
        base = (await grow(here, found.branch, 2))[1]
        made, _ = await branch_off(here, found, base, Stretch(found.branch, 0, 2))
        own = [turn(made.id, 3, base.id)]
        own.append(turn(made.id, 4, own[0].id))
        await write(here, *(do("add_turn", each) for each in own))
        assert await read(there, do("turns", made.id, 0, 9, 9)) == own
        assert await read(there, do("turn", own[0].id)) == own[0]

    async def test_turns_up_to_a_limit_are_the_last_ones_in_order(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made = await grow(here, found.branch, 6)
        await grow(here, other.branch, 6)
        for after, through, limit, numbers in [
            (0, 6, 9, [1, 2, 3, 4, 5, 6]),
            (0, 6, 2, [5, 6]),
            (2, 4, 9, [3, 4]),
            (4, 100, 1, [6]),
            (6, 6, 9, []),
            (0, 0, 9, []),
        ]:
            page = await read(there, do("turns", found.branch, after, through, limit))
            assert page == [made[number - 1] for number in numbers]
        assert await read(there, do("turns", IDS.new(BranchId), 0, 9, 9)) == []

    async def test_turns_in_stretches_of_several_branches_are_in_order(self, stores: list[Store]) -> None:
        for stretches, expected in await self._stretches(stores[0]):
            assert await read(stores[1], do("turns_in", stretches)) == expected

    async def test_effects_in_stretches_are_turns_that_are_carried(self, stores: list[Store]) -> None:
        for stretches, expected in await self._stretches(stores[0]):
            settled = [each for each in expected if each.kind is TurnKind.SETTLED]
            assert await read(stores[1], do("effects_in", stretches)) == settled

    async def _stretches(self, store: Store) -> list[tuple[list[Stretch], list[Turn]]]:
        """Make a line of two branches; return stretches of it, and their turns."""
        found = await insert_conversation(store)
        first = await grow(store, found.branch, 30)
        made, second = await branch_off(store, found, first[19], Stretch(found.branch, 0, 20), count=12)
        line = [*first[:20], *second]
        return [
            ([Stretch(made.id, 20, 32), Stretch(found.branch, 0, 20)], line),
            ([Stretch(made.id, 20, 22), Stretch(found.branch, 17, 20)], line[17:22]),
            ([Stretch(made.id, 20, 20), Stretch(found.branch, 3, 3)], []),
            ([Stretch(made.id, 30, 99)], line[30:]),
            ([Stretch(IDS.new(BranchId), 0, 9)], []),
            ([], []),
        ]

    async def test_effects_in_stretches_include_interrupted_turns_with_effects(
        self, here: Store, there: Store
    ) -> None:
        home = await insert_conversation(here)
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

    async def test_add_turn_refuses_a_taken_number_or_id(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        [first] = await grow(here, found.branch, 1)
        for twin in (turn(found.branch, 1), replace(turn(found.branch, 2, first.id), id=first.id)):
            with pytest.raises(StoreError):
                await write(there, do("add_turn", twin))
        assert await read(there, do("turns", found.branch, 0, 9, 9)) == [first]

    async def test_turn_log_is_the_one_added_with_the_turn(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        first = turn(found.branch, 1)
        second = turn(found.branch, 2, first.id)
        await write(here, do("add_turn", first, b"\x00log"), do("add_turn", second))
        for each, log in ((first.id, b"\x00log"), (second.id, b""), (IDS.new(TurnId), b"")):
            assert await read(there, do("turn_log", each)) == log


FLAGS = {0: Flags(False, True), 5: Flags(True, False)}


class StoredFlags(Contract):
    async def test_flags_are_those_saved_for_these_turns(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        first, second = await grow(here, found.branch, 2)
        assert await read(there, do("flags", (first.id, second.id))) == {}
        await write(here, do("save_flags", first.id, FLAGS))
        assert await read(there, do("flags", (first.id, second.id))) == {first.id: FLAGS}
        assert await read_all(there, "flags", ((second.id, IDS.new(TurnId)),), ((),)) == [{}, {}]

    async def test_flags_in_stretches_are_those_of_their_turns(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        turns = await grow(here, found.branch, 5)
        elsewhere = (await grow(here, other.branch, 2))[1]
        for each in (*turns[:4], elsewhere):
            await write(here, do("save_flags", each.id, FLAGS))
        await write(there, do("save_flags", turns[0].id, {}))
        for stretches, expected in (
            ([Stretch(found.branch, 0, 5)], turns[1:4]),
            ([Stretch(found.branch, 1, 3)], turns[1:3]),
            ([Stretch(found.branch, 4, 5)], []),
            ([Stretch(other.branch, 0, 2), Stretch(found.branch, 3, 5)], [elsewhere, turns[3]]),
            ([], []),
        ):
            flagged = await read(there, do("flags_in", stretches))
            assert flagged == {each.id: FLAGS for each in expected}

    async def test_save_flags_replaces_those_of_the_turn(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        first, second = await grow(here, found.branch, 2)
        await write(here, do("save_flags", second.id, FLAGS))
        for flags in (FLAGS, {1: Flags(False, False)}, {WHOLE: SHOWN}):
            await write(there, do("save_flags", first.id, flags))
            expected = {first.id: flags, second.id: FLAGS}
            assert await read(here, do("flags", (first.id, second.id))) == expected
        await write(there, do("save_flags", first.id, {}))
        assert await read(here, do("flags", (first.id, second.id))) == {second.id: FLAGS}
        with pytest.raises(StoreError):
            await write(there, do("save_flags", IDS.new(TurnId), FLAGS))

    async def test_flag_version_rises_with_every_save_of_its_owner(self, stores: list[Store]) -> None:
        here, there = stores
        found = await insert_conversation(here)
        [made] = await grow(here, found.branch, 1)
        versions = [await read(there, do("flag_version"))]
        for number in range(3):
            await write(stores[number % 2], do("save_flags", made.id, {}))
            versions.append(await read(there, do("flag_version")))
        assert versions == sorted(set(versions))
        assert versions[0] == await read(there, do("flag_version", owner="eve")) == 0

    async def test_flags_are_purged_with_their_turns(self, stage: Stage) -> None:
        process = await stage.process()
        chat, other = await process.chat(), await process.chat()
        turns = [await exchange(each, "q", "a") for each in (chat, other)]
        for each, made in zip((chat, other), turns, strict=True):
            await each.flag(made.id, to_model=False)
        await chat.delete(purge=True)
        await process.tend()
        ids = [each.id for each in turns]
        assert set(await read(process.store, do("flags", ids, owner=chat.owner))) == {turns[1].id}
