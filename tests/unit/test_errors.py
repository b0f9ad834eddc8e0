"""The error tree is the one that is drawn, and every error says something a person can use."""

import inspect
import re

import pytest

from tests.unit.model.shapes import some_id, turn
from turnledger import errors
from turnledger.errors import (
    MissingToolResults,
    ModelRefused,
    RevisionConflict,
    StorageFull,
    TurnAttached,
    TurnledgerError,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.ids import ConversationId, TurnId

CLASSES = [
    each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, TurnledgerError)
]
CONVERSATION = some_id(ConversationId, 1)
TURN = some_id(TurnId, 1)
ARGUMENTS = {
    MissingToolResults: [("a", "b")],
    ModelRefused: [400],
    RevisionConflict: [3],
    StorageFull: [1_000],
    TurnAttached: [TURN, CONVERSATION],
    TurnReplayed: [turn(), CONVERSATION],
}


def drawn_parents() -> dict[str, str | None]:
    """Class → parent, read from the drawing at the top of the module."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in inspect.getdoc(errors).splitlines():  # type: ignore[union-attr]
        found = re.match(r"(?P<bars>(?:[│ ] {3})*(?:[├└]── )?)(?P<name>[A-Z]\w+)(?: {2,}\S.*)?$", line)
        if found is None:
            continue
        depth = len(found["bars"]) // 4
        del path[depth:]
        parents[found["name"]] = path[-1] if path else None
        path.append(found["name"])
    return parents


def make(kind: type[TurnledgerError]) -> TurnledgerError:
    return kind(*ARGUMENTS.get(kind, []))


def test_the_tree_is_the_one_that_is_drawn() -> None:
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES}
    assert drawn_parents() == {**real, "TurnledgerError": None}
    assert all(len(kind.__bases__) == 1 for kind in CLASSES)


def test_the_classes_stand_in_the_order_of_the_drawing() -> None:
    drawn = list(drawn_parents())
    assert drawn == sorted(drawn, key=lambda name: inspect.getsourcelines(getattr(errors, name))[1])


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [vars(kind).get("code") for kind in CLASSES]
    assert None not in codes
    assert len(set(codes)) == len(CLASSES)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes if code)


@pytest.mark.parametrize("kind", CLASSES)
def test_the_code_follows_from_the_name(kind: type[TurnledgerError]) -> None:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    assert kind.code == ("error" if kind is TurnledgerError else name)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_a_message_a_person_can_use(kind: type[TurnledgerError]) -> None:
    assert vars(kind)["__doc__"]
    message = str(make(kind))
    assert message[0].isupper()
    assert message.endswith(".")
    assert "  " not in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind not in {*ARGUMENTS, TurnStopped}])
def test_a_message_of_ones_own_is_used(kind: type[TurnledgerError]) -> None:
    assert str(kind("Something else.")) == "Something else."


def test_errors_carry_what_they_are_about() -> None:
    committed = turn()
    assert MissingToolResults(("a", "b")).missing == ("a", "b")
    assert "calls a, b." in str(MissingToolResults(("a", "b")))
    assert "call a." in str(MissingToolResults(("a",)))
    assert RevisionConflict(3).current == 3
    assert "revision 3" in str(RevisionConflict(3))
    replay = TurnReplayed(committed, CONVERSATION)
    assert (replay.turn, replay.conversation) == (committed, CONVERSATION)
    attached = TurnAttached(TURN, CONVERSATION)
    assert (attached.turn, attached.conversation) == (TURN, CONVERSATION)
    assert TurnStopped(committed).turn is committed
    assert TurnStopped().turn is None


def test_a_refusal_tells_what_the_model_said() -> None:
    refused = ModelRefused(429, {"message": "Slow\n down.", "code": "rate_limit"}, 2.5)
    assert (refused.status, refused.error["code"], refused.retry_after) == (429, "rate_limit", 2.5)
    assert str(refused) == "The model refused the request with status 429: Slow down."
    assert str(ModelRefused(400)) == "The model refused the request with status 400."
    assert ModelRefused(400).error == {}


def test_a_stop_says_what_became_of_the_turn() -> None:
    assert "kept" in str(TurnStopped(turn()))
    assert "discarded" in str(TurnStopped())
