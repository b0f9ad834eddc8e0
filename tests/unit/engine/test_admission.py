"""Admission and usage: checked as a turn begins, at the price of few reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import branch, conversation, drive
from tests.unit.model.shapes import assistant, some_id, turn
from turnledger.engine.admission import check_admitted, persist_admitted
from turnledger.engine.limits import Room, check_room, store_turn, usage
from turnledger.engine.ports import Operation, Request, Result, Tables
from turnledger.engine.process import Process
from turnledger.errors import AdmissionMoved, StorageFull
from turnledger.model.conversation import BLOCK, ROW, Usage
from turnledger.model.ids import TurnId
from turnledger.stores.memory import Database, MemoryTables


@dataclass(frozen=True)
class Asked:
    admitted: int | None


async def done(tables: Tables, request: Asked) -> int | None:
    await check_admitted(tables, "ann", request.admitted)
    return request.admitted


class Persisting(Process):
    """A process of which only this is needed."""

    def __init__(self) -> None:
        self.tables = MemoryTables(Database())
        self.tried = 0

    async def persist(
        self, operation: Operation[Request, Result], request: Request, sync: object = None
    ) -> Result:
        self.tried += 1
        return await operation(self.tables, request)


async def test_who_is_let_in_and_whom_nobody_let_in_goes_on() -> None:
    process = Persisting()
    assert await persist_admitted(process, done, Asked(0), None) == 0
    assert await persist_admitted(process, done, Asked(None), None) is None


async def test_who_was_let_in_before_is_looked_up_again() -> None:
    process = Persisting()
    await process.tables.raise_admission("ann")

    async def readmit() -> int:
        return await process.tables.admission("ann")

    assert await persist_admitted(process, done, Asked(0), readmit) == 1
    assert process.tried == 2


async def test_nobody_is_looked_up_for_ever() -> None:
    process = Persisting()
    await process.tables.raise_admission("ann")

    async def knows_nothing_new() -> int:
        return 0

    for readmit in (None, knows_nothing_new):
        with pytest.raises(AdmissionMoved):
            await persist_admitted(process, done, Asked(0), readmit)
    assert process.tried == 2


async def test_what_he_is_told_is_raised() -> None:
    process = Persisting()
    await process.tables.raise_admission("ann")

    async def shut_out() -> int:
        raise PermissionError("revoked")

    with pytest.raises(PermissionError):
        await persist_admitted(process, done, Asked(0), shut_out)


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
