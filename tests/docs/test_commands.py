"""Commands named in the Makefile and the documents have a short form that a test runs."""

from __future__ import annotations

import gc
import logging
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import installed
from tests.long_form import IS_LONG, long_only
from tests.node_packages import built
from tools.node_package import PAGE

ROOT = Path(__file__).parents[2]
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "clients" / "README.md")
NAMED = re.compile(r"(?:python|\(PYTHON\)) -m ((?:bench|tests|tools|turnledger)[\w.]*)")

SHORT_FORMS = {
    "bench": ["--quick"],
    "bench.catalogue": ["--quick"],
    "bench.client": ["--quick"],
    "bench.copy": ["--quick"],
    "bench.http": ["--quick"],
    "bench.limits": ["--quick"],
    "bench.listen": ["--quick"],
    "bench.live_updates": ["--quick"],
    "bench.log_pages": ["--turns", "3"],
    "bench.plain_turn": ["memory:", "3"],
    "bench.conveniences": ["--rounds", "1", "--only", "yield"],
    "bench.postgresql": ["--rounds", "1", "--long", "20"],
    "bench.responses": ["--quick"],
    "bench.soak": ["--quick"],
    "bench.stops": ["--rounds", "2"],
    "bench.wakeups": ["--rounds", "2"],
    "bench.workers": ["--quick"],
    "tests.clients.every_byte": ["--client", "python", "--kind", "cut", "--sample", "5"],
    "tests.clients.outbox_storm": ["--kills", "1"],
    "tests.clients.play": ["--client", "python", "send"],
    "tests.clients.storm": ["--client", "python", "--seconds", "0.1"],
    "tests.crash.shared_database": ["--kills", "2"],
    "tests.proof": ["--list"],
    "tools.mutation": ["--list"],
    "tools.page": ["--if-possible"],
    "tools.sbom": ["/dev/null"],
    "tools.twins": ["--check"],
    "turnledger.testing.simulation": ["--seeds", "0:3"],
}
SLOW = {
    "bench.client",
    "bench.copy",
    "bench.http",
    "bench.limits",
    "bench.listen",
    "bench.live_updates",
    "bench.conveniences",
    "bench.postgresql",
    "bench.responses",
    "bench.soak",
    "bench.workers",
    "tests.clients.outbox_storm",
    "tests.clients.storm",
    "tests.crash.shared_database",
}
"""Commands whose short form takes seconds: `make test` only parses their flags."""
RUN_ELSEWHERE = {
    "tests.crash.killed_server": "tests/crash/test_storms.py",
    "tests.crash.live_updates": "tests/crash/test_storms.py",
    "tests.crash.unkept_storm": "tests/crash/test_storms.py",
    "tests.races.race": "tests/races/test_race.py",
    "tools.reference": "tests/docs/test_reference.py",
}
"""Commands whose `main` another test calls, and that test."""
UNTESTED = {
    "tests.proof": "each proof takes a minute or more; `make proof` runs them",
    "tools.mutation": "each change runs the tests of its module again; `make mutate` does that",
}
"""Commands whose short form only lists what the command would run, and why."""

ELSEWHERE = {
    "audit": "calls a service in the network; .ci/run",
    "compat": "installs packages from the registries",
    "clean": "removes the environment that runs the tests",
    "format": "changes files",
    "help": "only prints",
    "layers": "tests/architecture/test_house.py",
    "lint": ".ci/run",
    "lock": "calls the registry",
    "screenshots": "tests/web/test_screenshots.py",
    "serve": "tests/docs/test_page_commands.py",
    "setup": "every run of the tests",
    "test": "every run of the tests",
    "types": ".ci/run",
}
"""Targets of the Makefile that need no short form, or are run elsewhere."""


def targets() -> dict[str, str]:
    """Return the public targets of the Makefile with their recipes."""
    text = (ROOT / "Makefile").read_text("utf-8")
    return {found[1]: found[2] for found in re.finditer(r"^(\w+):[^\n]*## [^\n]*\n((?:\t.*\n)+)", text, re.M)}


def test_commands_named_in_documents_have_a_short_form() -> None:
    named = {module for page in PAGES for module in NAMED.findall(page.read_text("utf-8"))}
    assert named - {*SHORT_FORMS, *RUN_ELSEWHERE, "bench.page"} == set()


def test_commands_listed_as_run_elsewhere_are_called_there() -> None:
    for module, test in RUN_ELSEWHERE.items():
        text = (ROOT / test).read_text("utf-8")
        assert module.rpartition(".")[2] in text, module
        assert "main(" in text, module
    assert [
        test for test in ELSEWHERE.values() if test.startswith("tests/") and not (ROOT / test).exists()
    ] == []


def test_make_targets_run_a_command_with_a_short_form() -> None:
    commands = {
        target: set(NAMED.findall(recipe)) for target, recipe in targets().items() if target not in ELSEWHERE
    }
    assert len(commands) > 5
    assert all(commands.values())
    assert set().union(*commands.values()) <= {*SHORT_FORMS, *RUN_ELSEWHERE}


def test_short_forms_run_their_command_except_for_the_listed_ones() -> None:
    idle = {module for module, flags in SHORT_FORMS.items() if {"--help", "--list"} & set(flags)}
    assert idle == set(UNTESTED)


@pytest.fixture
def restored() -> Iterator[None]:
    """Restore what some commands set for their whole process."""
    logger = logging.getLogger("asyncio")
    level = logger.level
    yield
    logger.setLevel(level)
    gc.enable()


@pytest.mark.usefixtures("restored")
@pytest.mark.filterwarnings("ignore:.* found in sys.modules after import:RuntimeWarning")
@pytest.mark.parametrize("module", SHORT_FORMS)
def test_short_form_of_command_succeeds(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    others = ("bench.client", "bench.conveniences", "bench.postgresql")
    measures_disk = module.startswith("bench") and module not in others
    folder = ["--folder", str(tmp_path)] if measures_disk else []
    parsed = [] if IS_LONG or module not in SLOW else ["--help"]
    monkeypatch.setattr(sys, "argv", [module, *SHORT_FORMS[module], *folder, *parsed])
    monkeypatch.chdir(ROOT)
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    assert not code, capsys.readouterr()


@long_only
def test_short_form_of_the_page_benchmark_succeeds() -> None:
    """In a process of its own: another test may have a Playwright in this one."""
    installed()
    built(PAGE)
    command = [sys.executable, "-m", "bench.page", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
