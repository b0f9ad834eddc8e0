"""What is wrong with a script is seen, also in a fork that has imported something before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.scripts import run_script

WRONG = {
    "raise ValueError('no')": "ValueError: no",
    "import sys; sys.exit('ended')": "ended",
    "import warnings; warnings.warn('old', DeprecationWarning)": "DeprecationWarning: old",
    "asyncio.run": "NameError: name 'asyncio' is not defined",
    "import turnledger; turnledger.client": "AttributeError: module 'turnledger' has no attribute 'client'",
    "import tests": "ModuleNotFoundError: No module named 'tests'",
    "input()": "EOFError: EOF when reading a line",
}


@pytest.mark.parametrize(("code", "told"), WRONG.items())
def test_a_script_that_fails_is_seen_to_fail(code: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(f"print('begun')\n{code}\nprint('never printed')\n")
    done = run_script(tmp_path / "wrong.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert done.stderr.splitlines()[-1] == told


def test_a_script_has_its_arguments_its_folder_and_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("name = 'next door'\n")
    (tmp_path / "right.py").write_text(
        "import os, sys, atexit, neighbour\n"
        "atexit.register(print, 'ended')\n"
        "print(sys.argv[1:], os.getcwd(), neighbour.name, __name__)\n"
    )
    done = run_script(tmp_path / "right.py", "a b", "c", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"['a b', 'c'] {tmp_path} next door __main__\nended\n"
