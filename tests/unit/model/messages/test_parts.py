"""The parts of content: translated where the other shape has the same thing, verbatim where it has not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model import chat_shapes
from tests.unit.model.shapes import json_values, repeatable
from turnledger.errors import MalformedItems
from turnledger.model.item import message
from turnledger.model.messages.messages import are_parts, chat_content, chat_parts, responses_parts, text_part


def as_item(part: Any, role: str = "user") -> Any:
    return responses_parts("content", role, [part])[0]


@repeatable
@given(st.lists(chat_shapes.parts), st.sampled_from(["user", "assistant", "tool"]))
def test_parts_come_back_as_they_were(parts: list[dict[str, Any]], role: str) -> None:
    assert chat_parts(responses_parts("content", role, parts)) == parts


@repeatable
@given(json_values | st.lists(st.dictionaries(st.sampled_from(["type", "text"]), json_values)))
def test_whatever_an_output_is_there_is_content_for_it(output: Any) -> None:
    content = chat_content(output)
    assert content is None or isinstance(content, str) or are_parts(content)


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_a_text_part_is_the_one_that_messages_are_made_of(role: str) -> None:
    assert message(role, "x").fields["content"] == [text_part(role, "x")]


@pytest.mark.parametrize(
    ("part", "item_part"),
    [
        ({"type": "text", "text": "x"}, {"type": "input_text", "text": "x"}),
        ({"type": "image_url", "image_url": {"url": "u"}}, {"type": "input_image", "image_url": "u"}),
        (
            {"type": "image_url", "image_url": {"url": "u", "detail": "high"}},
            {"type": "input_image", "image_url": "u", "detail": "high"},
        ),
        (
            {"type": "file", "file": {"file_data": "data:,", "filename": "a"}},
            {"type": "input_file", "file_data": "data:,", "filename": "a"},
        ),
    ],
)
def test_what_both_shapes_have_is_translated(part: Any, item_part: Any) -> None:
    assert as_item(part) == item_part
    assert chat_parts([item_part]) == [part]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "u", "quality": 1}},
        {"type": "image_url", "image_url": {"url": "u"}, "cache_control": {}},
        {"type": "image_url", "image_url": {"url": None}},
        {"type": "image_url", "image_url": "u"},
        {"type": "file", "file": {"type": "pdf"}},
        {"type": "file", "file": None},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "refusal", "refusal": "No."},
        {"type": "some.day"},
        {"type": "type"},
    ],
)
def test_what_only_chat_has_is_carried_verbatim(part: Any) -> None:
    assert as_item(part) == part
    assert chat_parts([part]) == [part]


def test_text_with_more_to_it_is_not_joined() -> None:
    marked = {"type": "text", "text": "a", "cache_control": {}}
    assert chat_content([marked]) == [marked]
    assert (
        chat_content([{"type": "output_text", "text": "a", "annotations": [1]}, text_part("user", "b")])
        == "ab"
    )


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("x", r"content\[0\] must be a part with a `type`"),
        ({}, r"content\[0\] must be a part with a `type`"),
        ({"type": 5}, r"content\[0\] must be a part with a `type`"),
        ({"type": "text"}, r"content\[0\]\.text must be a text"),
        ({"type": "text", "text": None}, r"content\[0\]\.text must be a text"),
        ({"type": "refusal", "text": "x"}, r"content\[0\]\.refusal must be a text"),
    ],
)
def test_what_is_not_a_part_is_refused_with_its_place(part: Any, reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        as_item(part)
