"""Exports are read line by line and raise if cut off; imports are retried only if their source can be read
again."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.client.script import CUT, UNREACHED, Script, Streamed, error_event, error_reply, file_stream
from turnledger import errors
from turnledger.client.core import transfer
from turnledger.client.core.steps import Reply, Request
from turnledger.client.core.transfer import Source, download, import_chats
from turnledger.model.transfer import ImportOutcome

REQUEST = Request(method="GET", path="/api/export")


def lines(script: Script) -> list[bytes]:
    script.play(download(script.new_retry_count(), REQUEST))
    return script.items


@pytest.mark.parametrize("size", [1, 3, 100])
def test_export_lines_are_whole_wherever_the_stream_is_split(size: int) -> None:
    whole = b"one\ntwo\n\nthree"
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert lines(Script(file_stream(*pieces))) == [b"one\n", b"two\n", b"\n", b"three"]


def test_export_of_an_empty_file_has_no_lines() -> None:
    assert lines(Script(file_stream())) == []


def test_export_is_retried_before_its_first_line() -> None:
    script = Script(
        CUT, error_reply(503, "shutting_down"), file_stream(b"on", end=CUT), file_stream(b"one\n")
    )
    assert lines(script) == [b"one\n"]
    assert len(script.received) == 4


def test_export_cut_off_after_a_line_raises() -> None:
    script = Script(file_stream(b"one\n", b"tw", end=CUT))
    with pytest.raises(errors.ServerUnavailable, match="stopped early after 1 lines"):
        lines(script)
    assert script.items == [b"one\n"]


@pytest.mark.parametrize("headers", [{"content-type": "text/html; charset=utf-8"}, {}])
def test_export_with_a_foreign_content_type_is_refused(headers: dict[str, str]) -> None:
    script = Script(Streamed(headers, [b"<p>Log in</p>\n"], b""))
    with pytest.raises(errors.RequestFailed, match="not a Turnledger export"):
        lines(script)
    assert script.items == []


def test_export_raises_the_error_of_a_refused_request() -> None:
    with pytest.raises(errors.ConversationDeleted):
        lines(Script(error_reply(410, "conversation_deleted")))


def test_export_gives_up_after_the_last_retry() -> None:
    with pytest.raises(errors.ServerUnavailable):
        lines(Script(*[CUT] * 5))
    with pytest.raises(errors.ServerUnavailable):
        lines(Script(*[error_reply(503, "shutting_down")] * 5))


def test_export_refuses_an_endless_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MAX_BYTES", 1000)
    script = Script(file_stream(b"one\n", *[b"x" * 400] * 3))
    with pytest.raises(errors.RequestFailed, match="endless"):
        lines(script)
    assert script.items == [b"one\n"]


FILE = b'{"type":"chat"}\n{"type":"turn"}\n'
DONE = Reply(200, {}, b'{"line":1,"did":"imported","chat":"c","turns":1}\n{"done":{"imported":1}}\n')
AGAIN: list[Callable[[], Source]] = [
    lambda: FILE,
    lambda: FILE.splitlines(keepends=True),
    lambda: io.BytesIO(FILE),
]


class Reading(Script):
    """Reads each body as it is sent."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.bodies: list[bytes] = []

    def _answer(self, request: Any) -> Any:
        self.bodies.append(b"".join(request.pieces()))
        return super()._answer(request)


def sent(script: Script) -> list[bytes]:
    return [b"".join(each.pieces()) for each in script.received if each.pieces is not None]


def test_import_returns_one_report_per_line() -> None:
    (report,) = (script := Script(DONE)).play(import_chats(script.new_retry_count(), FILE, "support"))
    assert (report.line, report.did, report.chat, report.turns) == (1, ImportOutcome.IMPORTED, "c", 1)
    assert script.received[0].query == (("scope", "support"),)


@pytest.mark.parametrize("source", AGAIN)
def test_import_of_a_rereadable_source_is_retried(source: Callable[[], Source]) -> None:
    script = Reading(CUT, DONE)
    assert len(script.play(import_chats(script.new_retry_count(), source(), None))) == 1
    assert script.bodies == [FILE, FILE]


def test_import_reads_a_file_from_its_current_position() -> None:
    file_stream = io.BytesIO(b"header\n" + FILE)
    file_stream.readline()
    script = Script(DONE)
    script.play(import_chats(script.new_retry_count(), file_stream, None))
    assert sent(script) == [FILE]


def test_import_of_a_one_time_source_is_retried_only_if_it_never_arrived() -> None:
    script = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match="Import the same file again"):
        script.play(import_chats(script.new_retry_count(), iter([FILE]), None))
    unreached = Script(UNREACHED, DONE)
    assert len(unreached.play(import_chats(unreached.new_retry_count(), iter([FILE]), None))) == 1


def test_import_never_sends_the_rest_of_a_half_read_source() -> None:
    script = Reading(error_reply(503, "shutting_down"), DONE)
    with pytest.raises(errors.ServerUnavailable, match="Import the same file again"):
        script.play(import_chats(script.new_retry_count(), iter([FILE]), None))
    assert script.bodies == [FILE]


def test_import_raises_an_error_that_follows_reports() -> None:
    error = error_event("store_full").split(b"data: ")[1].strip()
    reply = Reply(200, {}, DONE.body.splitlines()[0] + b"\n" + error)
    with pytest.raises(errors.StoreFull):
        (script := Script(reply)).play(import_chats(script.new_retry_count(), FILE, None))


def test_import_report_without_its_end_raises() -> None:
    reply = Reply(200, {}, DONE.body.splitlines()[0])
    with pytest.raises(errors.ServerUnavailable, match="stopped early"):
        (script := Script(reply)).play(import_chats(script.new_retry_count(), FILE, None))


@pytest.mark.parametrize("text", ["text", ["text"]])
def test_import_of_text_instead_of_bytes_is_refused(text: Any) -> None:
    script = Script(DONE)
    with pytest.raises(TypeError, match="bytes"):
        script.play(import_chats(script.new_retry_count(), text, None))
        sent(script)
