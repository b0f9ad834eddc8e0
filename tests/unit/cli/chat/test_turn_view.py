"""Turns on the screen: printed when finished, followed and stopped while running."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from io import StringIO

import pytest
from msgspec.structs import replace

from tests.unit.cli.chat.memory_screen import MemoryScreen
from tests.unit.model.shapes import some_id
from turnledger.api.turns import Turn
from turnledger.cli.chat.backend import AnswerRestarted, TurnUpdate
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.markdown import MAX_BLOCK, blocks_of
from turnledger.cli.chat.pipe import _AnswerWriter
from turnledger.cli.chat.turn_view import (
    CODE_LINES,
    MAX_ACTIVITY,
    MAX_CHARACTERS,
    StreamedMarkdown,
    TurnEnd,
    TurnView,
    age_of,
    describe_turn,
    render_item,
    show_turn,
)
from turnledger.errors import ModelUnavailable, ServerUnavailable, TurnledgerError
from turnledger.model.event import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnFinished,
    TurnResumed,
    TurnStarted,
)
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, message, opening_of, raws, reasoning, refusal
from turnledger.model.turn import AttemptState, Failure, TurnKind

NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3 * 3600, "3 h ago"),
        (24 * 3600, "yesterday"),
        (5 * 24 * 3600, "5 days ago"),
        (400 * 24 * 3600, "2025-12-"),
    ],
)
def test_age_is_described_in_words(seconds: int, words: str) -> None:
    assert age_of((NOW - seconds) * 1000, NOW).startswith(words)


def turn(question: str, *output: Item, kind: TurnKind = TurnKind.COMPLETED, **details: str) -> Turn:
    return Turn(
        id=some_id(TurnId, 1),
        number=12,
        kind=kind,
        raw_input=raws([message("user", question)] if question else []),
        raw_output=raws(output),
        details=details,
    )


def test_turn_view_shows_the_numbered_question_above_the_answer() -> None:
    paper = MemoryScreen()
    show_turn(paper.screen, turn("one\ntwo\x1b[2J", message("assistant", "# Three\n\n*four*")))
    assert paper.lines == ["12 › one", "     two\\x1b[2J", "", "Three", "", "four"]


def test_turn_view_shows_calls_and_results_between_texts() -> None:
    call = Item.of({"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": 1}'})
    result = Item.of({"type": "function_call_output", "call_id": "c", "output": "a\ncat"})
    paper = MemoryScreen()
    show_turn(paper.screen, turn("", call, result, message("assistant", "A cat.")))
    assert paper.lines == ["12 › (no message)", "", '⚙ look({"at": 1})', "→ a cat", "", "A cat."]


def test_turn_view_truncates_long_calls_and_hides_other_items() -> None:
    call = Item.of({"type": "custom_tool_call", "call_id": "c", "name": "write", "input": "x" * 10_000})
    output = render_item(call)
    assert output is not None
    assert len(output.plain) <= MAX_CHARACTERS + 2
    assert output.plain.endswith("…")
    assert render_item(Item.of({"type": "reasoning", "summary": []})) is None


def test_turn_view_shows_reasoning_as_one_sanitized_line() -> None:
    thought = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "First\n\x1b[2J"}, {"text": "then"}],
    }
    output = render_item(Item.of(thought))
    assert output is not None
    assert output.plain == "∴ First \\x1b[2J then"


def test_turn_view_shows_time_and_tokens_of_either_api() -> None:
    answered = replace(turn("Hi"), created_at=1_000, committed_at=2_234)
    assert describe_turn(answered) == "1.2 s"
    chat = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
    assert describe_turn(replace(answered, details={"model": "m\x1b", "usage": chat})) == (
        "m\\x1b, 1.2 s, 10 input tokens, 20 output tokens"
    )
    responses = {"input_tokens": 1, "output_tokens": "many"}
    assert describe_turn(replace(answered, details={"usage": responses})) == "1.2 s, 1 input tokens"


def test_turn_view_notes_an_empty_answer() -> None:
    paper = MemoryScreen()
    show_turn(paper.screen, turn("Hi", message("assistant", "")))
    assert paper.lines[-1] == "■ The model returned an empty answer."


def test_turn_view_notes_an_interrupted_or_truncated_answer() -> None:
    for kind, details, note in (
        (TurnKind.INTERRUPTED, {}, "■ Stopped: the answer is incomplete."),
        (
            TurnKind.COMPLETED,
            {"finish_reason": "length"},
            "■ The model reached its length limit: the answer is cut off.",
        ),
        (TurnKind.COMPLETED, {"finish_reason": "stop"}, "Some"),
    ):
        paper = MemoryScreen()
        show_turn(paper.screen, turn("Hi", message("assistant", "Some"), kind=kind, **details))
        assert paper.lines[-1] == note


ANSWER = """\
# Heading

A paragraph of some *words* that is long enough to be broken, and **goes on** for a while
with a second line.

Setext
------

1. first
   - nested
   - more
2. second

   with a paragraph
3. third

10. tenth

11. eleventh

* bullet
* bullet

| a | b |
|---|---|
| 1 | 2 |

> quoted
lazily

```python
x = '''
# no heading

- no list
'''
```

    indented code

    goes on

Last words.
"""


def streamed(answer: str, pieces: list[str], columns: int, rows: int) -> MemoryScreen:
    paper, coming = MemoryScreen(columns, rows), StreamedMarkdown()
    for piece in pieces:
        coming.feed(piece)
        paper.screen.blocks(coming.take_finished(), coming.tail, "status")
    paper.screen.blocks(coming.flush())
    paper.screen.clear_live()
    return paper


def pieces_of(text: str, chance: random.Random, longest: int) -> list[str]:
    pieces = []
    while text:
        length = chance.randint(1, longest)
        pieces.append(text[:length])
        text = text[length:]
    return pieces


def at_once(answer: str, columns: int, rows: int) -> list[str]:
    paper = MemoryScreen(columns, rows)
    paper.screen.blocks(blocks_of(answer))
    return paper.lines


def test_streamed_turn_looks_the_same_however_it_is_split() -> None:
    chance = random.Random(3)
    for answer, longest, columns, rows in (
        (ANSWER, 3, 60, 30),
        (ANSWER, 12, 40, 6),
        (ANSWER.replace("\n", "\r\n"), 5, 40, 6),
    ):
        pieces = pieces_of(answer, chance, longest)
        assert streamed(answer, pieces, columns, rows).lines == at_once(ANSWER, columns, rows)


def test_streamed_paragraph_taller_than_the_window_is_complete_at_the_end() -> None:
    words = " ".join(f"word{number}" for number in range(120))
    shown = streamed(words, pieces_of(words, random.Random(5), 9), 40, 6).lines
    assert " ".join(shown).split() == words.split()


def test_streamed_long_code_is_finished_in_pieces() -> None:
    code = [f"line {number}\n" for number in range(3 * CODE_LINES)]
    coming = StreamedMarkdown()
    coming.feed("```text\n")
    most = 0
    for line in code:
        coming.feed(line)
        coming.take_finished()
        most = max(most, len(coming.tail.text if coming.tail else ""))
    assert most < 2 * CODE_LINES * len(code[-1])
    answer = f"Before\n\n```text\n{''.join(code)}```\nBehind"
    shown = streamed(answer, pieces_of(answer, random.Random(1), 30), 40, 10).lines
    assert shown == ["Before", "", "```text", *map(str.rstrip, code), "```", "", "Behind"]


def test_streamed_block_without_end_is_held_only_up_to_the_limit() -> None:
    coming = StreamedMarkdown()
    held = 0
    for _ in range(100):
        coming.feed("word " * 200)
        coming.take_finished()
        held = max(held, len(coming.tail.text if coming.tail else ""))
    assert held <= MAX_BLOCK + 1000


class Scripted:
    """A turn that yields the given updates."""

    def __init__(self, *updates: TurnUpdate | TurnledgerError, turn: str | None = "turn_1") -> None:
        self._updates = updates
        self.turn = turn
        self.is_requested = turn is not None
        self.stops = 0
        self.is_left = False
        self.cannot_stop: TurnledgerError | None = None
        self.is_read = asyncio.Event()
        self._goes_on: asyncio.Queue[TurnUpdate] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[TurnUpdate]:
        for each in self._updates:
            if isinstance(each, TurnledgerError):
                raise each
            yield each
        if self._updates and isinstance(self._updates[-1], TurnFinished):
            return
        self.is_read.set()
        yield await self._goes_on.get()

    async def stop(self) -> None:
        self.stops += 1
        if self.cannot_stop is not None:
            raise self.cannot_stop
        self._goes_on.put_nowait(TurnFinished(9, AttemptState.KEPT))

    async def leave(self) -> bool:
        self.is_left = True
        return True


async def follow(answering: Scripted, paper: MemoryScreen, *, press: int = 0) -> TurnEnd:
    presses = Interrupts()
    following = asyncio.ensure_future(TurnView(paper.screen).follow(answering, presses))
    for pressed in range(1, press + 1):
        await answering.is_read.wait()
        while answering.stops < pressed and not following.done():
            presses.notify()
            await asyncio.sleep(0)
    return await following


def text_updates(*texts: str) -> list[TurnUpdate]:
    deltas = [TextDelta(number, text) for number, text in enumerate(texts, 2)]
    return [TurnStarted(1), *deltas]


async def test_ctrl_c_stops_the_running_turn() -> None:
    paper, answering = MemoryScreen(), Scripted(*text_updates("As far"))
    end = await follow(answering, paper, press=1)
    assert (end.state, end.is_committed, answering.is_left) == (AttemptState.KEPT, True, False)
    assert paper.lines == ["As far"]


async def test_second_ctrl_c_abandons_a_turn_that_does_not_stop() -> None:
    paper, answering = MemoryScreen(), Scripted(*text_updates("On and on"))
    answering.cannot_stop = ServerUnavailable("It is not there.")
    end = await follow(answering, paper, press=2)
    assert answering.stops == 1
    assert answering.is_left
    assert (end.state, end.may_continue, end.is_committed) == (None, True, False)


async def test_ctrl_c_abandons_a_turn_that_has_not_begun() -> None:
    paper, answering = MemoryScreen(), Scripted(turn=None)
    end = await follow(answering, paper, press=1)
    assert (answering.stops, answering.is_left, end.may_continue) == (0, True, True)


async def test_turn_view_returns_the_failure_after_the_partial_text() -> None:
    paper = MemoryScreen()
    failed = TurnFinished(3, AttemptState.FAILED, Failure("model_unavailable", "It is gone."))
    end = await follow(Scripted(*text_updates("Half a"), failed), paper)
    assert (end.is_committed, end.failure) == (False, Failure("model_unavailable", "It is gone."))
    end = await follow(Scripted(*text_updates("Half a"), ModelUnavailable("It is gone.")), paper)
    assert isinstance(end.problem, ModelUnavailable)
    assert paper.lines == ["Half a", "", "Half a"]


THOUGHT = reasoning("Where to go?")
CALL = Item.of({"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"city": "Rome"}'})
EVERY_KIND: list[TurnUpdate] = [
    TurnStarted(1),
    ReasoningDelta(2, "Where "),
    ReasoningDelta(3, "to go?"),
    TextDelta(4, "Let me see."),
    ItemAdded(5, opening_of(CALL).raw),
    ArgumentsDelta(6, "c", '{"city": '),
    ArgumentsDelta(7, "c", '"Rome"}'),
]


def done(first: int, *items: Item) -> list[TurnUpdate]:
    return [ItemDone(number, item.raw) for number, item in enumerate(items, first)]


RESULT = Item.of({"type": "function_call_output", "call_id": "c", "output": "a\nb"})
STREAMS: dict[str, tuple[list[TurnUpdate], list[str]]] = {
    "text, calls, and items without deltas": (
        [
            *text_updates("Some ", "**text**"),
            *done(4, message("assistant", "Some **text**"), CALL, RESULT, message("assistant", "A refusal.")),
        ],
        ["Some text", '⚙ look({"city": "Rome"})', "→ a b", "", "A refusal."],
    ),
    "a restarted answer": (
        [*text_updates("Half a"), AnswerRestarted(), *done(3, message("assistant", "A whole."))],
        ["Half a", "The answer restarts:", "", "A whole."],
    ),
    "only what came after a turn was resumed": (
        [TextDelta(1, "Lost"), TurnResumed(8), TextDelta(9, "Kept.")],
        ["The answer restarts:", "", "Kept."],
    ),
    "reasoning before its text, and everything once": (
        [*EVERY_KIND, *done(8, THOUGHT, message("assistant", "Let me see."), CALL)],
        ["∴ Where to go?", "", "Let me see.", '⚙ look({"city": "Rome"})'],
    ),
    "a streamed refusal once": (
        [TurnStarted(1), RefusalDelta(2, "I cannot."), *done(3, refusal("I cannot."))],
        ["I cannot."],
    ),
    "text once if reasoning came after it": (
        [
            *text_updates("Text."),
            ReasoningDelta(3, "Hm."),
            *done(4, reasoning("Hm."), message("assistant", "Text.")),
        ],
        ["Text.", "∴ Hm."],
    ),
}


@pytest.mark.parametrize("stream", STREAMS)
async def test_turn_view_shows(stream: str) -> None:
    updates, lines = STREAMS[stream]
    paper = MemoryScreen()
    end = await follow(Scripted(*updates, TurnFinished(20, AttemptState.COMPLETED)), paper)
    assert (end.is_committed, paper.lines) == (True, lines)


@pytest.mark.parametrize(
    ("count", "activity"),
    [
        (1, ""),
        (2, "∴ Where"),
        (3, "∴ Where to go?"),
        (4, ""),
        (5, "⚙ look("),
        (7, '⚙ look({"city": "Rome"}'),
    ],
)
def test_turn_view_shows_in_its_status_what_streams_in(count: int, activity: str) -> None:
    view = TurnView(MemoryScreen().screen, now=lambda: 0.0)
    for update in EVERY_KIND[:count]:
        view._handle_event(update)
    assert view._status(0.0).partition("stops")[2].strip() == activity


def test_turn_view_shows_the_end_of_long_reasoning() -> None:
    view = TurnView(MemoryScreen().screen, now=lambda: 0.0)
    view._handle_event(ReasoningDelta(1, "so " * 500 + "\x1b[2J end"))
    assert view._activity().endswith("\\x1b[2J end")
    assert len(view._activity()) <= MAX_ACTIVITY + 4


def test_pipe_writes_text_and_refusals_once_and_no_reasoning() -> None:
    out = StringIO()
    writer = _AnswerWriter(out)
    items = done(9, THOUGHT, message("assistant", "Let me see."), refusal("I cannot."), CALL)
    for update in [*EVERY_KIND, RefusalDelta(8, " I cannot."), *items]:
        writer._write_event(update)
    assert out.getvalue() == "Let me see. I cannot."
