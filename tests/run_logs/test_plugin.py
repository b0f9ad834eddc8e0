"""A run fails by its logs, whoever wrote them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run_logs.plugin import FOLDER
from tests.unit.server.processes import started

ROOT = Path(__file__).parents[2]
REGISTERED = """
from tests.run_logs.plugin import RunLogs

def pytest_configure(config):
    config.pluginmanager.register(RunLogs(config), "run_logs")
"""
TESTS = {
    "nothing": "def test(): pass",
    "a token": """
        import logging

        def test():
            logging.getLogger("turnledger.server").info("request", extra={"path": "/tlt_" + "a" * 39})
    """,
    "an authorization": """
        import subprocess, sys

        def test():
            code = "import sys; print('Authorization: Bearer', 'abcdefghijkl', file=sys.stderr)"
            subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, check=True)
    """,
    "what was said": """
        import logging

        import pytest
        from tests.unit.server.asgi import HOST, JSON, ask, echo, serving
        from turnledger.server.ops.logs import log
        from turnledger.server.config.settings import Settings

        @pytest.mark.anyio
        async def test(anyio_backend_name):
            body = b'{"content": "Wolves at the garden gate"}'
            headers = (HOST, JSON, (b"content-length", b"%d" % len(body)))
            async with serving(None, echo(Settings())) as app:
                await ask(app, "/echo", method="POST", headers=headers, parts=[body])
            log.info("request", body="wolves at the garden")
    """,
}


def run(folder: Path, test: str, *flags: str) -> subprocess.CompletedProcess[str]:
    lines = test.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    (folder / "conftest.py").write_text(REGISTERED)
    (folder / "test_leaking.py").write_text("\n".join(line[indent:] for line in lines))
    (folder / "pytest.ini").write_text("[pytest]\n")
    plugins = ["-p", "no:cacheprovider", "-p", "xdist.plugin", "-p", "anyio.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *flags, str(folder)]
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # of all that are installed, one takes a second
        "TMPDIR": str(folder),
    }
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("leak", "workers"), [*((leak, "-n0") for leak in TESTS), ("nothing", "-n1"), ("what was said", "-n1")]
)
def test_a_leak_fails_the_run(leak: str, workers: str, tmp_path: Path) -> None:
    done = run(tmp_path, TESTS[leak], workers)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert (done.returncode != 0) == (leak != "nothing"), done.stdout
    assert (f"{leak} (" in done.stdout or f"{leak}, in" in done.stdout) == (leak != "nothing")
    assert len(list(tmp_path.glob("turnledger-run-*"))) == (leak != "nothing")


def test_the_log_of_a_server_that_a_test_starts_is_in_the_folder_of_the_run() -> None:
    folder = Path(os.environ[FOLDER])
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        server.get("/healthz", "X-Request-Id: in-the-folder", "Authorization: Bearer looked-for-there")
        server.wait_for("in-the-folder")
        (log,) = folder.glob(f"{server.process.pid}-*.log")
        (said,) = folder.glob(f"{server.process.pid}-*.said")
        assert '"request_id":"in-the-folder"' in log.read_text()
        assert said.read_text() == '{"credential": "looked-for-there"}\n'
