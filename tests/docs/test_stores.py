"""The store on its page works, and fulfils the contract as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.recipe import ROOT
from tests.docs.scripts import run_script

PAGE = (ROOT / "docs" / "stores.md").read_text()
STORE, PROGRAM, TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[PRINTED] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "snapshot_store.py").write_text(STORE)
    return tmp_path


def test_ledger_runs_on_the_store_of_the_page(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    done = run_script(folder / "program.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr


def test_store_of_the_page_keeps_its_rows_as_the_contract_demands(folder: Path) -> None:
    """The rest of the contract takes a minute."""
    assert run_contract(folder) == 0


def test_contract_finds_a_store_that_keeps_what_it_should_undo(folder: Path) -> None:
    (folder / "snapshot_store.py").write_text(STORE.replace("changes.undo()", "pass"))
    assert run_contract(folder, "-k", "operation_that_raises") == pytest.ExitCode.TESTS_FAILED


def run_contract(folder: Path, *options: str) -> int:
    (folder / "test_snapshot_store.py").write_text(TEST.replace("StoreContract", "RowContract"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "--rootdir", folder, *options]
    return subprocess.run([*command, folder / "test_snapshot_store.py"], cwd=folder, check=False).returncode
