"""The rows of one owner and of all owners are apart, and the contract tests every method of them."""

from __future__ import annotations

import inspect

import pytest

from turnledger.engine.ports import Inspection, Tables, WholeStore
from turnledger.engine.tables.changes import PositionRows
from turnledger.engine.tables.inspection import InspectionRows
from turnledger.engine.tables.lanes import LeaseRows
from turnledger.stores.memory.tables import MemoryTables
from turnledger.stores.memory.whole import MemoryWholeStore
from turnledger.stores.sqlite.tables.tables import SqliteTables
from turnledger.stores.sqlite.tables.whole import SqliteWholeStore
from turnledger.testing.store_contract import StoreContract
from turnledger.testing.store_contract.rows import foreign


def methods(port: type) -> set[str]:
    own = [each for each in port.__mro__ if each.__module__.startswith("turnledger.")]
    return {name for each in own for name in vars(each) if not name.startswith("_")}


ABOUT_NO_OWNER = methods(LeaseRows) | methods(PositionRows)
"""Rows that belong to processes or to the store."""
OF_ONE_OR_ALL = {"index_texts", "is_index_complete", "purge_ended"}
"""Upkeep of the rows of one owner, or of all."""


def test_no_method_of_the_rows_of_an_owner_takes_an_owner() -> None:
    named = {name: inspect.signature(getattr(Tables, name)) for name in methods(Tables) - {"owner"}}
    assert len(named) > 60
    assert [name for name, signature in named.items() if "owner" in signature.parameters] == []


def test_rows_of_all_owners_are_reachable_through_the_whole_store_only() -> None:
    shared = methods(Tables) & methods(WholeStore)
    assert shared == ABOUT_NO_OWNER | OF_ONE_OR_ALL
    assert methods(InspectionRows) & (methods(Tables) | methods(WholeStore)) == set()


@pytest.mark.parametrize(
    ("tables", "whole"), [(MemoryTables, MemoryWholeStore), (SqliteTables, SqliteWholeStore)]
)
def test_rows_of_a_store_have_the_methods_of_their_port_only(tables: type, whole: type) -> None:
    of_one, of_all = methods(Tables), methods(Inspection)
    assert {name for name in of_all - of_one if hasattr(tables, name)} == set()
    assert {name for name in of_one - of_all if hasattr(whole, name)} == set()


def test_contract_has_a_test_named_after_every_method() -> None:
    known = methods(Tables) | methods(Inspection)
    rows = foreign.__name__.rpartition(".")[0]
    tests = [name for name in dir(StoreContract) if name.startswith("test_")]
    names = [f"{name}_" for name in tests if getattr(StoreContract, name).__module__.startswith(rows)]
    named = [[each for each in known if name.startswith(f"test_{each}_")] for name in names]
    # A test of `turn_log` is none of `turn`.
    assert sorted(known - {max(each, key=len) for each in named if each}) == []


def test_foreign_calls_are_made_of_every_method_of_the_rows_of_an_owner() -> None:
    assert set(foreign.METHODS) == methods(Tables) - {"owner"}
