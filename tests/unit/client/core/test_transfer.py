"""Exports arrive line by line, whole or not at all; imports are sent again only if they can be read again."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.client.scripted import CUT, UNREACHED, Script, Streamed, error_event, file, refused
from turnledger import errors
from turnledger.client.core import transfer
from turnledger.client.core.steps import Reply, Request
from turnledger.client.core.transfer import Source, download, import_chats
from turnledger.model.transfer import Did

ASKED = Request(method="GET", path="/api/export")


def lines(script: Script) -> list[bytes]:
    script.play(download(script.trying(), ASKED))
    return script.given


@pytest.mark.parametrize("size", [1, 3, 100])
def test_lines_come_whole_however_they_are_cut(size: int) -> None:
    whole = b"one\ntwo\n\nthree"
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert lines(Script(file(*pieces))) == [b"one\n", b"two\n", b"\n", b"three"]


def test_an_empty_file_has_none() -> None:
    assert lines(Script(file())) == []


def test_before_the_first_line_it_is_asked_for_again() -> None:
    script = Script(CUT, refused(503, "shutting_down"), file(b"on", end=CUT), file(b"one\n"))
    assert lines(script) == [b"one\n"]
    assert len(script.asked) == 4


def test_a_file_that_is_cut_off_is_not_whole() -> None:
    script = Script(file(b"one\n", b"tw", end=CUT))
    with pytest.raises(errors.ServerUnavailable, match="broke off after 1 lines"):
        lines(script)
    assert script.given == [b"one\n"]


@pytest.mark.parametrize("headers", [{"content-type": "text/html; charset=utf-8"}, {}])
def test_a_page_of_what_stands_between_is_no_file(headers: dict[str, str]) -> None:
    script = Script(Streamed(headers, [b"<p>Log in</p>\n"], b""))
    with pytest.raises(errors.RequestFailed, match="not a Turnledger export"):
        lines(script)
    assert script.given == []


def test_what_is_refused_is_raised() -> None:
    with pytest.raises(errors.ConversationDeleted):
        lines(Script(refused(410, "conversation_deleted")))


def test_in_the_end_it_is_given_up() -> None:
    with pytest.raises(errors.ServerUnavailable):
        lines(Script(*[CUT] * 5))
    with pytest.raises(errors.ServerUnavailable):
        lines(Script(*[refused(503, "shutting_down")] * 5))


def test_a_line_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MOST_BYTES", 1000)
    script = Script(file(b"one\n", *[b"x" * 400] * 3))
    with pytest.raises(errors.RequestFailed, match="endless"):
        lines(script)
    assert script.given == [b"one\n"]


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
    return [b"".join(each.pieces()) for each in script.asked if each.pieces is not None]


def test_reports_are_told_line_by_line() -> None:
    (report,) = (script := Script(DONE)).play(import_chats(script.trying(), FILE, "support"))
    assert (report.line, report.did, report.chat, report.turns) == (1, Did.IMPORTED, "c", 1)
    assert script.asked[0].query == (("scope", "support"),)


@pytest.mark.parametrize("source", AGAIN)
def test_what_can_be_read_again_is_sent_again(source: Callable[[], Source]) -> None:
    script = Reading(CUT, DONE)
    assert len(script.play(import_chats(script.trying(), source(), None))) == 1
    assert script.bodies == [FILE, FILE]


def test_a_file_is_read_from_where_it_was() -> None:
    file = io.BytesIO(b"header\n" + FILE)
    file.readline()
    script = Script(DONE)
    script.play(import_chats(script.trying(), file, None))
    assert sent(script) == [FILE]


def test_what_can_be_read_once_is_sent_once() -> None:
    script = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match="Import the same file again"):
        script.play(import_chats(script.trying(), iter([FILE]), None))
    unreached = Script(UNREACHED, DONE)
    assert len(unreached.play(import_chats(unreached.trying(), iter([FILE]), None))) == 1


def test_the_rest_of_what_can_be_read_once_is_not_sent_for_the_whole() -> None:
    script = Reading(refused(503, "shutting_down"), DONE)
    with pytest.raises(errors.ServerUnavailable, match="Import the same file again"):
        script.play(import_chats(script.trying(), iter([FILE]), None))
    assert script.bodies == [FILE]


def test_an_error_behind_some_reports_is_raised() -> None:
    error = error_event("store_full").split(b"data: ")[1].strip()
    reply = Reply(200, {}, DONE.body.splitlines()[0] + b"\n" + error)
    with pytest.raises(errors.StoreFull):
        (script := Script(reply)).play(import_chats(script.trying(), FILE, None))


def test_a_report_without_its_end_is_not_whole() -> None:
    reply = Reply(200, {}, DONE.body.splitlines()[0])
    with pytest.raises(errors.ServerUnavailable, match="broke off"):
        (script := Script(reply)).play(import_chats(script.trying(), FILE, None))


@pytest.mark.parametrize("text", ["text", ["text"]])
def test_text_is_not_bytes(text: Any) -> None:
    script = Script(DONE)
    with pytest.raises(TypeError, match="bytes"):
        script.play(import_chats(script.trying(), text, None))
        sent(script)
