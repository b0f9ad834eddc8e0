"""A file comes line by line, whole or not at all."""

from __future__ import annotations

import pytest

from tests.unit.client.scripted import CUT, Script, Streamed, file, refused
from turnledger import errors
from turnledger.client.core import transfer
from turnledger.client.core.steps import Request
from turnledger.client.core.transfer import download

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
    with pytest.raises(errors.ServerUnavailable, match="cut off after 1 lines"):
        lines(script)
    assert script.given == [b"one\n"]


@pytest.mark.parametrize("headers", [{"content-type": "text/html; charset=utf-8"}, {}])
def test_a_page_of_what_stands_between_is_no_file(headers: dict[str, str]) -> None:
    script = Script(Streamed(headers, [b"<p>Log in</p>\n"], b""))
    with pytest.raises(errors.RequestFailed, match="no file of Turnledger"):
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
    with pytest.raises(errors.RequestFailed, match="without end"):
        lines(script)
    assert script.given == [b"one\n"]
