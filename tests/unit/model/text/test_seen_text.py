"""Of a turn, people see what was asked and answered."""

from tests.unit.model.shapes import some_id
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.text.plain import seen_texts
from turnledger.model.turn import Turn, TurnKind

CALL = {"type": "function_call", "call_id": "c", "name": "tool", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "result"}


def turn(*items: Item) -> Turn:
    return Turn.of(
        id=some_id(TurnId, 1),
        branch=some_id(BranchId, 1),
        number=1,
        parent=None,
        kind=TurnKind.COMPLETED,
        created_at=1,
        committed_at=1,
        input=items[:1],
        output=items[1:],
    )


def test_texts_of_user_and_assistant_in_order() -> None:
    parts = [
        {"type": "input_text", "text": "with "},
        {"type": "input_image"},
        {"type": "input_text", "text": "image"},
    ]
    asked = Item.of({"role": "user", "content": parts})
    refused = Item.of({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]})
    assert seen_texts(turn(asked, message("assistant", "Yes."), refused), ()) == ["with image", "Yes.", "No."]


def test_nothing_of_tools_reasoning_and_instructions() -> None:
    reasoning = Item.of({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]})
    notes = [message("system", "note"), message("developer", "note"), message("assistant", "")]
    assert seen_texts(turn(*notes, reasoning, Item.of(CALL), Item.of(RESULT)), ()) == []


def test_nothing_that_is_hidden() -> None:
    told = turn(message("user", "one"), message("assistant", "two"), message("assistant", "three"))
    assert seen_texts(told, {1}) == ["one", "three"]
