"""The search finds what is planted, in whatever form a log would have it, and nothing that may be there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.run_logs.process.said import Notes
from tests.run_logs.searching import Report, search

TEXT = 'The heron\'s password is "Grüße",\nsaid the gardener on Sunday.'
CREDENTIAL = "a1b2-c3d4-e5f6"
TOKEN = "tlt_" + "0aZ9" * 9 + "xyz"


def searched(folder: Path, *lines: str) -> Report:
    """The search of a log of these lines, after something was said with a credential."""
    notes = Notes(str(folder / "1.said"), at_once=False)
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
def test_a_planted_secret_is_found(tmp_path: Path, line: str, what: str) -> None:
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
    ],
)
def test_what_was_said_is_found_whole_or_in_part(tmp_path: Path, line: str) -> None:
    findings = searched(tmp_path, line).findings
    assert {finding.what.partition(" (")[0] for finding in findings} == {"what was said"}


def test_what_may_be_in_a_log_is_not_found(tmp_path: Path) -> None:
    lines = [
        '{"method":"POST","path":"/v1/chat/completions","status":401,"code":"invalid_token","event":"request"}',
        '{"event": "told_again", "who": "nobody in particular", "x": "some other header"}',
        '{"event": "Hello", "token": "tok_01a1e14626c57df9a8b7c6d5", "turn": "turn_01a1e14626c57df9"}',
        "the gardener",
    ]
    report = searched(tmp_path, *lines)
    assert report == Report(logs=1, lines=4, said=3, findings=[])


def test_one_long_word_is_a_text_too(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path / "2.said"), at_once=True)
    notes.text("Rumpelstilzchen")
    assert searched(tmp_path, "name=rumpelstilzchen").findings


def test_where_a_server_listens_is_no_secret(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path / "2.said"), at_once=True)
    notes.text("Look at http://127.0.0.1:8383/docs/a/secret/place, please.")
    listens = "Uvicorn running on http://127.0.0.1:44745 (Press CTRL+C to quit)"
    assert not searched(tmp_path, listens).findings
    assert searched(tmp_path, "at http://127.0.0.1:8383/docs/a/secret/place").findings
