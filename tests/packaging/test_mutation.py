"""The mutation tester: its mutants differ from the code, and each survivor that is explained is still one."""

from __future__ import annotations

import importlib

from tools.mutation import MODULES, explained, is_noticed, mutants
from turnledger.engine import lease


def test_mutant_is_another_function_and_has_a_name_of_its_own() -> None:
    found = list(mutants(lease))
    assert len({mutant.name for mutant in found}) == len(found) > 3
    assert len({mutant.make() for mutant in found}) == len(found)


def test_mutant_that_breaks_every_turn_is_noticed() -> None:
    commit = importlib.import_module(MODULES["commit"])
    mutant = next(each for each in mutants(commit) if "ran_on_head" in each.name and "swapped" in each.name)
    assert is_noticed("commit", commit, mutant)


def test_explained_survivors_are_mutants_of_the_code_as_it_is() -> None:
    names = {mutant.name for name in MODULES.values() for mutant in mutants(importlib.import_module(name))}
    assert set(explained()) <= names
    assert all(explained().values())
