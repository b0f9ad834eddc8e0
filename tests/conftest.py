"""Settings and folders of every test run."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# All here: some are imported by other folders before their own conftest.
pytest.register_assert_rewrite(
    "tests.browser.victim",
    "tests.clients.player",
    "tests.clients.scenario",
    "tests.compat.live_server",
    "tests.compat.completions",
    "tests.crash.killed_server",
    "tests.crash.processes",
    "tests.crash.promises",
    "tests.stateful.invariants",
    "tests.stateful.pair",
    "tests.stateful.steps",
    "tests.web.page_server",
)

from tests.long_form import IS_LONG  # noqa: E402
from tests.run_logs.plugin import RunLogs  # noqa: E402

# The same examples in every run, however slow the machine, and none kept beside the code.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

ROOT = Path(__file__).parents[1]
SHARED_MEMORY = Path("/dev/shm")
RUN_FOLDER = pytest.StashKey[Path]()
ROOM = 2 << 30
"""Bytes that must be free there."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    """Point the home folder, temporary files and the settings of this package at a folder of the run, also
    compiled code if none may be kept beside its module. Search the logs of the run for secrets, and create
    the folders of tests in memory (tests about the disk have their own, see disk_folder.py)."""
    if not hasattr(config, "workerinput"):  # workers of xdist inherit it
        config.stash[RUN_FOLDER] = folder = Path(tempfile.mkdtemp(prefix="turnledger-tests-"))
        for name, variables in {"home": ("HOME", "USERPROFILE"), "tmp": ("TMPDIR", "TEMP", "TMP")}.items():
            (folder / name).mkdir()
            os.environ.update(dict.fromkeys(variables, str(folder / name)))
        tempfile.tempdir = None
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # processes of the run share compiled code
            os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "pycache")
        for variable in [name for name in os.environ if name.startswith(("XDG_", "TURNLEDGER_"))]:
            if variable != "TURNLEDGER_TEST_POSTGRES":
                del os.environ[variable]
    config.pluginmanager.register(RunLogs(config), "run_logs")
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Remove the folder of the run, unless a test failed: it has files that explain why."""
    yield
    folder = session.config.stash.get(RUN_FOLDER, None)
    if folder is not None and session.exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty home folder for each test; fixtures of a wider scope share that of the run."""
    shared = os.environ["HOME"]
    own = tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp())  # a disk takes milliseconds to remove a folder
    os.environ["HOME"] = os.environ["USERPROFILE"] = own
    yield Path(own)
    os.environ["HOME"] = os.environ["USERPROFILE"] = shared
    shutil.rmtree(own, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return half as many again as there are processors: some tests wait for a browser, a disk or a lease."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return count + count // 2


def pytest_collection(session: pytest.Session) -> None:
    """Stop garbage collection: compiling tests allocates much and leaves no cycles. Each worker that will
    collect all tests starts to import them at its own place: a test that one has compiled the others load."""
    gc.disable()
    given = getattr(session.config, "workerinput", None)
    if given is not None and session.config.args == session.config.getini("testpaths"):
        tests = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
        start = len(tests) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
        for path in tests[start:] + tests[:start]:
            with suppress(Exception, pytest.skip.Exception):  # the collection will report it
                import_module(".".join(path.with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of the long form, see long_form.py."""
    if not IS_LONG and (left_out := [item for item in items if item.get_closest_marker("long_only")]):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long_only")]


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection, which the simulator runs after each death."""
    gc.collect()
    gc.freeze()
    gc.enable()
