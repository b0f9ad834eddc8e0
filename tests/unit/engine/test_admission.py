"""What is done for who is let in at that moment: looked up again when that has changed, and not for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from turnledger.engine.admission import check_admitted, persist_admitted
from turnledger.engine.ports import Operation, Request, Result, Tables
from turnledger.engine.process import Process
from turnledger.errors import AdmissionMoved
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
