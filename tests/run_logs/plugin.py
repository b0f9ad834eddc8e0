"""All logs of a test run in one folder, searched when it ends; see docs/testing.md.

Logs of servers in the test process are taken at the logger; processes that tests start copy their own
(process/sitecustomize.py). A run fails if its logs contain secrets.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.run_logs.process.private_texts import Notes, append, listen
from tests.run_logs.secret_search import Report, search

IN_PROCESSES = Path(__file__).parent / "process"
FOLDER = "TURNLEDGER_RUN_LOGS"
SHOWN = 20
"""Most findings shown."""
_USUAL = frozenset(vars(logging.makeLogRecord({})))


class RunLogs:
    """Collects the logs of a run, and searches them at its end."""

    def __init__(self, config: pytest.Config) -> None:
        given = getattr(config, "workerinput", {}).get("run_logs")
        self._is_worker = given is not None
        self.folder = Path(given or tempfile.mkdtemp(prefix="turnledger-run-"))
        self._notes = Notes(str(self.folder / f"{os.getpid()}.texts"), at_once=False)
        self._written = LogWriter(self.folder / f"{os.getpid()}.log")
        self._report: Report | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["run_logs"] = str(self.folder)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not session.config.pluginmanager.hasplugin("dsession"):  # the controller of xdist runs no tests
            listen(self._notes)
            self._written.attach()
            copy_process_logs(self.folder)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        self._flush()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._flush()
        if self._is_worker:
            return
        self._report = search(self.folder)
        if self._report.findings:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._report is None:
            return
        logs, lines, texts, findings = self._report
        if not findings:
            terminalreporter.write_line(
                f"{logs} logs, {lines} lines: no token, no credential, none of {texts} recorded texts"
            )
            return
        terminalreporter.section("logs have what they may not have", red=True)
        for finding in findings[:SHOWN]:
            terminalreporter.write_line(f"{finding.what}, in {self.folder / finding.file}: {finding.line}")
        if len(findings) > SHOWN:
            terminalreporter.write_line(f"... and {len(findings) - SHOWN} more")

    def _flush(self) -> None:
        self._notes.flush()
        self._written.flush()


class LogWriter(logging.Handler):
    """Writes the log of this process in the format of the server."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._lines: list[str] = []

    def attach(self) -> None:
        """Take our records, those of a server from `info` on, and warnings of others."""
        server = logging.getLogger("turnledger.server")
        server.setLevel(logging.INFO)
        server.addFilter(self._is_visible)
        logging.getLogger("turnledger").addHandler(self)
        others = ForeignLogWriter(self)
        others.setLevel(logging.WARNING)
        logging.getLogger().addHandler(others)

    def _is_visible(self, record: logging.LogRecord) -> bool:
        """Hide from other handlers the records they would not receive without this one."""
        if record.levelno >= logging.getLogger("turnledger").getEffectiveLevel():
            return True
        self.emit(record)
        return False

    def emit(self, record: logging.LogRecord) -> None:
        from turnledger.server.ops.logs import add_stack

        event = {name: value for name, value in vars(record).items() if name not in _USUAL}
        event |= {"event": record.getMessage(), "logger": record.name, "exc_info": record.exc_info}
        add_stack(event, with_message=False)
        self._lines.append(json.dumps(event, default=str) + "\n")

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = "".join(self._lines), []
            append(str(self._path), lines)


class ForeignLogWriter(logging.Handler):
    """Forwards records of other packages."""

    def __init__(self, written: LogWriter) -> None:
        super().__init__()
        self._written = written

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("turnledger"):
            self._written.emit(record)


def copy_process_logs(folder: Path) -> None:
    """Make every process started from now on copy its log, whatever its environment."""
    os.environ[FOLDER] = str(folder)
    os.environ.update(with_run_logs(os.environ))
    begin = subprocess.Popen.__init__

    def start_with_run_logs(process: Any, *arguments: Any, **options: Any) -> None:
        if options.get("env") is not None:
            options["env"] = with_run_logs(options["env"])
        begin(process, *arguments, **options)

    subprocess.Popen.__init__ = start_with_run_logs  # type: ignore[method-assign]


def with_run_logs(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a process copies its log."""
    places = environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(IN_PROCESSES) not in places:
        places.insert(0, str(IN_PROCESSES))
    return {**environ, FOLDER: os.environ[FOLDER], "PYTHONPATH": os.pathsep.join(filter(None, places))}
