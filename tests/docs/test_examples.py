"""Examples in the documents run, against a real server where needed, and print the output shown."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.typescript_package import built
from tests.compat.live_server import LiveServer, run_server
from tests.docs.recipe import COMMAND, CONSOLE, ROOT
from tests.docs.scripts import run_script

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), ROOT / "clients" / "typescript" / "README.md"]
PROGRAMS = {DOCS / "branches.md": 7, DOCS / "responses.md": 4}
"""Pages whose examples are one program, and how many there are."""
APART = (*PROGRAMS, DOCS / "stores.md", *(DOCS / "recipes").iterdir())
"""Pages whose examples build on each other, or are files of a program."""
URL = "http://127.0.0.1:8383"
LOCAL = r"```python\n(.*?)```\s*(?:```text\n(.*?)```)?"
SERVED = r"```py\n((?:(?!```).)*)```\s*```text\n(.*?)```"
TYPESCRIPT = r"```ts\n(.*?)```\s*```text\n(.*?)```"


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """A server of its own for each example."""
    with run_server(has_upstream=False) as server:
        yield server


def found(pattern: str, *apart: Path) -> list[object]:
    return [
        pytest.param(*match.groups(), id=f"{page.relative_to(ROOT)}:{count}")
        for page in PAGES
        if page not in apart
        for count, match in enumerate(re.finditer(pattern, page.read_text(), re.DOTALL), 1)
    ]


def test_start_page_shows_each_kind_of_example() -> None:
    for pattern in (LOCAL, SERVED, TYPESCRIPT):
        assert re.search(pattern, (DOCS / "start.md").read_text(), re.DOTALL), pattern


@pytest.mark.parametrize(("code", "printed"), found(LOCAL, DOCS / "stores.md"))
def test_local_example_prints_the_output_on_its_page(code: str, printed: str | None, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code)
    done = run_script(tmp_path / "example.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert printed is None or done.stdout == printed


@pytest.mark.parametrize(("code", "printed"), found(SERVED, *APART))
def test_example_with_a_server_prints_the_output_on_its_page(
    server: LiveServer, code: str, printed: str, tmp_path: Path
) -> None:
    (tmp_path / "example.py").write_text(code.replace(URL, server.url))
    done = run_script(tmp_path / "example.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.stem)
def test_examples_of_a_page_run_as_one_program(server: LiveServer, tmp_path: Path, page: Path) -> None:
    text = page.read_text()
    examples = re.findall(SERVED, text, re.DOTALL)
    assert len(examples) == text.count("```py\n") == PROGRAMS[page]
    code = "print('---')\n".join(code for code, _ in examples)
    (tmp_path / "examples.py").write_text(code.replace(URL, server.url))
    done = run_script(tmp_path / "examples.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("---\n") == [printed for _, printed in examples]


@pytest.mark.parametrize(("code", "printed"), found(TYPESCRIPT))
def test_typescript_example_prints_the_output_on_its_page(
    server: LiveServer, code: str, printed: str, tmp_path: Path
) -> None:
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "turnledger").symlink_to(built())
    (tmp_path / "example.mjs").write_text(code.replace(URL, server.url))
    done = subprocess.run(["node", "example.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed.strip()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_curl_commands_print_the_output_on_their_page(server: LiveServer) -> None:
    pages = [page.read_text() for page in PAGES if page not in APART]
    commands = COMMAND.findall("".join(block for page in pages for block in CONSOLE.findall(page)))
    requests = [(command, printed) for command, printed in commands if command.startswith("curl ")]
    assert len(requests) == 9
    for command, printed in requests:
        words = shlex.split(command.replace(URL, server.url))
        done = subprocess.run(["curl", "--silent", *words[1:]], capture_output=True, text=True, check=True)
        expected = ".*".join(map(re.escape, printed.strip().split("…")))
        assert re.fullmatch(expected, done.stdout.strip()), (command, done.stdout)


WRONG = {
    "raise ValueError('no')": "ValueError: no",
    "import sys; sys.exit('ended')": "ended",
    "import warnings; warnings.warn('old', DeprecationWarning)": "DeprecationWarning: old",
    "asyncio.run": "NameError: name 'asyncio' is not defined",
    "import turnledger; turnledger.client": "AttributeError: module 'turnledger' has no attribute 'client'",
    "import tests": "ModuleNotFoundError: No module named 'tests'",
    "input()": "EOFError: EOF when reading a line",
}


@pytest.mark.parametrize(("code", "message"), WRONG.items())
def test_run_script_with_a_failing_script_returns_its_exit_code_and_error(
    code: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong.py").write_text(f"print('begun')\n{code}\nprint('never printed')\n")
    done = run_script(tmp_path / "wrong.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert done.stderr.splitlines()[-1] == message


def test_run_script_passes_arguments_and_folder_and_imports_neighbouring_modules(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("name = 'next door'\n")
    (tmp_path / "right.py").write_text(
        "import os, sys, atexit, neighbour\n"
        "atexit.register(print, 'ended')\n"
        "print(sys.argv[1:], os.getcwd(), neighbour.name, __name__)\n"
    )
    done = run_script(tmp_path / "right.py", "a b", "c", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"['a b', 'c'] {tmp_path} next door __main__\nended\n"
