"""The page of branches: its examples are one program, which prints what the page says, block by block."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.unit.server.processes import started
from turnledger.api.requests import TurnBody
from turnledger.api.turns import Branch

PAGE = (Path(__file__).parents[2] / "docs" / "branches.md").read_text()
EXAMPLE = re.compile(r"```py\n(.*?)```\s*```text\n(.*?)```", re.DOTALL)


def test_its_examples_print_what_it_says(tmp_path: Path) -> None:
    found = EXAMPLE.findall(PAGE)
    assert len(found) == PAGE.count("```py\n") == 5
    script = tmp_path / "examples.py"
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        code = "print('---')\n".join(code for code, _ in found)
        script.write_text(code.replace("http://127.0.0.1:8383", server.url))
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("---\n") == [printed for _, printed in found]


def test_every_field_is_named() -> None:
    assert [name for name in TurnBody.__struct_fields__ if f"`{name}`" not in PAGE] == []
    told = set(Branch.__struct_fields__) - {"id", "is_current", "is_running"}
    assert [name for name in told if f"`{name}`" not in PAGE] == []
