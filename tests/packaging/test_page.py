"""`make page` and what `make serve` does about it: built where it can be, and a line where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.test_node_package import Workshop
from tools.page import main


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch, swaps=True)


def test_it_is_built_when_asked_for(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], workshop.package) == 0
    assert capsys.readouterr().out == f"The chat page is built: {workshop.package.into}\n"
    assert main([], workshop.package) == 0
    assert "up to date" in capsys.readouterr().out


def test_who_wants_to_serve_hears_nothing_of_a_page_that_is_there(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.package.build()
    assert main(["--if-possible"], workshop.package) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("is_there", [False, True])
def test_without_node_who_wants_to_serve_is_told_in_a_line(
    is_there: bool,
    workshop: Workshop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if is_there:
        workshop.package.build()
        workshop.source.write_text("changed since")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--if-possible"], workshop.package) == 0
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert ("older than its sources" if is_there else "not built; the APIs work") in told
    assert "Node 20.19 or newer" in told
    assert "make page" in told
    assert main([], workshop.package) == 1
    assert "Node 20.19 or newer" in capsys.readouterr().err


def test_a_build_that_fails_is_told_and_does_not_keep_the_server_from_running(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPM_FAILS", "1")
    assert main(["--if-possible"], workshop.package) == 0
    assert "failed" in capsys.readouterr().err
    assert main([], workshop.package) == 1
