"""Lines of branches and history views behave like the plain lists of turns they represent."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.stage import (
    CONVERSATION,
    chain,
    conversation,
    drive,
    generated,
    lane_tables,
    memory_tables,
)
from tests.unit.model.shapes import assistant, some_id, user
from turnledger import Ledger, Limits
from turnledger.engine import process
from turnledger.engine.history import history as history_module
from turnledger.engine.history import line
from turnledger.engine.history.history import DEEPEST, History, TurnsRequest, read_turns
from turnledger.engine.turn import resent_request, running_turn
from turnledger.errors import ConversationDeleted, StoreCorrupt, TurnNotFound
from turnledger.model.conversation import Branch, Origin, Stretch
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores.memory import Database, MemoryStore, MemoryTables
from turnledger.stores.memory.database import UndoLog
from turnledger.testing.gates import GatedStore

FEW = 3


@pytest.fixture(autouse=True)
def few_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few enough that lines have to be put together from several rows."""
    monkeypatch.setattr(line, "STRETCHES_KEPT", FEW)


class Tree:
    """Branches in tables, and beside each the plain list of its turns."""

    def __init__(self) -> None:
        self.tables = CountingTables(Database(), UndoLog(), "ann")
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
        stretches = drive(line.line_through(self.tables, self.branch(id), turns[-1])) if turns else ()
        head = turns[-1].id if turns else None
        self._add(Branch(id=made, conversation=CONVERSATION, start=number, length=number, head=head), turns)
        drive(
            self.tables.add_origin(Origin(branch=made, conversation=CONVERSATION, base=head, line=stretches))
        )
        return made

    def page(self, id: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        return drive(line.turns_of(self.tables, self.branch(id), after, through, limit))


class CountingTables(MemoryTables):
    """Tables that count the reads of origins."""

    reads = 0

    async def origin(self, branch: BranchId) -> Origin | None:
        self.reads += 1
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


@generated
@given(plans)
def test_page_of_any_branch_equals_the_slice_of_its_turn_list(plan: list[tuple[str, int, int]]) -> None:
    tree = planted(plan)
    for id, turns in tree.lines.items():
        for after in range(-1, len(turns) + 1):
            for through in (after, after + 1, after + 4, len(turns), len(turns) + 5):
                for limit in (1, 3, 100):
                    expected = [turn for turn in turns if after < turn.number <= through][-limit:]
                    assert tree.page(id, after, through, limit) == expected


@generated
@given(plans)
def test_effects_of_a_line_are_all_settled_turns_after_a_number(plan: list[tuple[str, int, int]]) -> None:
    tree = planted(plan)
    for id, turns in tree.lines.items():
        branch = replace(tree.branch(id), settled=len(turns))
        for after in range(len(turns) + 1):
            expected = [turn for turn in turns[after:] if turn.kind is TurnKind.SETTLED]
            assert drive(line.effects_of(tree.tables, branch, after)) == expected


@generated
@given(plans)
def test_last_shared_of_two_lines_is_the_last_common_turn(
    plan: list[tuple[str, int, int]],
) -> None:
    tree = planted(plan)
    for one, ours in tree.lines.items():
        for other, theirs in tree.lines.items():
            both = [mine for mine, their in zip(ours, theirs, strict=False) if mine == their]
            found = drive(line.last_shared(tree.tables, tree.branch(one), tree.branch(other)))
            assert found == len(both)


@generated
@given(plans)
def test_up_to_a_turn_off_the_line_raises_turn_not_found(plan: list[tuple[str, int, int]]) -> None:
    tree = planted(plan)
    everything = {turn.id: turn for turns in tree.lines.values() for turn in turns}
    for id, turns in tree.lines.items():
        branch = tree.branch(id)
        for turn in everything.values():
            if turn in turns:
                stretches = drive(line.line_through(tree.tables, branch, turn))
                check_stretches(stretches, turns[: turn.number])
            else:
                with pytest.raises(TurnNotFound):
                    drive(line.line_through(tree.tables, branch, turn))


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


@generated
@given(plans, st.integers(0, 12))
def test_turn_at_a_number_equals_that_of_the_turn_list(plan: list[tuple[str, int, int]], number: int) -> None:
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


def test_last_page_reads_a_constant_number_of_origins_after_many_edits() -> None:
    reads = []
    for edits in (FEW + 1, 20 * FEW):
        tree = Tree()
        id = deep(tree, edits)
        before = tree.tables.reads
        assert len(tree.page(id, 0, 1_000, FEW)) == FEW
        reads.append(tree.tables.reads - before)
    assert reads[0] == reads[1] <= 2


def test_whole_line_after_many_edits_reads_one_origin_per_group_of_edits() -> None:
    tree = Tree()
    id = deep(tree, 10 * FEW)
    before = tree.tables.reads
    assert tree.page(id, 0, 1_000, 1_000) == tree.lines[id]
    assert tree.tables.reads - before <= 11


A = some_id(BranchId, 1)
TURNS = tuple(chain(*range(1, 7)))


@generated
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=25))
def test_history_views_extended_in_any_order_equal_plain_lists(steps: list[tuple[int, int]]) -> None:
    ids = count(1)
    views: list[History] = [History([])]
    plain: list[list[Turn]] = [[]]
    for pick, length in steps:
        at = pick % len(views)
        added = chain(*(next(ids) for _ in range(length)), after=plain[at])
        views.append(views[at].followed_by(added))
        plain.append(plain[at] + added)
    assert [list(view) for view in views] == plain
    assert [len(view) for view in views] == [len(each) for each in plain]
    assert [view.head for view in views] == [each[-1].id if each else None for each in plain]


@generated
@given(st.integers(1, 3 * DEEPEST), st.integers(1, 3 * DEEPEST))
def test_history_view_forked_many_times_equals_a_plain_list(forks: int, length: int) -> None:
    view, plain = History(), list[Turn]()
    for number in range(forks):
        view.followed_by(chain(1_000 + number, after=plain))
        added = chain(number + 1, after=plain)
        view, plain = view.followed_by(added), plain + added
    assert list(view) == plain
    assert list(view.first(min(length, forks))) == plain[:length]
    assert view[min(length, forks) - 1] == plain[:length][-1]


@generated
@given(
    st.integers(0, 6),
    st.slices(8) | st.builds(slice, *[st.none() | st.integers(-8, 8)] * 2),
    st.integers(-8, 8),
)
def test_history_view_is_indexed_like_a_list(length: int, piece: slice, at: int) -> None:
    view, plain = History(TURNS).first(length), list(TURNS[:length])
    assert view[piece] == tuple(plain[piece])
    assert list(reversed(view)) == plain[::-1]
    if -length <= at < length:
        assert view[at] == plain[at]
    else:
        with pytest.raises(IndexError):
            view[at]


def test_history_view_that_is_extended_shares_its_node() -> None:
    base = History(TURNS[:3])
    longer = base.followed_by(TURNS[3:4])
    assert longer._node is base._node
    assert len(base) == 3


def test_history_view_extended_twice_shares_the_common_beginning() -> None:
    base = History(TURNS[:2])
    first, second = base.followed_by(TURNS[2:3]), base.followed_by(other := chain(9, after=TURNS[:2]))
    assert (tuple(first), tuple(second)) == (TURNS[:3], (*TURNS[:2], *other))
    assert second._node.before is first._node
    assert len(second._node.packed) == 1


def test_history_view_being_iterated_does_not_grow() -> None:
    base = History(TURNS[:2])
    seen = []
    for each in base:
        seen.append(each)
        base.followed_by(TURNS[2:])
    assert tuple(seen) == TURNS[:2]


def test_read_turns_returns_exactly_the_requested_numbers() -> None:
    tables = lane_tables(id=A)
    for each in TURNS:
        drive(tables.add_turn(each))
    line = Branch(id=A, conversation=CONVERSATION, head=TURNS[5].id, length=6)
    assert drive(read_turns(tables, TurnsRequest(line, 1, 5))) == [*TURNS[1:5]]


def test_read_turns_with_missing_turns_raises_deleted_or_corrupt() -> None:
    tables, there = memory_tables(), conversation(branch=A)
    line = Branch(id=A, conversation=CONVERSATION, head=TURNS[5].id, length=6)
    request = TurnsRequest(line, 1, 5)
    with pytest.raises(ConversationDeleted):
        drive(read_turns(tables, request))
    drive(tables.add_conversation(there))
    with pytest.raises(StoreCorrupt):
        drive(read_turns(tables, request))


LENGTH = 7


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GatedStore]:
    """A store with a chat of some turns, which count as many."""
    for module in (history_module, running_turn, resent_request):
        monkeypatch.setattr(module, "LONG", 2)
    for module in (process, resent_request):
        monkeypatch.setattr(module, "TURNS_AT_ONCE", 3)
    store = GatedStore(MemoryStore())
    async with await Ledger.over(store, limits=Limits(lease_time=600.0)) as ledger:
        for number in range(LENGTH):
            async with ledger.turn(f"question {number}", conversation_key="k") as turn:
                turn.emit(f"answer {number}")
        ledger._process.cache.forget(turn.conversation.branch)
        store.operations.clear()
        yield store


@pytest.fixture
async def ledger(store: GatedStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store, limits=Limits(lease_time=600.0)) as ledger:
        yield ledger


def threads_of(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> tuple[list[threading.Thread], Callable[..., Any]]:
    """Note in which threads a function runs."""
    seen: list[threading.Thread] = []
    original = getattr(owner, name)

    def noted(*given: Any) -> Any:
        seen.append(threading.current_thread())
        return original(*given)

    monkeypatch.setattr(owner, name, noted)
    return seen, original


def messages(count: int) -> list[dict[str, str]]:
    texts = [("user", "question"), ("assistant", "answer")]
    return [{"role": role, "content": f"{text} {n}"} for n in range(count) for role, text in texts]


async def test_long_history_is_read_in_three_pages(ledger: Ledger, store: GatedStore) -> None:
    async with ledger.turn("more", conversation_key="k") as turn:
        assert len(turn.history) == LENGTH
        turn.emit("yes")
    assert store.operations.count(read_turns.__name__) == 3


async def test_long_history_is_decoded_off_the_event_loop(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, _ = threads_of(monkeypatch, history_module, "chat_json_from")
    async with ledger.turn("more", conversation_key="k") as turn:
        decoded = msgspec.json.decode(await turn.read_messages_json())
        assert decoded == [*messages(LENGTH), {"role": "user", "content": "more"}] == turn.messages
        assert threading.main_thread() not in seen[:1]
        assert await turn.read_messages_json() == turn.messages_json
        turn.emit("yes")


async def test_long_resent_history_is_compared_off_the_event_loop(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, _ = threads_of(monkeypatch, resent_request, "decide")
    reached: list[int] = []
    reach = history_module.BranchCache.extend_shown

    def noted(self: Any, branch: Any, history: Any) -> bool:
        reached.append(len(history))
        return reach(self, branch, history)

    monkeypatch.setattr(history_module.BranchCache, "extend_shown", noted)
    async with ledger.resent(
        [*messages(LENGTH), {"role": "user", "content": "more"}], conversation_key="k"
    ) as turn:
        assert [item.text for item in turn.input] == ["more"]
        turn.emit("yes")
    assert seen
    assert threading.main_thread() not in seen
    assert reached == [3, 6]
