"""`turnledger chat` on a store, in a terminal and in pipes."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys

import pytest

from tests.terminal.conftest import Home
from tests.terminal.programs import ROOT
from tests.terminal.upstream import run_scripted_model
from tests.terminal.window import CTRL_C, CTRL_D, CTRL_J, CTRL_O, DOWN, ENTER, ESCAPE, UP, Window
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Gate

DEMO_NOTE = "The demo model answers. Use --server URL, or name models in turnledger.toml."
NO_CHAT_TO_CONTINUE = "There is no chat to continue: this is a new one."


def test_answer_is_rendered_as_markdown_and_kept_when_stopped(home: Home) -> None:
    gate = Gate()
    with (
        run_scripted_model(["# Plan\n\nSome **bold** words", gate, " and more"]) as model,
        Window("chat", "--upstream", model.url, home=home.path) as window,
    ):
        window.ready()
        window.see("/help lists the commands, Ctrl-D quits.")
        window.send("What now?")
        window.see("Some bold words")
        window.see("Ctrl-C stops")
        assert "#" not in window.text
        window.type(CTRL_C)
        window.see("Stopped: the answer is incomplete.")
        window.ready()
        assert "Ctrl-C stops" not in window.everything
        assert window.everything.count("Some bold words") == 1
        window.ask("Go on", "Well.")
        window.type(CTRL_D)
        assert window.ended() == 0
        assert re.search("Continue with: turnledger chat conv_", window.everything)
    first, second = home.turns()
    assert (first.kind, first.text) == (TurnKind.INTERRUPTED, "# Plan\n\nSome **bold** words")
    assert (second.kind, second.text) == (TurnKind.COMPLETED, "Well.")


def test_greeting_names_the_demo_model_if_no_other_is_configured(home: Home) -> None:
    with Window("chat", home=home.path) as window:
        window.ready()
        window.see(DEMO_NOTE)
    with Window("chat", "--model", "demo", home=home.path) as window:
        window.ready()
        assert DEMO_NOTE not in window.everything


def test_failed_turn_shows_the_error_and_returns_its_text_to_the_prompt(home: Home) -> None:
    with Window("chat", home=home.path) as window:
        window.ready()
        window.ask("Hello", "2 ›")
        window.send("//fail after 2")
        window.see("✗ model_unavailable: The demo model failed, as requested.")
        window.see("2 › //fail after 2", times=2)
        window.ready()
        window.type(CTRL_C)  # clears the line
        window.until(lambda: window.last_input == "2 ›", "an empty prompt")
        window.type(CTRL_C)
        window.see("Press Ctrl-C again")
        window.ready()
        window.type(CTRL_C)
        assert window.ended() == 0
    assert [turn.text for turn in home.turns()] == ['You said "Hello". I remember nothing before that.']


def test_turns_are_edited_regenerated_and_undone(home: Home) -> None:
    with Window("chat", home=home.path, rows=40) as window:
        window.ready()
        window.ask("One", "2 ›")
        window.ask("/again", "Version 2 of 2; /prev shows the previous one.")
        window.send("/edit")
        window.see("1 edit › One")
        window.type(" and a half", ENTER)
        window.see('You said "One and a half". I remember nothing before that.')
        window.see("Version 3 of 3")
        window.ready()
        window.ask("/prev", "Turn 1, version 2 of 3:")
        window.ask("/prev", "Turn 1, version 1 of 3:")
        window.ask("/<", "✗ invalid_input: Turn 1 has no earlier version.")
        window.ask("/undo", "Turn 1 is undone.")
        assert window.last_input == "1 › One"
        window.type(" again", ENTER)
        window.see('You said "One again". I remember nothing before that.')
        window.ready()
        window.send("/branches")
        window.see("/switch N switches to one.")
        assert '› 1  1 turn: You said "One again".' in window.everything
        window.ready()
        other = re.search(r"^  ([2-9])  1 turn: .*One and a half", window.everything, re.MULTILINE)
        assert other is not None, window.everything
        window.send(f"/switch {other[1]}")
        window.see("1 › One and a half")
        window.see('You said "One and a half".', times=3)
        window.ready()
        window.send("/history")
        window.see('You said "One and a half".', times=4)
        window.ready()
    assert [turn.text for turn in home.turns()] == [
        'You said "One and a half". I remember nothing before that.'
    ]


def test_chats_are_listed_searched_and_opened(home: Home) -> None:
    with Window("chat", home=home.path, rows=40) as window:
        window.ready()
        for question in ("Cats and dogs", "The weather in Rome"):
            window.send("/new")
            window.until(lambda: "new chat  demo" in window.lines[-1] or "new chat" in window.text, "new")
            window.ready()
            window.ask(question, f'You said "{question}"', f"{question}  demo  /help")
        window.ask("/rename About the sky", "About the sky  demo  /help")
        window.ask("/list dogs", "1  Cats and dogs")
        window.ask("/open 7", "✗ invalid_input: No chat has the number 7.")
        window.send("/open")
        window.see("Type to search, Enter opens, Esc cancels")
        assert any(line.startswith("› About the sky") for line in window.lines)
        window.type(DOWN)
        window.until(lambda: any(line.startswith("› Cats and") for line in window.lines), "the second")
        window.type("weath")
        window.until(lambda: "    The weather in Rome" in window.lines, "what was found")
        window.type(ENTER)
        window.see("conv_")
        window.see("1 › The weather in Rome", times=2)
        window.ready()
        assert "Search:" not in window.everything
        window.type("half a sen", CTRL_O)
        window.see("Type to search, Enter opens, Esc cancels")
        window.type(ESCAPE)
        window.see_not("Type to search, Enter opens, Esc cancels")
        window.ready()


def test_multi_line_input_and_history_work_at_the_prompt(home: Home) -> None:
    with Window("chat", home=home.path) as window:
        window.ready()
        window.type("one", CTRL_J, "two")
        window.until(lambda: "    two" in window.lines, "two lines")
        window.type(ENTER)
        window.see('You said "one two".')
        window.ready()
        window.ask("/nonsense", "Unknown command /nonsense. /help lists them.")
        window.type(UP, UP)
        window.see("2 › one")
        assert window.last_input == "    two"
    file = home.folder / "chat_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "+one\n+two\n" in file.read_text()


def test_long_answer_is_printed_once_with_few_rewrites(home: Home) -> None:
    lines = [f"- item {number} of the list\n" for number in range(150)]
    code = ["\n```python\n", *(f"x{number} = {number}\n" for number in range(150)), "```\n\nThe end."]
    with (
        run_scripted_model([*lines, *code]) as model,
        Window("chat", "--upstream", model.url, home=home.path, columns=60, rows=12) as window,
    ):
        window.ready()
        window.ask("Say much", "The end.")
        shown = window.everything.split("\n")
        assert [line for line in shown if "of the list" in line] == [
            f" • item {number} of the list" for number in range(150)
        ]
        assert [line for line in shown if " = " in line] == [f"x{number} = {number}" for number in range(150)]
        rewritten = [int(rows) for rows in re.findall(rb"\x1b\[([0-9]+)A", window.raw)]
        assert 0 < max(rewritten) < 12


def test_model_option_selects_the_model(home: Home) -> None:
    with (
        run_scripted_model(["Here."]) as model,
        Window("chat", "--upstream", model.url, "--model", "named-so", home=home.path) as window,
    ):
        window.ready()
        assert "named-so at " in window.text
        window.ask("Who is there?", "Here.")
        assert model.requested_models == ["named-so"]


def test_answer_survives_a_resize_of_a_narrow_window(home: Home) -> None:
    gate = Gate()
    words = "narrow windows show all words of a sentence in the order in which they were said"
    with (
        run_scripted_model([words[:30], gate, words[30:]]) as model,
        Window("chat", "--upstream", model.url, home=home.path, columns=24, rows=20) as window,
    ):
        window.ready()
        window.send("Go")
        window.see("Ctrl-C stops")
        window.see("words")
        window.resize(50, 20)
        model.release(gate)
        window.see("2 ›")
        window.ready()
        shown = window.one_line
        assert shown.count(words) == 1, window.everything
        assert all(len(line) <= 50 for line in window.lines)


def test_hostile_model_output_cannot_control_the_terminal(home: Home) -> None:
    hostile = [
        "\x1b]0;owned\x07 \x1b[2J\x1b[31mred\x1b[0m \x9b5A ",
        "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\ ",
        "<http://evil.example/%1b]0;owned%07> [bold]markup[/bold] [link=http://evil.example]x[/link] ",
        "[named](http://evil.example/x) \u202eesrever\u202c &#x202e; &#27;[7m \r\rback\r\n",
        "```\x1b[41m\ncode \x1b[5m\n```\n\nThe end.",
    ]
    with (
        run_scripted_model(hostile) as model,
        Window("chat", "--upstream", model.url, home=home.path) as window,
    ):
        window.ready()
        window.ask("Hello", "The end.")
        output = window.raw.decode()
        assert "\x1b]" not in output
        assert "\x9b" not in output
        assert "\u202e" not in output
        assert not re.search(r"\x1b\[(2J|31m|41m|5m|7m)", output)
        assert "1 › Hello" in window.text  # nothing was erased
        shown = window.one_line
        for text in (r"\x1b]0;owned\x07", "[bold]markup[/bold]", "named (http://evil.example/x)", r"\u202e"):
            assert text in shown


def test_typed_ahead_input_is_kept_and_sigterm_restores_the_terminal(home: Home) -> None:
    first, second = Gate(), Gate()
    with (
        run_scripted_model(["One", first], ["Two", second]) as model,
        Window("chat", "--upstream", model.url, home=home.path) as window,
    ):
        window.ready()
        window.send("Hello")
        window.see("One")
        window.type("next")
        model.release(first)
        window.until(lambda: window.last_input == "2 › next", "what was typed meanwhile")
        window.ready()
        window.type(ENTER)
        window.see("Two")
        window.send_signal(signal.SIGTERM)
        assert window.ended() == 143
        assert window.raw.rindex(b"\x1b[?25h") > window.raw.rindex(b"\x1b[?25l")
        assert "Ctrl-C stops" not in window.everything


def test_resume_after_a_crash_reports_it_and_restores_the_text(home: Home) -> None:
    with Window("chat", home=home.path) as window:
        window.ready()
        window.ask("Hello", "2 ›")
        window.send("//stall after 2")
        window.see("You said", times=2)
        window.send_signal(signal.SIGKILL)
        assert window.ended() == -signal.SIGKILL
    with Window("chat", "--resume", home=home.path) as window:
        window.see("✗ process_died: the process that ran it died")
        window.ready()
        assert window.last_input == "2 › //stall after 2"
        window.type(CTRL_C)  # clears the line
        window.until(lambda: window.last_input == "2 ›", "an empty prompt")
        assert len(home.turns()) == 1
        window.ask("Again", "3 ›")
        window.ask("/undo", "Turn 2 is undone.")
    with Window("chat", "--resume", home=home.path) as window:  # more has happened since
        window.see("2 ›")
        window.ready()
        assert "process_died" not in window.everything
        assert window.last_input == "2 ›"
    assert len(home.turns()) == 1


@pytest.mark.parametrize("wanted", [{}, {"NO_COLOR": "1"}])
def test_colours_are_used_unless_no_color_is_set(home: Home, wanted: dict[str, str]) -> None:
    with Window("chat", home=home.path, more=wanted) as window:
        window.ready()
        window.ask("//fail", "✗")
        colours = re.findall(
            rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m", window.raw
        )
        assert bool(colours) is not bool(wanted)


def started(home: Home, *arguments: str) -> subprocess.Popen[bytes]:
    folders = {name: str(home.path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    return subprocess.Popen(
        [sys.executable, "-m", "turnledger", "chat", *arguments],
        env={**os.environ, **folders, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_piped_turn_prints_raw_text_with_escaped_controls(home: Home) -> None:
    with run_scripted_model(["# Not rendered\n\n\ttab \x1b[31mred\x1b[0m [x](y)\n"]) as model:
        output, problems = started(home, "--upstream", model.url).communicate(b"Hello\n")
    assert output == b"# Not rendered\n\n\ttab \\x1b[31mred\\x1b[0m [x](y)\n"
    assert problems == b""
    assert home.turns()[0].input[0].text == "Hello"


def test_piped_turn_says_on_stderr_that_its_chat_is_new_and_the_demo_model_answers(home: Home) -> None:
    output, problems = started(home, "--resume").communicate(b"Hello\n")
    assert (output, problems) == (
        b'You said "Hello". I remember nothing before that.\n',
        f"{NO_CHAT_TO_CONTINUE}\n{DEMO_NOTE}\n".encode(),
    )


def test_piped_turn_by_the_demo_model_in_a_chat_of_another_is_refused_unless_it_is_named(home: Home) -> None:
    with run_scripted_model(["Hi."]) as model:
        started(home, "--upstream", model.url).communicate(b"Hello\n")
    refused = started(home, "--resume")
    output, problems = refused.communicate(b"More?")
    assert (output, refused.returncode, len(home.turns())) == (b"", 2, 1)
    [reason] = problems.decode().splitlines()
    assert reason.startswith("invalid_input: 'scripted' answered last")
    assert reason.endswith("Use --server URL, turnledger.toml, or --model demo.")
    assert started(home, "--resume", "--model", "demo").communicate(b"More?")[1] == b""
    assert len(home.turns()) == 2


def test_piped_turn_that_fails_exits_with_2(home: Home) -> None:
    failing = started(home, "--model", "demo")
    output, problems = failing.communicate(b"/fail after 2")
    assert (output, failing.returncode) == (b"You said\n", 2)
    assert problems == b"model_unavailable: The demo model failed, as requested.\n"
    empty = started(home)
    assert b"no_new_input" in empty.communicate(b" \n")[1]
    assert empty.returncode == 2


def test_piped_turn_interrupted_by_ctrl_c_is_kept(home: Home) -> None:
    gate = Gate()
    with run_scripted_model(["So far", gate]) as model:
        stopped = started(home, "--upstream", model.url)
        assert stopped.stdin is not None
        assert stopped.stdout is not None
        stopped.stdin.write(b"Hello")
        stopped.stdin.close()
        assert stopped.stdout.read(6) == b"So far"
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait(20) == 130
        stopped.stdout.close()
        assert stopped.stderr is not None
        assert stopped.stderr.read() == b""
        stopped.stderr.close()
    assert [(turn.kind, turn.text) for turn in home.turns()] == [(TurnKind.INTERRUPTED, "So far")]


def test_piped_turn_whose_output_is_closed_ends_silently(home: Home) -> None:
    reading = started(home, "--model", "demo")
    assert reading.stdin is not None
    assert reading.stdout is not None
    reading.stdin.write(b"/count 10000")
    reading.stdin.close()
    assert reading.stdout.read(5) == b"1 2 3"
    reading.stdout.close()
    assert reading.wait(20) == 141
    assert reading.stderr is not None
    assert reading.stderr.read() == b""
    reading.stderr.close()
    assert [turn.kind for turn in home.turns()] == [TurnKind.INTERRUPTED]
