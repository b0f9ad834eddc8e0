"""The line of a branch: any tree of branches reads as the lists that it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.stage import CONVERSATION, conversation, drive
from tests.unit.model.shapes import assistant, repeatable, some_id, user
from turnledger.engine.history import line
from turnledger.errors import TurnNotFound
from turnledger.model.conversation import Branch, Origin, Stretch
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores.memory import Database, MemoryTables

FEW = 3


@pytest.fixture(autouse=True)
def few_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few enough that lines have to be put together from several rows."""
    monkeypatch.setattr(line, "STRETCHES_KEPT", FEW)


class Tree:
    """Branches in tables, and beside each the plain list of its turns."""

    def __init__(self) -> None:
        self.tables = CountingTables(Database())
        drive(self.tables.add_conversation(conversation(branch=some_id(BranchId, 1))))
        self.lines: dict[BranchId, list[Turn]] = {}
        self.branches: list[BranchId] = []
        self._turns = 0
        self._add(Branch(id=some_id(BranchId, 1), conversation=CONVERSATION), [])

    def _add(self, branch: Branch, turns: list[Turn]) -> None:
        drive(self.tables.add_branch(branch))
        self.lines[branch.id] = turns
        self.branches.append(branch.id)

    def branch(self, id: BranchId) -> Branch:
        found = drive(self.tables.branch(id))
        assert found is not None
        return found

    def grow(self, id: BranchId, kind: TurnKind = TurnKind.COMPLETED) -> Turn:
        branch, turns = self.branch(id), self.lines[id]
        self._turns += 1
        turn = Turn.of(
            id=some_id(TurnId, self._turns),
            branch=id,
            number=len(turns) + 1,
            parent=turns[-1].id if turns else None,
            kind=kind,
            created_at=1,
            committed_at=2,
            input=(user(),),
            output=(assistant(),),
        )
        drive(self.tables.add_turn(turn))
        grown = Branch(id=id, conversation=CONVERSATION, start=branch.start, length=turn.number, head=turn.id)
        drive(self.tables.save_branch(grown))
        turns.append(turn)
        return turn

    def split(self, id: BranchId, number: int) -> BranchId:
        """Make a branch from the turn of this number, 0 for the very beginning."""
        turns = self.lines[id][:number]
        made = some_id(BranchId, len(self.branches) + 1)
        stretches = drive(line.up_to(self.tables, self.branch(id), turns[-1])) if turns else ()
        head = turns[-1].id if turns else None
        self._add(Branch(id=made, conversation=CONVERSATION, start=number, length=number, head=head), turns)
        drive(
            self.tables.add_origin(Origin(branch=made, conversation=CONVERSATION, base=head, line=stretches))
        )
        return made

    def page(self, id: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        return drive(line.turns_of(self.tables, self.branch(id), after, through, limit))


class CountingTables(MemoryTables):
    """Tables that know how many origins they were asked for."""

    asked = 0

    async def origin(self, branch: BranchId) -> Origin | None:
        self.asked += 1
        return await super().origin(branch)


plans = st.lists(
    st.tuples(st.sampled_from(["grow", "grow", "settle", "split"]), st.integers(0, 9), st.integers(0, 9)),
    max_size=40,
)


def planted(plan: list[tuple[str, int, int]]) -> Tree:
    tree = Tree()
    for what, pick, place in plan:
        # Mostly at the latest branches, so that lines become deep.
        id = tree.branches[-1 - pick % min(3, len(tree.branches))]
        if what == "split":
            tree.split(id, max(0, len(tree.lines[id]) - place % 4))
        else:
            tree.grow(id, TurnKind.SETTLED if what == "settle" else TurnKind.COMPLETED)
    return tree


@repeatable
@given(plans)
def test_every_page_of_every_branch_is_that_of_its_list(plan: list[tuple[str, int, int]]) -> None:
    tree = planted(plan)
    for id, turns in tree.lines.items():
        for after in range(-1, len(turns) + 1):
            for through in (after, after + 1, after + 4, len(turns), len(turns) + 5):
                for limit in (1, 3, 100):
                    expected = [turn for turn in turns if after < turn.number <= through][-limit:]
                    assert tree.page(id, after, through, limit) == expected


@repeatable
@given(plans)
def test_settled_turns_are_found_wherever_they_stand(plan: list[tuple[str, int, int]]) -> None:
    tree = planted(plan)
    for id, turns in tree.lines.items():
        branch = replace(tree.branch(id), settled=len(turns))
        for after in range(len(turns) + 1):
            expected = [turn for turn in turns[after:] if turn.kind is TurnKind.SETTLED]
            assert drive(line.effects_of(tree.tables, branch, after)) == expected


@repeatable
@given(plans)
def test_the_last_shared_turn_of_two_lines_is_the_last_that_both_lists_have(
    plan: list[tuple[str, int, int]],
) -> None:
    tree = planted(plan)
    for one, ours in tree.lines.items():
        for other, theirs in tree.lines.items():
            both = [mine for mine, their in zip(ours, theirs, strict=False) if mine == their]
            found = drive(line.last_shared(tree.tables, tree.branch(one), tree.branch(other)))
            assert found == len(both)


@repeatable
@given(plans)
def test_a_turn_is_on_a_line_exactly_if_its_list_has_it(plan: list[tuple[str, int, int]]) -> None:
    tree = planted(plan)
    everything = {turn.id: turn for turns in tree.lines.values() for turn in turns}
    for id, turns in tree.lines.items():
        branch = tree.branch(id)
        for turn in everything.values():
            if turn in turns:
                stretches = drive(line.up_to(tree.tables, branch, turn))
                check_stretches(stretches, turns[: turn.number])
            else:
                with pytest.raises(TurnNotFound):
                    drive(line.up_to(tree.tables, branch, turn))


def check_stretches(stretches: tuple[Stretch, ...], turns: list[Turn]) -> None:
    """They are the last of the turns, without a gap, each of at least one, and only so many."""
    assert 0 < len(stretches) <= FEW
    through = len(turns)
    for stretch in stretches:
        assert stretch.through == through
        assert stretch.after < through
        assert {turn.branch for turn in turns[stretch.after : through]} == {stretch.branch}
        through = stretch.after
    assert through == 0 or len(stretches) == FEW


@repeatable
@given(plans, st.integers(0, 12))
def test_the_turn_of_a_number_is_that_of_the_list(plan: list[tuple[str, int, int]], number: int) -> None:
    tree = planted(plan)
    for id, turns in tree.lines.items():
        expected = turns[number - 1] if 0 < number <= len(turns) else None
        assert drive(line.turn_at(tree.tables, tree.branch(id), number)) == expected


def deep(tree: Tree, edits: int) -> BranchId:
    id = tree.branches[0]
    tree.grow(id)
    for _ in range(edits):
        tree.grow(id)
        id = tree.split(id, len(tree.lines[id]) - 1)
        tree.grow(id)
        tree.grow(id)
    return id


def test_the_last_page_asks_for_no_more_origins_the_deeper_the_edits() -> None:
    asked = []
    for edits in (FEW + 1, 20 * FEW):
        tree = Tree()
        id = deep(tree, edits)
        before = tree.tables.asked
        assert len(tree.page(id, 0, 1_000, FEW)) == FEW
        asked.append(tree.tables.asked - before)
    assert asked[0] == asked[1] <= 2


def test_a_whole_line_is_put_together_from_one_origin_for_so_many_edits() -> None:
    tree = Tree()
    id = deep(tree, 10 * FEW)
    before = tree.tables.asked
    assert tree.page(id, 0, 1_000, 1_000) == tree.lines[id]
    assert tree.tables.asked - before <= 11
