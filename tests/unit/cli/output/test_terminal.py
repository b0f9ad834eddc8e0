"""Tables, progress bars and colours in windows of any width, and piped output."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cli.commands.test_chats import add_turns, use_ledger
from tests.unit.cli.pseudo_terminal import ScreenResult, WindowedCommand, run_commands
from tests.unit.model.shapes import repeatable
from turnledger import Ledger
from turnledger.cli.output.progress import DELAY, Progress
from turnledger.cli.output.table import GAP, Column, widths_of
from turnledger.hosting import Host

COLUMNS = (
    Column("WHEN"),
    Column("ID"),
    Column("TITLE", min_width=10),
    Column("TEXT", min_width=10, wraps=True),
)


@pytest.mark.parametrize(
    ("window", "widths"),
    [
        (200, [10, 12, 30, 50]),
        (108, [10, 12, 30, 50]),
        (100, [10, 12, 30, 42]),
        (78, [10, 12, 25, 25]),
        (48, [10, 12, 10, 10]),
        (47, None),
    ],
)
def test_column_widths_shrink_the_widest_first_and_never_ids(window: int, widths: list[int] | None) -> None:
    rows = [["w" * 10, "i" * 12, "t" * 30, "x" * 50], ["w", "i", "t", "x"]]
    assert widths_of(COLUMNS, rows, window) == widths


def test_column_widths_of_short_texts_are_minimal() -> None:
    assert widths_of(COLUMNS, [["w", "i", "t", "x"]], 200) == [4, 2, 5, 4]
    assert widths_of(COLUMNS, [["w", "i", "t", "x"]], 21) == [4, 2, 5, 4]


def test_column_width_counts_a_wide_character_as_two() -> None:
    assert widths_of((Column("T", min_width=1),), [["漢字"]], 3) == [3]


@repeatable
@given(
    rows=st.lists(st.tuples(*[st.text("ab ", max_size=60)] * 4), min_size=1, max_size=5),
    window=st.integers(1, 300),
)
def test_table_never_exceeds_its_window(rows: list[tuple[str, ...]], window: int) -> None:
    widths = widths_of(COLUMNS, rows, window)
    if widths is not None:
        assert sum(widths) + GAP * (len(widths) - 1) <= window
        for column, width, cells in zip(COLUMNS, widths, zip(*rows, strict=True), strict=True):
            natural = max(map(len, (column.title, *cells)))
            assert width == natural if column.min_width is None else width >= min(natural, column.min_width)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def looked_at(monkeypatch: pytest.MonkeyPatch, stream: str = "stderr") -> Terminal:
    """The standard error as displayed."""
    seen = Terminal()
    monkeypatch.setattr(sys, stream, seen)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    return seen


@pytest.mark.parametrize(
    ("seconds", "is_terminal", "is_shown"), [(DELAY / 2, True, True), (60, False, True), (60, True, False)]
)
def test_progress_of_short_work_without_a_terminal_or_hidden_prints_no_bar(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_terminal: bool, is_shown: bool
) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    monkeypatch.setattr(terminal, "isatty", lambda: is_terminal)
    with Progress("Working", 2, is_shown=is_shown, clock=clock) as progress:
        clock.now = seconds
        progress.advance(1)
        assert progress.poll_interval == (DELAY if is_terminal and is_shown else None)
    assert terminal.getvalue() == ""


def test_progress_of_long_work_shows_a_bar_and_removes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    with Progress("Working", 4, clock=clock) as progress:
        clock.now = DELAY
        progress.advance(1)
        progress.advance(2)
        progress.print_line("done")
    seen = terminal.getvalue()
    assert "Working" in seen
    assert "3/4" in seen
    assert seen.endswith("\x1b[2K")
    assert capsys.readouterr().out == "done\n"


def test_progress_prints_lines_above_its_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, terminal, output = Clock(), looked_at(monkeypatch), looked_at(monkeypatch, "stdout")
    with Progress("Working", 4, clock=clock) as progress:
        progress.print_line("before")
        clock.now = DELAY
        progress.advance(1)
        progress.print_line("a line [red]that is long enough to go on below the end")
    assert output.getvalue() == "before\n"
    assert "a line [red]that is long enough to go on below the end\n" in terminal.getvalue()


def test_progress_without_a_total_shows_the_amount_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    with Progress("Working", in_bytes=True, clock=clock) as progress:
        clock.now = DELAY
        progress.advance(2_000)
    assert "2.0 kB" in terminal.getvalue()
    assert "?" not in terminal.getvalue().replace("\x1b[?", "")


@pytest.mark.parametrize("columns", [34, 40, 80])
def test_progress_bar_leaves_room_for_ctrl_c(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    clock, terminal = Clock(), looked_at(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress("Importing", 67_100_000, in_bytes=True, clock=clock) as progress:
        clock.now = DELAY
        progress.advance(24_100_000)
    bar, _ = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).split("\n")
    assert "24.1/67.1 MB" in bar
    assert max(map(len, bar.split("\r"))) <= columns - len("^C")


LONG = "How is the weather in Rome, and will it rain for the whole week?"
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m [bold red]hi[/] :smile: 漢字"
COLOURS = re.compile(rb"\x1b\[(?:[0-9]+;)*[349][0-7]m")
LIST, SEARCH, SHOW = ("chats", "list"), ("chats", "search", "rains"), ("chats", "show", "weather")
SHOW_HOSTILE, WRONG, TOKENS = ("chats", "show", "hostile"), ("chats", "show", "\x1b[2J"), ("tokens", "list")
JSON = (*SHOW_HOSTILE, "--json")
EXPORT, MARKDOWN = ("chats", "export", "hostile"), ("chats", "export", "hostile", "--format", "markdown")
COMMANDS = (LIST, SEARCH, SHOW, SHOW_HOSTILE, TOKENS, WRONG, JSON, EXPORT, MARKDOWN)
COLOURED = (LIST, SEARCH, SHOW)
PIPED = [((40, ()), COMMANDS)]
WINDOWS = [
    *(((columns, ()), COMMANDS) for columns in (20, 40, 120)),
    *(((80, (setting,)), COLOURED) for setting in (("TERM", "xterm"), ("TERM", "dumb"), ("NO_COLOR", "1"))),
    ((40, (("TERM", "dumb"),)), (LIST,)),
]
"""Width and environment of each window, and what is run there."""
Look = Callable[..., ScreenResult]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with two chats, one of which is hostile, and a token."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/mine.db"
    add_turns(url, "weather", (LONG, "It rains in Rome. " * 10))
    add_turns(url, "hostile", (HOSTILE, HOSTILE + "\nand more"))

    async def mark(ledger: Ledger) -> None:
        scopes = ["chats:read", "chats:write", "turns:run"]
        await (await ledger.conversation(conversation_key="weather")).update(pinned=True)
        await Host(ledger).tokens.create(scopes=scopes, owner="ann", name="phone")

    use_ledger(url, mark)
    return url


@pytest.fixture(scope="module")
def look(url: str) -> Look:
    """What a command shows in a window so wide. All run in one process, at the first call; those
    that write into a pipe in another."""
    seen: dict[tuple[object, bool], ScreenResult] = {}

    def look(command: tuple[str, ...], columns: int, *, pipes: bool = False, **env: str) -> ScreenResult:
        if not any(was_piped is pipes for _, was_piped in seen):
            wanted = [(each, *window) for window, every in (PIPED if pipes else WINDOWS) for each in every]
            ran = [WindowedCommand([*each, "--store", url], width, dict(env)) for each, width, env in wanted]
            seen.update(zip(((each, pipes) for each in wanted), run_commands(ran, pipes=pipes), strict=True))
        return seen[(command, columns, tuple(env.items())), pipes]

    return look


def id_of(url: str, conversation_key: str) -> str:
    async def find(ledger: Ledger) -> str:
        return (await ledger.conversation(conversation_key=conversation_key)).id

    return use_ledger(url, find)


@pytest.mark.parametrize("columns", [20, 40, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_terminal_output_contains_only_lines_and_styles(
    look: Look, command: tuple[str, ...], columns: int
) -> None:
    screen = look(command, columns)
    left = re.sub(rb"\x1b\[[0-9;]*m|\r\n", b"", screen.sent).decode()
    assert left
    assert left.isprintable()
    assert screen.code == (2 if command == WRONG else 0)


def test_list_in_a_wide_window_is_a_table(look: Look, url: str) -> None:
    screen = look(LIST, 120)
    head, hostile, weather = screen.lines
    assert head.split() == ["LAST", "USED", "TURNS", "ID", "TITLE"]
    assert head.index("TITLE") == weather.index("[pinned] How is the weather") == hostile.index("[2J")
    assert id_of(url, "weather") in weather
    assert "[bold red]hi[/] :smile: 漢字" in hostile
    assert weather.endswith("…")
    assert b"\x1b[1mLAST USED\x1b[0m" in screen.sent


def test_list_in_eighty_columns_drops_the_turn_count(look: Look) -> None:
    head, _, weather = look(LIST, 80, TERM="xterm").lines
    assert head.split() == ["LAST", "USED", "ID", "TITLE"]
    assert "[pinned] How is the" in weather


def test_list_in_a_narrow_window_has_lines_per_chat_with_whole_ids(look: Look, url: str) -> None:
    lines = look(LIST, 40).lines
    at = lines.index(f"  {id_of(url, 'weather')}")
    assert " ".join(lines[at - 2 : at]).startswith("[pinned] How is the weather in Rome,")
    assert lines[at + 1].endswith(", 1 turn")


@pytest.mark.parametrize("columns", [40, 120])
def test_show_wraps_a_chat_in_any_window(look: Look, url: str, columns: int) -> None:
    lines = look(SHOW, columns).lines
    text = " ".join(" ".join(lines).split())
    assert text.startswith(LONG[:30])
    assert id_of(url, "weather") in text
    assert f"user: {LONG}" in text
    assert "It rains in Rome. It rains in Rome." in text
    answer = lines[next(at for at, line in enumerate(lines) if "assistant:" in line) :]
    assert all(line.startswith("  ") for line in answer)


@pytest.mark.parametrize("columns", [40, 120])
def test_show_escapes_hostile_text_in_any_window(look: Look, columns: int) -> None:
    lines = look(SHOW_HOSTILE, columns).lines
    assert r"\x1b[2J\x1b]0;owned\x07\x9b31m" in "".join(line.strip() for line in lines)


def test_search_highlights_matches(look: Look, url: str) -> None:
    screen = look(SEARCH, 40)
    assert screen.lines[0] == id_of(url, "weather")
    assert COLOURS.search(screen.sent)


def test_output_without_colours_has_no_colour_sequences(look: Look) -> None:
    for command in COLOURED:
        assert not COLOURS.search(look(command, 80, NO_COLOR="1").sent)
        assert b"\x1b" not in look(command, 80, TERM="dumb").sent
    assert b"\x1b[1mrains" in look(SEARCH, 80, NO_COLOR="1").sent


def test_dumb_terminal_output_respects_the_width(look: Look) -> None:
    assert look(LIST, 40, TERM="dumb").lines == look(LIST, 40).lines


@pytest.mark.parametrize("columns", [40, 120])
def test_tokens_list_fits_any_window(look: Look, columns: int) -> None:
    text = " ".join(" ".join(look(TOKENS, columns).lines).split())
    assert re.search(r"\btok_[0-9a-f]{32}\b", text)
    words = {word.strip("',") for word in text.split()}
    assert {"ann", "phone", "chats:read", "chats:write", "turns:run", "never"} <= words


def test_piped_output_has_whole_lines_in_any_window(look: Look) -> None:
    listed = look(LIST, 40, pipes=True)
    head, _, weather = listed.piped.splitlines()
    assert (listed.lines, listed.code) == ([], 0)
    assert head.split() == ["LAST", "USED", "TURNS", "ID", "TITLE"]
    assert weather.endswith("[pinned] How is the weather in Rome, and will it rain for the whole…")
    assert f"  user: {LONG}\n" in look(SHOW, 40, pipes=True).piped
    for command in (LIST, SEARCH, SHOW, SHOW_HOSTILE, TOKENS, JSON):
        assert look(command, 40, pipes=True).piped.replace("\n", "").isprintable()
    assert "\x9b" in look(EXPORT, 40, pipes=True).piped  # a file keeps the original text


def test_json_output_on_a_terminal_is_unchanged(look: Look) -> None:
    output = json.loads(look(JSON, 120).sent)
    assert output["turns"][0]["input"][0]["content"][0]["text"] == HOSTILE


def test_error_output_is_one_line(look: Look) -> None:
    [line] = look(WRONG, 120).lines
    assert line.startswith("conversation_not_found: ")


def test_long_command_shows_a_bar_and_removes_it(tmp_path: Path) -> None:
    url, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("mine", "yours"))
    ids = [add_turns(url, key, ("Hello", "Hi.")) for key in ("one", "two")]
    file = str(tmp_path / "chats.jsonl")
    works = {
        "Exporting": ["chats", "export", "--all", "--output", file, "--store", url],
        "Importing": ["chats", "import", file, "--store", other],
        "Changing": ["chats", "pin", *ids, "--store", url],
        "Deleting": ["chats", "delete", *ids, "--store", url],
        "Restoring": ["chats", "restore", *ids, "--store", url],
        "Checking": ["check", "--store", url],
        "Comparing": ["copy", url, f"{url}.copy"],
    }
    ran = run_commands([WindowedCommand(each, 80, {}) for each in works.values()], patience=0)
    for label, screen in zip(works, ran, strict=True):
        assert screen.code == 0, screen.lines
        assert f"{label} " in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.sent.decode())
        assert not [line for line in screen.lines if line.startswith(label)], screen.lines
