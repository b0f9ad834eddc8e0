"""Examples that need a server: they run against a real one, and print what the pages say they print."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.scripts import run_script
from tests.unit.server.processes import ServerProcess, started

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "chat-completions.md",
    ROOT / "docs" / "chats.md",
    ROOT / "docs" / "export.md",
    ROOT / "docs" / "keeping.md",
    ROOT / "docs" / "live-updates.md",
    ROOT / "docs" / "python-client.md",
    ROOT / "docs" / "search.md",
    ROOT / "docs" / "unsent-messages.md",
]
EXAMPLE = re.compile(r"```py\n(.*?)```\s*```text\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"```console\n\$ (curl .+)\n(.*)\n```")
URL = "http://127.0.0.1:8383"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        yield server


def found(pattern: re.Pattern[str]) -> list[object]:
    return [
        pytest.param(*match.groups(), id=f"{page.name}:{count}")
        for page in PAGES
        for count, match in enumerate(pattern.finditer(page.read_text()), 1)
    ]


@pytest.mark.parametrize(("code", "printed"), found(EXAMPLE))
def test_an_example_prints_what_the_page_says(
    server: ServerProcess, code: str, printed: str, tmp_path: Path
) -> None:
    script = tmp_path / "example.py"
    script.write_text(
        re.sub(r'"X-Conversation-Id": "(\w+)"', rf'"X-Conversation-Id": "\1-{tmp_path.name}"', code)
    )
    script.write_text(script.read_text().replace(URL, server.url))
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.parametrize(("command", "printed"), found(COMMAND))
def test_a_command_prints_what_the_page_says(server: ServerProcess, command: str, printed: str) -> None:
    words = shlex.split(command.replace(URL, server.url))
    done = subprocess.run(["curl", "--silent", *words[1:]], capture_output=True, text=True, check=True)
    expected = ".*".join(map(re.escape, printed.split("…")))
    assert re.fullmatch(expected, done.stdout.strip())


def test_the_pages_have_examples() -> None:
    assert len(found(EXAMPLE)) >= 3
    assert len(found(COMMAND)) >= 1
