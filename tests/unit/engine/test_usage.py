"""What owners store: counted with each turn, at the price of few writes, and checked before a turn begins."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import branch, conversation, drive
from tests.unit.model.shapes import assistant, some_id, turn
from turnledger.engine.limits import Room, check_room, store_turn, usage
from turnledger.errors import StorageFull
from turnledger.model.conversation import BLOCK, ROW, Usage
from turnledger.model.ids import TurnId
from turnledger.stores.memory import Database, MemoryTables


class Counted(MemoryTables):
    """Notes how often the owner's row is written."""

    def __init__(self) -> None:
        super().__init__(Database())
        self.written: list[int] = []
        drive(self.add_conversation(conversation()))
        drive(self.add_branch(branch()))

    async def count_bytes(self, owner: str, more: int) -> None:
        self.written.append(more)
        await super().count_bytes(owner, more)


def test_the_row_of_the_owner_is_written_once_in_a_block() -> None:
    tables, line, size = Counted(), branch(), 0
    for number in range(1, 41):
        made = replace(turn(number, output=[assistant("y" * 1_000)]), branch=line.id)
        size += len(made.body) + 3
        line = replace(line, bytes=drive(store_turn(tables, "ann", line, made, b"log")))
    assert line.bytes == size
    assert tables.written == [BLOCK] * ((size + ROW) // BLOCK)
    assert drive(usage(tables, "ann")) == Usage(bytes=(1 + len(tables.written)) * BLOCK, chats=1)
    assert drive(tables.turn_log(some_id(TurnId, 40))) == b"log"


def test_there_is_room_until_the_bound_is_reached() -> None:
    tables = Counted()
    drive(check_room(tables, "ann", Room(BLOCK + 1)))
    drive(check_room(tables, "eve", Room(BLOCK)))
    with pytest.raises(StorageFull) as refused:
        drive(check_room(tables, "ann", Room(BLOCK)))
    assert refused.value.limit == BLOCK


def test_a_chat_in_question_is_not_held_against_itself() -> None:
    tables = Counted()
    drive(check_room(tables, "ann", Room(1, 1), made=conversation()))
    drive(check_room(tables, "ann", Room(chats=2), adds_chat=True))
    with pytest.raises(StorageFull, match="1 chats"):
        drive(check_room(tables, "ann", Room(chats=1), adds_chat=True))
