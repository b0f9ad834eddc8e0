"""An audit: what cannot be read is noted or passed over, and nothing else is."""

import pytest

from tests.unit.model.shapes import some_id
from turnledger.engine.check.audit import REMEMBERED, Audit, Enough, Location
from turnledger.errors import StoreCorrupt, StoreUnavailable
from turnledger.model.check import Rule
from turnledger.model.ids import BranchId
from turnledger.stores.memory import Database, MemoryTables

HERE = Location(owner="ann")


@pytest.fixture
def audit() -> Audit:
    return Audit(MemoryTables(Database()), 2, at_rest=False)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (StoreCorrupt("Torn."), "It cannot be read: Torn."),
        (KeyError("x"), "It cannot be read: KeyError('x')"),
    ],
)
def test_what_cannot_be_read_is_noted(audit: Audit, problem: Exception, said: str) -> None:
    with audit.noting(HERE):
        raise problem
    assert [(each.rule, each.owner, each.message) for each in audit.findings] == [
        (Rule.DOCUMENT, "ann", said)
    ]


def test_what_is_passed_over_is_not_noted(audit: Audit) -> None:
    with audit.passing_over():
        raise StoreCorrupt
    assert audit.findings == []


def test_a_store_out_of_reach_is_no_damage(audit: Audit) -> None:
    for block in (audit.noting(HERE), audit.passing_over()):
        with pytest.raises(StoreUnavailable), block:
            raise StoreUnavailable
    with audit.passing_over(StoreUnavailable):
        raise StoreUnavailable
    assert audit.findings == []


def test_there_can_be_enough(audit: Audit) -> None:
    audit.found(Rule.CHAIN, HERE, "One.")
    audit.found(Rule.CHAIN, HERE, "Two.")
    with pytest.raises(Enough):
        audit.found(Rule.CHAIN, HERE, "Three.")
    assert len(audit.findings) == 2


def test_settled_turns_are_remembered_of_so_many_branches(audit: Audit) -> None:
    assert audit.settled_on(some_id(BranchId, 1)) is None
    for number in range(REMEMBERED + 1):
        audit.remember_settled(some_id(BranchId, number), (number,))
    assert audit.settled_on(some_id(BranchId, 0)) is None
    assert audit.settled_on(some_id(BranchId, REMEMBERED)) == (REMEMBERED,)
