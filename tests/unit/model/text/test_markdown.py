"""Markdown export: text of users and models is escaped or fenced, whatever it contains."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import conversation, repeatable, turn
from turnledger.model.item import Item, message
from turnledger.model.text.markdown import escape, fence_text, markdown_head, markdown_turn
from turnledger.model.turn import TurnKind

CALL = Item.of({"type": "function_call", "call_id": "c", "name": "f<b>", "arguments": '{"a":1}'})
RESULT = Item.of({"type": "function_call_output", "call_id": "c", "output": "# r"})


def test_markdown_of_a_turn_shows_messages_calls_and_results() -> None:
    text = markdown_turn(turn(output=[CALL, RESULT, message("assistant", "Hi.")]))
    assert text == (
        "\n## User\n\n```text\nHello\n```\n"
        '\n**Tool call** f\\<b\\>\n\n```text\n{"a":1}\n```\n'
        "\n**Tool result**\n\n```text\n# r\n```\n"
        "\n## Assistant\n\n```text\nHi.\n```\n"
    )


def test_markdown_leaves_out_a_hidden_call_and_its_result() -> None:
    text = markdown_turn(turn(output=[CALL, RESULT, message("assistant", "Hi.")]), [1])
    assert "Tool" not in text
    assert "Hi." in text


def test_markdown_of_an_interrupted_turn_states_the_interruption() -> None:
    assert "interrupted" in markdown_turn(turn(kind=TurnKind.INTERRUPTED))


@pytest.mark.parametrize(
    "text",
    [
        "```\n# no heading",
        "````\n<script>alert(1)</script>\n````",
        "![x](http://evil.example/x.png)",
        "a\r```\r# b",
        "a\u2028```\u2028# b",
    ],
)
def test_fenced_text_with_marks_does_not_leave_its_fence(text: str) -> None:
    fence, *inside, end, last = fence_text(text).split("\n")
    assert fence.removesuffix("text") == end
    assert last == ""
    assert not any(re.match(r" {0,3}" + end, line) for line in inside)


@repeatable
@given(st.text())
def test_fenced_text_of_any_characters_does_not_leave_its_fence(text: str) -> None:
    fence, *inside, end, _ = fence_text(text).split("\n")
    assert fence.removesuffix("text") == end
    assert not any(end in line for line in inside)
    assert "\x1b" not in fence_text(text)
    assert "\u202e" not in fence_text(text)


def test_markdown_title_is_one_escaped_line() -> None:
    text = markdown_head(conversation(title="# <b>x</b>\n[a](javascript:1) \x1b[31m", touched_at=86_400_000))
    heading = text.split("\n")[0]
    assert heading.startswith("# \\# \\<b\\>x\\<\\/b\\> \\[a\\]\\(javascript\\:1\\)")
    assert "\x1b" not in text
    assert markdown_head(conversation()).startswith("# Untitled chat\n")
    assert "1970-01-02" in text


@repeatable
@given(st.text())
def test_escaped_text_has_no_unescaped_mark(text: str) -> None:
    assert not re.search(r"(?<!\\)(?:\\\\)*[<\[*_`#]", escape(text))


def test_markdown_names_an_image_without_its_url() -> None:
    item = Item.of(
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "http://x/y"}]}
    )
    text = markdown_turn(turn(output=[item]))
    assert "_[input\\_image]_" in text
    assert "http" not in text
