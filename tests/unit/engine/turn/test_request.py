"""A request knows whether the line is still the one it was made for."""

from tests.unit.engine.stage import BRANCH, branch
from tests.unit.model.shapes import some_id
from turnledger.engine.turn.request import ExpectedHead
from turnledger.model.ids import BranchId, TurnId


def test_it_is_the_same_line_with_the_same_branch_and_head_only() -> None:
    head, other = some_id(TurnId, 1), some_id(TurnId, 2)
    seen = ExpectedHead(BRANCH, head)
    assert seen.is_still(branch(head=head, fence=7))
    assert not seen.is_still(branch(head=other))
    assert not seen.is_still(branch(head=None))
    assert not seen.is_still(branch(id=some_id(BranchId, 9), head=head))
