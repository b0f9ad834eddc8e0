"""Every error of SQLite has its place in the tree."""

from pathlib import Path
from typing import cast

import apsw
import pytest

from turnledger.engine.ports import Tables
from turnledger.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
    Superseded,
)
from turnledger.model.turn import Turn
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.failures import _REMEDY, MEANING, meaning_of, not_committed, translated

CLASSES = {kind for kind in vars(apsw).values() if isinstance(kind, type) and issubclass(kind, apsw.Error)}


def error(kind: type[apsw.Error], code: int) -> apsw.Error:
    problem = kind("why")
    problem.extendedresult = code
    return problem


def test_the_map_names_every_error_class_of_apsw() -> None:
    assert set(MEANING) == CLASSES


def test_every_meaning_has_a_remedy() -> None:
    assert set(MEANING.values()) <= set(_REMEDY)


@pytest.mark.parametrize("kind", sorted(CLASSES, key=str))
def test_the_message_names_the_file_and_the_cause_is_kept(kind: type[apsw.Error]) -> None:
    problem = kind("why")
    failure = translated(problem, "chats.db")
    assert type(failure) is MEANING[kind]
    assert str(failure).startswith("chats.db: why. ")
    assert failure.__cause__ is problem


def test_an_extended_code_says_more_than_its_class() -> None:
    assert meaning_of(error(apsw.IOError, apsw.SQLITE_IOERR_CORRUPTFS)) is StoreCorrupt
    assert meaning_of(error(apsw.IOError, apsw.SQLITE_IOERR_READ)) is StoreUnavailable
    assert meaning_of(error(apsw.FullError, apsw.SQLITE_FULL)) is StoreFull


def test_an_open_store_that_is_no_database_any_more_is_damaged() -> None:
    assert meaning_of(apsw.NotADBError("not a database")) is StoreCorrupt


def test_a_file_that_cannot_be_opened_comes_with_what_to_look_at() -> None:
    failure = translated(apsw.CantOpenError("unable to open database file"), "/proc/chats.db")
    assert isinstance(failure, StoreUnavailable)
    assert "Check that its folder can hold files" in str(failure)


def test_an_unknown_outcome_never_claims_that_nothing_was_written() -> None:
    failure = not_committed(apsw.CorruptError("malformed"), "chats.db")
    assert type(failure) is OutcomeUnknown
    assert "Nothing was written" not in str(failure)
    assert failure.because is StoreCorrupt


def test_full_disk_at_commit_is_certain_not_to_have_committed() -> None:
    assert type(not_committed(apsw.FullError("full"), "chats.db")) is StoreFull


def test_values_that_sqlite_cannot_hold_are_the_callers_mistake() -> None:
    assert isinstance(translated(OverflowError("too large"), "chats.db"), InvalidInput)


async def test_bug_below_the_store_is_not_reported_as_damage(path: Path) -> None:
    async def add_nothing(tables: Tables, _: None) -> None:
        await tables.add_turn(cast(Turn, None))

    store = await SqliteStore.open(path, inline=True)
    with pytest.raises(AttributeError):
        await store.transact(add_nothing, None)
    with pytest.raises(AttributeError):
        await store.read(add_nothing, None)
    await store.close()


def test_other_errors_pass_as_they_are() -> None:
    refusal = Superseded()
    assert translated(refusal, "chats.db") is refusal
    assert issubclass(MEANING[apsw.Error], StoreError)
