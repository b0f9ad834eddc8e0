"""Documentation cannot lie: every Python example runs, and prints what the page says it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.scripts import run_script

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(r"```python\n(.*?)```\s*(?:```text\n(.*?)```)?", re.DOTALL)


def examples() -> list[object]:
    found = []
    for page in PAGES:
        for count, match in enumerate(EXAMPLE.finditer(page.read_text()), 1):
            name = f"{page.relative_to(ROOT)}:{count}"
            found.append(pytest.param(match.group(1), match.group(2), id=name))
    return found


@pytest.mark.parametrize(("code", "printed"), examples())
def test_example_runs_as_printed(code: str, printed: str | None, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert printed is None or done.stdout == printed


def test_the_readme_shows_an_example() -> None:
    assert any("README" in str(example) for example in map(str, examples()))


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for name in re.findall(r"^make ([a-z]+)", page.read_text(), re.MULTILINE):
            assert name in targets
