"""Changes in memory: what is undone leaves them numbered as they were."""

from tests.unit.engine.stage import drive
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.ids import ConversationId
from turnledger.stores.memory import Database, MemoryTables

CHAT = ConversationId("conv_01890000000070008000000000000000")


def told(database: Database, count: int) -> None:
    tables = MemoryTables(database)
    for _ in range(count):
        drive(
            tables.add_change(LiveChange(kind=ChangeKind.TURN_RUNNING, owner="ann", conversation=CHAT, at=1))
        )


def test_numbers_go_on_after_a_purge_that_was_undone() -> None:
    database = Database()
    told(database, 3)
    tables = MemoryTables(database)
    assert drive(tables.purge_changes(9, 9, 9)) == 2
    tables.undo()
    told(database, 1)
    found = drive(MemoryTables(database).changes_of("ann", 0, 9))
    assert [each.position.number for each in found] == [1, 2, 3, 4]
