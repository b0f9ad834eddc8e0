"""A bar comes for long work on a terminal, and never otherwise."""

from __future__ import annotations

import io
import re
import sys

import pytest

from turnledger.cli.output.progress import PATIENCE, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def looked_at(monkeypatch: pytest.MonkeyPatch, stream: str = "stderr") -> Terminal:
    """What somebody sees who looks at the standard error."""
    seen = Terminal()
    monkeypatch.setattr(sys, stream, seen)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    return seen


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    with Progress("Working", 2, clock=clock) as progress:
        clock.now = PATIENCE / 2
        progress.advance(2)
    assert terminal.getvalue() == ""


def test_long_work_shows_how_far_it_is_and_cleans_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    with Progress("Working", 4, clock=clock) as progress:
        clock.now = PATIENCE
        progress.advance(1)
        progress.advance(2)
        progress.tell("done")
    seen = terminal.getvalue()
    assert "Working" in seen
    assert "3/4" in seen
    assert seen.endswith("\x1b[2K")
    assert capsys.readouterr().out == "done\n"


def test_a_line_comes_above_the_bar_where_both_are_one_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, terminal, output = Clock(), looked_at(monkeypatch), looked_at(monkeypatch, "stdout")
    with Progress("Working", 4, clock=clock) as progress:
        progress.tell("before")
        clock.now = PATIENCE
        progress.advance(1)
        progress.tell("a line [red]that is long enough to go on below the end")
    assert output.getvalue() == "before\n"
    assert "a line [red]that is long enough to go on below the end\n" in terminal.getvalue()


def test_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    output, clock = io.StringIO(), Clock()
    monkeypatch.setattr(sys, "stderr", output)
    with Progress("Working", 2, clock=clock) as progress:
        clock.now = 60
        progress.advance(1)
        assert progress.pace is None
    assert output.getvalue() == ""


def test_where_a_bar_would_be_in_the_way_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    with Progress("Working", in_bytes=True, is_shown=False, clock=clock) as progress:
        clock.now = 60
        progress.advance(1)
    assert terminal.getvalue() == ""


def test_where_the_end_is_not_known_it_says_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    with Progress("Working", in_bytes=True, clock=clock) as progress:
        clock.now = PATIENCE
        progress.advance(2_000)
    assert "2.0 kB" in terminal.getvalue()
    assert "?" not in terminal.getvalue().replace("\x1b[?", "")


@pytest.mark.parametrize("columns", [34, 40, 80])
def test_a_bar_is_one_line_also_when_ctrl_c_is_written_behind_it(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress("Importing", 67_100_000, in_bytes=True, clock=clock) as progress:
        clock.now = PATIENCE
        progress.advance(24_100_000)
    bar, _ = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).split("\n")
    assert "24.1/67.1 MB" in bar
    assert max(map(len, bar.split("\r"))) <= columns - len("^C")
