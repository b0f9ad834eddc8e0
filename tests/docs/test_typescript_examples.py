"""Examples in TypeScript run in Node against a real server, and print what the pages say they print."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.typescript_package import built
from tests.unit.server.processes import ServerProcess, started

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "clients" / "typescript" / "README.md"]
EXAMPLE = re.compile(r"```ts\n(.*?)```\s*```text\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        yield server


def examples() -> list[object]:
    return [
        pytest.param(*match.groups(), id=f"{page.relative_to(ROOT)}:{count}")
        for page in PAGES
        if page.exists()
        for count, match in enumerate(EXAMPLE.finditer(page.read_text()), 1)
    ]


@pytest.mark.parametrize(("code", "printed"), examples())
def test_an_example_prints_what_the_page_says(
    server: ServerProcess, code: str, printed: str, tmp_path: Path
) -> None:
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "turnledger").symlink_to(built())
    (tmp_path / "example.mjs").write_text(code.replace("http://127.0.0.1:8383", server.url))
    done = subprocess.run(["node", "example.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed.strip()


def test_the_readme_shows_an_example() -> None:
    assert any("README" in str(example) for example in examples())
