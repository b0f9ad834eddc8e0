"""The contract sees what goes wrong with admission when a rule of it is taken out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from turnledger.engine.ports import Store
from turnledger.engine.turn import begin, block
from turnledger.errors import AdmissionMoved, ConversationDeleted, TurnledgerError
from turnledger.stores.memory import Database, MemoryStore, MemoryTables
from turnledger.testing.store_contract.admissions import Admissions, one_of_anns
from turnledger.testing.store_contract.stage import Stage

LANE, BEGUN_BEFORE = begin._lane, begin._begun_before


async def goes_by_what_was_known_before(tables: Any, target: Any, request: Any) -> Any:
    return *(await LANE(tables, target, request))[:-1], request.admitted


async def knows_of_no_revocation(tables: Any, owner: str) -> int:
    return 0


async def asks_nobody(process: Any, asked: Any, request: Any) -> None:
    return None


async def shuts_out_what_has_begun(tables: Any, request: Any) -> Any:
    if request.admitted not in (None, await tables.admission(request.target.owner)):
        raise AdmissionMoved
    return await BEGUN_BEFORE(tables, request)


async def looks_nobody_up_again(asked: Any, request: Any) -> Any:
    raise AdmissionMoved


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    database = Database()

    async def open_store() -> Store:
        return MemoryStore(database)

    stage = Stage(open_store)
    yield stage
    await stage.close()


@pytest.mark.parametrize(
    ("where", "what", "how", "test", "arguments"),
    [
        (
            begin,
            "_lane",
            goes_by_what_was_known_before,
            "a_revocation_that_overtakes_a_begin_counts",
            ["run"],
        ),
        (
            MemoryTables,
            "admission",
            knows_of_no_revocation,
            "who_was_let_in_before_a_revocation_begins_nothing",
            ["replayed"],
        ),
        (
            block,
            "_check_still_admitted",
            asks_nobody,
            "who_is_shut_out_learns_nothing_else",
            [ConversationDeleted],
        ),
        (
            begin,
            "_begun_before",
            shuts_out_what_has_begun,
            "what_has_begun_goes_on_though_its_answer_was_lost",
            ["by_id"],
        ),
        (
            block,
            "_readmitted",
            looks_nobody_up_again,
            "who_waits_keeps_his_place_when_he_is_still_let_in",
            [],
        ),
    ],
)
async def test_the_contract_sees_it(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    what: str,
    how: Any,
    test: str,
    arguments: list[Any],
) -> None:
    chat = await one_of_anns(stage)
    monkeypatch.setattr(where, what, how)
    with pytest.raises((AssertionError, TurnledgerError, pytest.fail.Exception)):
        await getattr(Admissions(), f"test_{test}")(stage, chat, *arguments)
