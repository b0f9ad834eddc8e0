"""A user sees the items that are not hidden from them."""

from tests.unit.engine.stage import BRANCH, branch, conversation, drive
from tests.unit.model.shapes import assistant, call, result, some_id, turn, user
from turnledger.engine.conversations.read import (
    InfoRequest,
    PageOfLine,
    TurnPageRequest,
    flagged_page,
    in_force,
    shown_to_user,
)
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId
from turnledger.stores.memory import Database, MemoryTables

OTHER = some_id(BranchId, 9)
ONE = turn(1, output=[call("a")])
TWO = turn(2, input=[result("a")], output=[assistant()])


def tables() -> MemoryTables:
    made = MemoryTables(Database())
    drive(made.add_conversation(conversation()))
    drive(made.add_branch(branch(head=TWO.id, length=2)))
    for each in (ONE, TWO):
        drive(made.add_turn(each))
    return made


def test_a_hidden_half_takes_the_other_along_over_turns() -> None:
    assert shown_to_user([ONE, TWO], {}) == [user(), call("a"), result("a"), assistant()]
    assert shown_to_user([ONE, TWO], {TWO.id: {0: Flags(to_user=False)}}) == [user(), assistant()]
    assert len(shown_to_user([ONE, TWO], {TWO.id: {0: Flags(to_model=False)}})) == 4


def test_a_page_brings_the_flags_of_its_turns() -> None:
    made = tables()
    flags = {0: Flags(to_user=False)}
    request = TurnPageRequest("ann", conversation().id, None, 1, 1)
    assert drive(flagged_page(made, PageOfLine(request))).flags == {}
    for each in (ONE, TWO):
        drive(made.save_flags("ann", each.id, flags))
    page = drive(flagged_page(made, PageOfLine(request)))
    assert (page.turns, page.flags) == ([TWO], {TWO.id: flags})


def test_pages_are_those_of_the_line_that_the_first_one_showed() -> None:
    made = tables()
    first = drive(flagged_page(made, PageOfLine(TurnPageRequest("ann", conversation().id, None, 1, 1))))
    drive(made.add_branch(branch(id=OTHER)))
    assert drive(made.move_conversation(conversation().id, BRANCH, OTHER))
    before = TurnPageRequest("ann", conversation().id, first.turns[0].number, 1, 1)
    assert drive(flagged_page(made, PageOfLine(before, first.branch))).turns == [ONE]
    assert drive(flagged_page(made, PageOfLine(before))).turns == []


def test_the_instructions_in_force_are_those_the_branch_names() -> None:
    made = tables()
    request = InfoRequest("ann", conversation().id, 1)
    assert drive(in_force(made, request)) == ()
    drive(made.save_branch(branch(id=BRANCH, length=2, instructed=1)))
    assert drive(in_force(made, request)) == ()
