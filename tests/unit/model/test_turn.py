"""A turn keeps its items byte for byte, separates input from output, and is counted in blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import any_items, assistant, call, repeatable, result, turn, user
from turnledger.errors import StoreCorrupt, StoreTooNew
from turnledger.model.conversation import BLOCK, block_bytes
from turnledger.model.item import Item
from turnledger.model.turn import Turn, TurnKind

some_items = st.lists(any_items, min_size=1, max_size=5)


@repeatable
@given(some_items, some_items)
def test_turn_returns_its_input_and_output_byte_for_byte(input: list[Item], output: list[Item]) -> None:
    found = turn(input=input, output=output)
    assert found.input == tuple(input)
    assert found.output == tuple(output)
    assert found.items == (*input, *output)


@repeatable
@given(some_items, some_items)
def test_turn_body_is_the_same_for_the_same_items(input: list[Item], output: list[Item]) -> None:
    first = turn(input=input, output=output)
    assert turn(input=first.input, output=first.output).body == first.body


def test_turn_text_is_the_joined_text_of_the_assistant() -> None:
    given = turn(input=[user("q")], output=[assistant("a"), call(), result(), assistant("b")])
    assert given.text == "ab"


def test_turn_text_without_an_assistant_message_is_empty() -> None:
    bare = turn(output=[call()])
    assert bare.text == ""


def test_turn_instructions_are_not_items_and_take_no_bytes_when_absent() -> None:
    plain = turn()
    assert (plain.instructions, plain.instructed) == (None, 0)
    assert b"instruct" not in plain.body
    given = instructed((user("Be brief."),), 3)
    assert (given.instructions, given.instructed) == ((user("Be brief."),), 3)
    assert given.items == plain.items
    cleared = instructed((), 0)
    assert (cleared.instructions, cleared.instructed) == ((), 0)


def instructed(items: tuple[Item, ...], number: int) -> Turn:
    plain = turn()
    return Turn.of(
        id=plain.id,
        branch=plain.branch,
        number=3,
        parent=None,
        kind=TurnKind.COMPLETED,
        created_at=1,
        committed_at=2,
        input=plain.input,
        output=plain.output,
        instructions=items,
        instructed=number,
    )


def test_turn_body_from_before_instructions_existed_is_readable() -> None:
    old = with_body(b'{"v":1,"input":0,"items":[]}')
    assert (old.instructions, old.instructed) == (None, 0)


def test_turn_details_survive_storage_and_take_no_bytes_when_absent() -> None:
    plain = turn()
    assert plain.details == {}
    assert b"details" not in plain.body
    given = with_body(plain.body[:-1] + b',"details":{"model":"m","usage":{"total_tokens":3}}}')
    assert given.details == {"model": "m", "usage": {"total_tokens": 3}}
    assert given.items == plain.items


def test_turn_is_immutable() -> None:
    with pytest.raises(AttributeError):
        turn().number = 2  # type: ignore[misc]


def test_turns_with_the_same_fields_are_equal() -> None:
    assert turn() == turn()
    assert hash(turn()) == hash(turn())
    assert turn(1) != turn(2)


def with_body(body: bytes) -> Turn:
    given = turn()
    return Turn(given.id, given.branch, 1, None, TurnKind.COMPLETED, 1, 2, body)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"v":1,"input":0}', b'{"v":1,"input":0,"items":[{"type":5}]}']
)
def test_turn_with_a_damaged_body_raises_store_corrupt_on_access(body: bytes) -> None:
    damaged = with_body(body)
    with pytest.raises(StoreCorrupt):
        _ = damaged.items[0].type


def test_turn_with_a_body_of_a_newer_version_is_refused() -> None:
    with pytest.raises(StoreTooNew):
        _ = with_body(b'{"v":2,"input":0,"items":[]}').items


def test_turn_with_hidden_items_hides_them_from_chat_clients_only() -> None:
    whole = turn(input=[user("q")], output=[assistant("a")])
    assert len(whole.shown.entries) == 2
    hiding = whole.with_hidden(frozenset({1}))
    assert (hiding, hiding.items) == (whole, whole.items)
    assert [entry.pieces for entry in hiding.shown.entries] == [("q",)]
    assert [entry.pieces for entry in whole.shown.entries] == [("q",), ("a",)]
    assert (hiding.shown.hidden, whole.shown.hidden) == ({1}, frozenset())


@pytest.mark.parametrize(
    ("size", "counted"),
    [(0, 0), (1, BLOCK), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK), (5 * BLOCK - 1, 5 * BLOCK)],
)
def test_size_in_blocks_is_rounded_up(size: int, counted: int) -> None:
    assert block_bytes(size) == counted
