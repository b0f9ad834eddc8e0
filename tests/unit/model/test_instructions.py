"""Instructions are system and developer messages, and in force until replaced."""

from typing import Any

import pytest

from tests.unit.model.shapes import assistant, call, reasoning, user
from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.item import Item, message
from turnledger.model.turn import Instructions, instructed_after, instructions_of

SYSTEM, DEVELOPER = message("system", "Be brief."), message("developer", "Be kind.")


def test_nothing_given_is_nothing() -> None:
    assert instructions_of(None) is None


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ("Be brief.", (SYSTEM,)),
        (DEVELOPER, (DEVELOPER,)),
        (
            {"role": "developer", "content": "Be kind."},
            (Item.of({"role": "developer", "content": "Be kind."}),),
        ),
        (["Be brief.", DEVELOPER], (SYSTEM, DEVELOPER)),
        ("", ()),
        (" \n", ()),
        ([], ()),
    ],
)
def test_they_are_made_of_texts_and_messages(given: Any, items: tuple[Item, ...]) -> None:
    assert instructions_of(given) == Instructions(items, is_lasting=True)
    assert instructions_of(None, given) == Instructions(items, is_lasting=False)


@pytest.mark.parametrize(
    "given", [user(), assistant(), call(), reasoning(), [SYSTEM, user()], {"role": "user"}]
)
def test_nothing_else_can_instruct(given: Any) -> None:
    with pytest.raises(MalformedItems):
        instructions_of(given)


def test_a_turn_has_one_kind() -> None:
    with pytest.raises(InvalidInput, match="not both"):
        instructions_of("Be brief.", "Be kind.")


@pytest.mark.parametrize(
    ("given", "after"),
    [
        (None, 3),
        (Instructions((SYSTEM,)), 7),
        (Instructions(()), 0),
        (Instructions((SYSTEM,), is_lasting=False), 3),
        (Instructions((), is_lasting=False), 3),
    ],
    ids=["none given", "lasting", "ended", "once", "none once"],
)
def test_the_last_lasting_ones_are_in_force(given: Instructions | None, after: int) -> None:
    assert instructed_after(given, 3, 7) == after
