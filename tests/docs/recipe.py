"""A recipe as its reader uses it: its files, and its commands in order.

A block that begins with a comment such as `# app.py`, `// app.mjs` or `<!-- page.html -->` is that file. In a
`console` block, lines that begin with `$` are commands, followed by their output, where `…` matches anything.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.docs.scripts import run_script

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "recipes"
FILE = re.compile(
    r"```(?:py|toml|html|js)\n(?:#|<!--|//) (\S+\.(?:py|toml|html|mjs))(?: -->)?\n(.*?)```", re.DOTALL
)
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
SETTINGS = re.compile(r"```toml\n(.*?)```", re.DOTALL)
SCRIPT = re.compile(r"python \w+\.py\b")
AT_WORK = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class Recipe:
    """One page, written into a folder. `moved` maps its addresses to those of the test."""

    name: str
    folder: Path
    moved: Mapping[str, str]
    python: str | None = None
    """The interpreter with the packages of the recipe, if it is not that of the tests."""

    @property
    def page(self) -> str:
        text = (FOLDER / f"{self.name}.md").read_text()
        for address, now in self.moved.items():
            text = text.replace(address, now)
        return text

    @property
    def commands(self) -> list[tuple[str, str]]:
        return COMMAND.findall("".join(CONSOLE.findall(self.page)))

    @property
    def settings(self) -> str:
        return "".join(SETTINGS.findall(self.page))

    def write(self) -> None:
        for name, code in FILE.findall(self.page):
            (self.folder / name).write_text(code)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        if SCRIPT.match(command) and self.python is None:
            script, *arguments = shlex.split(command)[1:]
            return run_script(self.folder / script, *arguments, cwd=self.folder)
        silenced = re.sub(r"^curl ", "curl --silent ", command)
        return subprocess.run(
            ["bash", "-c", silenced],
            cwd=self.folder,
            env=environment(self.python),
            capture_output=True,
            text=True,
            check=False,
        )

    def check(self, script: str = "", *, is_written: bool = False) -> int:
        """Save its files, run all commands or one script, and compare the output; return their number."""
        if not is_written:
            self.write()
        commands = [each for each in self.commands if script in each[0]]
        for command, printed in commands:
            done = self.run(command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            expected = r"[^\n]*".join(map(re.escape, printed.strip().split("…")))
            assert re.fullmatch(expected, done.stdout.strip()), (command, done.stdout)
        return len(commands)


def environment(python: str | None = None) -> dict[str, str]:
    """Return an environment in which `python` is this one, or that of the tests."""
    tools = Path(python or sys.executable).parent
    return {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONUNBUFFERED": "1",
    }


@contextmanager
def at_work(folder: Path, *command: str, is_killed: bool = False, **environ: str) -> Iterator[str]:
    """Run a web application with `python -m` and yield its address; at the end it is terminated or killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**environment(), **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield _address(process)
        finally:
            if not is_killed:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
            process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    output = ""
    for line in process.stderr:
        output += line
        found = AT_WORK.search(line)
        if found is not None:
            threading.Thread(
                target=process.stderr.read, daemon=True
            ).start()  # so that it never blocks on output
            return found[0]
    raise AssertionError(output)
