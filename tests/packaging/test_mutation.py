"""The mutation tester: correct verdicts, and no verdict by tests that fail unmutated."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.long_form import long_only
from tools import mutation
from tools.mutation import CORE, explained, found_again, modules, mutants
from turnledger.engine.turn import queue

ROOT = Path(__file__).parents[2]
PLUGINS = "anyio.pytest_plugin,pytest_timeout,xdist.plugin"
PASSES = """
import asyncio
import threading
from turnledger.engine.lane.shield import is_cancelled

def test_passes() -> None:
    async def ask() -> bool:
        return is_cancelled()

    assert asyncio.run(ask()) is False
"""
HANGS = PASSES.replace(
    "assert asyncio.run(ask()) is False", "asyncio.run(ask()) and threading.Event().wait()"
)

AWAITS = """
from turnledger.engine.lane.shield import uninterrupted

def test_awaits_what_types_coroutine_made_awaitable() -> None:
    async def call() -> None:
        await uninterrupted(asyncio.sleep(0))

    asyncio.run(call())
"""


def mutate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.mutation", "lane.shield", "--only", "is_cancelled", *arguments]
    # Of all plugins that are installed, those that the settings name: others take longer than the tests.
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": PLUGINS}
    env = {**os.environ, **plugins}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_mutants_of_a_module_have_unique_names_and_code() -> None:
    found = list(mutants("turn.queue", queue))
    assert len({mutant.name for mutant in found}) == len({mutant.key for mutant in found}) == len(found) > 3


def test_mutants_exist_for_every_core_module() -> None:
    known = modules()
    assert {*CORE, "sqlite.tables.records", "feed"} <= set(known)
    assert all(list(mutants(name, importlib.import_module(known[name]))) for name in CORE)


def test_code_that_the_sql_stores_share_is_judged_by_sqlite() -> None:
    assert mutation.tests_for("sql.owner", modules()["sql.owner"]) == [
        "tests/contract/test_sqlite.py",
        "tests/unit/stores/sqlite",
    ]


@long_only
def test_mutation_run_reports_killed_surviving_and_hung_mutants_separately(tmp_path: Path) -> None:
    passes, hangs, killed = tmp_path / "test_it.py", tmp_path / "test_hangs.py", tmp_path / "killed.json"
    passes.write_text(PASSES + AWAITS)
    hangs.write_text(HANGS)
    run = mutate("--tests", str(passes), "--killed", str(killed))
    assert run.returncode == 1
    assert "control: the unmodified code passes 2 tests" in run.stdout, run.stderr
    assert "survived: lane.shield.is_cancelled: 0 -> 1" in run.stdout
    assert "4 mutants: 2 killed by a failing test, 0 hung, 2 survive" in run.stdout
    again = mutate("--tests", str(hangs), "--again", str(killed), "--patience", "3", "--sample", "1")
    assert again.returncode == 0
    assert "1 mutants: 0 killed by a failing test, 1 hung, 0 survive" in again.stdout


def test_mutation_run_whose_tests_fail_unmutated_names_them_and_exits(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(PASSES.replace("is False", "is True"))
    run = mutate("--tests", str(test))
    assert run.returncode == 2
    assert "the unmodified code must pass its tests" in run.stderr
    assert "test_it.py::test_passes" in run.stderr


def test_mutation_run_without_usable_tests_exits_with_the_reason(tmp_path: Path) -> None:
    empty, unimportable = tmp_path / "test_empty.py", tmp_path / "test_unimportable.py"
    empty.write_text("")
    unimportable.write_text("import nothing_of_this_name")
    for test, reason in (
        (empty, "no tests were collected (exit code 5)"),
        (unimportable, "cannot be imported"),
    ):
        run = mutate("--tests", str(test))
        assert (run.returncode, reason in run.stderr) == (2, True), run.stderr


def test_mutant_is_found_again_after_its_module_moved_or_function_was_renamed() -> None:
    found = list(mutants("turn.queue", queue))
    listed = [{**vars(found[0]), "module": "elsewhere"}, {**vars(found[0]), "source": "gone"}]
    again, gone = found_again(listed, found)
    assert again == [found[0]]
    assert len(gone) == 1
    renamed = replace(found[0], function="renamed")
    assert found_again(listed[:1], [renamed]) == ([renamed], [])


def test_explained_survivors_are_mutants_of_the_current_code() -> None:
    known, reasons = modules(), explained()
    within = {name for name in known if any(each.startswith(f"{name}.") for each in reasons)}
    names = {each.name for name in within for each in mutants(name, importlib.import_module(known[name]))}
    assert set(reasons) <= names
    assert all(reasons.values())
