"""Every command that the Makefile and the documents name has a short form, and a test runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.chromium import installed
from tests.node_packages import built
from tools.node_package import PAGE

ROOT = Path(__file__).parents[2]
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "clients" / "README.md")
NAMED = re.compile(r"(?:python|\(PYTHON\)) -m ((?:bench|tests|tools|turnledger)[\w.]*)")

SHORT_FORMS = {
    "bench": ["--quick"],
    "bench.catalogue": ["--quick"],
    "bench.client": ["--quick"],
    "bench.http": ["--quick"],
    "bench.limits": ["--quick"],
    "bench.listen": ["--quick"],
    "bench.live": ["--quick"],
    "bench.page": ["--quick"],
    "bench.soak": ["--quick"],
    "bench.stops": ["--rounds", "2"],
    "bench.waking": ["--rounds", "2"],
    "bench.workers": ["--quick"],
    "tests.clients.every_byte": ["--client", "python", "--kind", "cut", "--sample", "5"],
    "tests.clients.outbox_storm": ["--kills", "1"],
    "tests.clients.play": ["--client", "python", "send"],
    "tests.clients.storm": ["--client", "python", "--seconds", "1"],
    "tests.proof": ["--list"],
    "tests.races.racing": ["--rounds", "1"],
    "tools.mutation": ["--list"],
    "tools.page": ["--if-possible"],
    "tools.sbom": ["/dev/null"],
    "tools.twins": ["--check"],
    "turnledger.testing.simulation": ["--seeds", "0:3"],
}
RUN_ELSEWHERE = {
    "tests.crash.killed_server": "tests/crash/test_storms.py",
    "tests.crash.live_updates": "tests/crash/test_storms.py",
    "tests.crash.unkept": "tests/crash/test_storms.py",
    "tools.reference": "tests/docs/test_reference.py",
}
"""Commands whose `main` another test calls, and that test."""
UNTESTED = {
    "tests.proof": "each proof takes a minute or more; `make proof` runs them",
    "tools.mutation": "each change runs the tests of its module again; `make mutate` does that",
}
"""Commands whose short form only lists what the command would run, and why."""
NO_FOLDER = {"bench.client", "bench.page"}
"""Benchmarks that do not measure a disk."""

ELSEWHERE = {
    "audit": "asks a service in the network; .ci/run",
    "clean": "removes the environment that runs the tests",
    "format": "changes files",
    "help": "only prints",
    "layers": "tests/architecture/test_layers.py",
    "lint": ".ci/run",
    "lock": "asks the registry",
    "screenshots": "tests/web/test_screenshots.py",
    "serve": "tests/docs/test_served_examples.py",
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
    assert named - set(SHORT_FORMS) - set(RUN_ELSEWHERE) == set()


@pytest.mark.parametrize(("module", "test"), RUN_ELSEWHERE.items())
def test_command_that_is_run_elsewhere_is_called_there(module: str, test: str) -> None:
    text = (ROOT / test).read_text("utf-8")
    assert module.rpartition(".")[2] in text
    assert "main(" in text


def test_make_targets_run_a_command_with_a_short_form() -> None:
    commands = {
        target: set(NAMED.findall(recipe)) for target, recipe in targets().items() if target not in ELSEWHERE
    }
    assert len(commands) > 5
    assert all(commands.values())
    assert set().union(*commands.values()) <= {*SHORT_FORMS, *RUN_ELSEWHERE}


def test_short_forms_do_what_their_command_does() -> None:
    idle = {module for module, flags in SHORT_FORMS.items() if {"--help", "--list"} & set(flags)}
    assert idle == set(UNTESTED)


@pytest.mark.parametrize("module", SHORT_FORMS)
def test_short_form_of_command_succeeds(module: str, tmp_path: Path) -> None:
    if module == "bench.page":
        installed()
        built(PAGE)
    folder = ["--folder", str(tmp_path)] if module.startswith("bench") and module not in NO_FOLDER else []
    done = subprocess.run(
        [sys.executable, "-m", module, *SHORT_FORMS[module], *folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
