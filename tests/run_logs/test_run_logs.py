"""A test run fails if the log of any of its processes contains a secret or chat text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long_form import sample
from tests.run_logs.plugin import FOLDER
from tests.run_logs.process.private_texts import Notes
from tests.run_logs.secret_search import Report, search
from tests.unit.server.processes import started

ROOT = Path(__file__).parents[2]
REGISTERED = """
from tests.run_logs.plugin import RunLogs

def pytest_configure(config):
    config.pluginmanager.register(RunLogs(config), "run_logs")
"""
LEAKS = """
import logging
import subprocess
import sys

import pytest
from tests.unit.server.asgi import HOST, JSON, echo, fetch, run_app
from turnledger.server.config.settings import Settings
from turnledger.server.ops.logs import log

def test_a_token():
    logging.getLogger("turnledger.server").info("request", extra={"path": "/tlt_" + "a" * 39})

def test_an_authorization():
    code = "import sys; print('Authorization: Bearer', 'abcdefghijkl', file=sys.stderr)"
    subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, check=True)

@pytest.mark.anyio
async def test_a_chat_text(anyio_backend_name):
    body = b'{"content": "Wolves at the garden gate"}'
    headers = (HOST, JSON, (b"content-length", b"%d" % len(body)))
    async with run_app(None, echo(Settings())) as app:
        await fetch(app, "/echo", method="POST", headers=headers, parts=[body])
    log.info("request", body="wolves at the garden")
"""


def run(folder: Path, test: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(REGISTERED)
    (folder / "test_leaking.py").write_text(test)
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


@pytest.mark.parametrize("workers", sample(["-n1", "-n0"], 1))
def test_secret_in_a_log_fails_the_test_run(workers: str, tmp_path: Path) -> None:
    done = run(tmp_path, LEAKS, workers)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode != 0, done.stdout
    for leak in ("a token", "an authorization", "a chat text"):
        assert f"{leak} (" in done.stdout or f"{leak}, in" in done.stdout
    assert len(list(tmp_path.glob("turnledger-run-*"))) == 1


def test_run_without_a_secret_in_its_logs_passes_and_leaves_no_folder(tmp_path: Path) -> None:
    done = run(tmp_path, "def test(): pass", "-n1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert not list(tmp_path.glob("turnledger-run-*"))


def test_log_of_a_server_started_by_a_test_is_in_the_run_folder() -> None:
    folder = Path(os.environ[FOLDER])
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        server.get("/healthz", "X-Request-Id: in-the-folder", "Authorization: Bearer looked-for-there")
        server.wait_for("in-the-folder")
        (log,) = folder.glob(f"{server.process.pid}-*.log")
        (texts,) = folder.glob(f"{server.process.pid}-*.texts")
        assert '"request_id":"in-the-folder"' in log.read_text()
        assert texts.read_text() == '{"credential": "looked-for-there"}\n'


TEXT = 'The heron\'s password is "Grüße",\nsaid the gardener on Sunday.'
CREDENTIAL = "a1b2-c3d4-e5f6"
TOKEN = "tlt_" + "0aZ9" * 9 + "xyz"


def searched(folder: Path, *lines: str) -> Report:
    """Search a log of these lines, after a text was sent with a credential."""
    notes = Notes(str(folder / "1.texts"), at_once=False)
    body = {"model": "demo", "messages": [{"role": "user", "content": TEXT}], "user": "nobody in particular"}
    notes.body(json.dumps(body).encode())
    notes.headers([("authorization", f"Bearer {CREDENTIAL}"), ("x-other", "some other header")])
    notes.text("Hello")
    notes.flush()
    (folder / "1.log").write_text("".join(f"{line}\n" for line in lines))
    return search(folder)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (json.dumps({"event": "request", "path": f"/api/{TOKEN}"}), "a token"),
        (f"Traceback: {TOKEN}", "a token"),
        (f"GET /share?{TOKEN.replace('tlt_', 'tls_')}", "a code of a link"),
        (json.dumps({"event": "e", "headers": {"authorization": "Bearer abcdefghijkl"}}), "an authorization"),
        ("authorization=basic dXNlcjpwYXNz", "an authorization"),
        ("Incorrect API key: sk-secret", "an api_key"),
        (json.dumps({"event": "e", "x": f"[{CREDENTIAL}]"}), "a credential"),
        (f"Warning: {CREDENTIAL}", "a credential"),
    ],
)
def test_secret_planted_in_a_log_is_found(tmp_path: Path, line: str, what: str) -> None:
    report = searched(tmp_path, '{"event": "request"}', line)
    assert what in [finding.what for finding in report.findings]
    assert {finding.file for finding in report.findings} == {"1.log"}


@pytest.mark.parametrize(
    "line",
    [
        TEXT,
        json.dumps({"event": "e", "message": TEXT}),
        json.dumps({"event": "e", "body": json.dumps({"content": TEXT})}),
        repr(TEXT),
        f"ValueError: {TEXT[:40]}",
        "event=e text='SAID THE GARDENER ON'",
        json.dumps({"event": "e", "deep": {"list": [1, TEXT]}}),
        json.dumps({"event": "e", "path": TEXT}),
        json.dumps({"event": "request", "path": "/api/chats", "code": TEXT}),
    ],
)
def test_chat_text_in_a_log_is_found_whole_or_in_part(tmp_path: Path, line: str) -> None:
    findings = searched(tmp_path, line).findings
    assert {finding.what.partition(" (")[0] for finding in findings} == {"a chat text"}


def test_allowed_log_content_is_not_reported(tmp_path: Path) -> None:
    lines = [
        '{"method":"POST","path":"/v1/chat/completions","status":401,"code":"invalid_token","event":"request"}',
        '{"event": "signalled_again", "who": "nobody in particular", "x": "some other header"}',
        '{"event": "Hello", "token": "tok_01a1e14626c57df9a8b7c6d5", "turn": "turn_01a1e14626c57df9"}',
        "the gardener",
        json.dumps({"event": "request", "method": "GET", "path": f"/api/chats/{TEXT}", "status": 400}),
    ]
    report = searched(tmp_path, *lines)
    assert report == Report(logs=1, lines=5, texts=3, findings=[])


def test_chat_text_of_one_long_word_is_found(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path / "2.texts"), at_once=True)
    notes.text("Rumpelstilzchen")
    assert searched(tmp_path, "name=rumpelstilzchen").findings


def test_listening_address_in_a_log_is_not_reported(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path / "2.texts"), at_once=True)
    notes.text("Look at http://127.0.0.1:8383/docs/a/secret/place, please.")
    listens = "Uvicorn running on http://127.0.0.1:44745 (Press CTRL+C to quit)"
    assert not searched(tmp_path, listens).findings
    assert searched(tmp_path, "at http://127.0.0.1:8383/docs/a/secret/place").findings
