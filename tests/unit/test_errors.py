"""The error tree matches its drawing; each error has a code and a usable message."""

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


def test_error_tree_matches_the_drawing() -> None:
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES}
    assert drawn_parents() == {**real, "TurnledgerError": None}
    assert all(len(kind.__bases__) == 1 for kind in CLASSES)


def test_error_classes_are_defined_in_the_order_of_the_drawing() -> None:
    drawn = list(drawn_parents())
    assert drawn == sorted(drawn, key=lambda name: inspect.getsourcelines(getattr(errors, name))[1])


@pytest.mark.parametrize("kind", CLASSES)
def test_error_code_is_the_class_name_in_snake_case(kind: type[TurnledgerError]) -> None:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    assert kind.code == ("error" if kind is TurnledgerError else name)


@pytest.mark.parametrize("kind", CLASSES)
def test_default_error_message_is_one_sentence(kind: type[TurnledgerError]) -> None:
    assert vars(kind)["__doc__"]
    message = str(make(kind))
    assert message[0].isupper()
    assert message.endswith(".")
    assert "  " not in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind not in {*ARGUMENTS, TurnStopped}])
def test_error_with_a_custom_message_uses_it(kind: type[TurnledgerError]) -> None:
    assert str(kind("Something else.")) == "Something else."


def test_errors_carry_the_objects_they_are_about() -> None:
    committed = turn()
    assert MissingToolResults(("a", "b")).missing == ("a", "b")
    assert "calls a, b." in str(MissingToolResults(("a", "b")))
    assert "call a." in str(MissingToolResults(("a",)))
    many = MissingToolResults(("a" * 1_000,) * 1_000)
    assert len(many.missing) == 1_000
    assert len(str(many)) < 1_000
    assert RevisionConflict(3).current == 3
    assert "revision 3" in str(RevisionConflict(3))
    replay = TurnReplayed(committed, CONVERSATION)
    assert (replay.turn, replay.conversation) == (committed, CONVERSATION)
    attached = TurnAttached(TURN, CONVERSATION)
    assert (attached.turn, attached.conversation) == (TURN, CONVERSATION)
    assert TurnStopped(committed).turn is committed
    assert TurnStopped().turn is None


def test_model_refused_message_includes_status_and_the_models_message() -> None:
    refused = ModelRefused(429, {"message": "Slow\n down.", "code": "rate_limit"}, 2.5)
    assert (refused.status, refused.error["code"], refused.retry_after) == (429, "rate_limit", 2.5)
    assert str(refused) == "The model refused the request with status 429: Slow down."
    assert str(ModelRefused(400)) == (
        "The model refused the request with status 400. Change the request or the model."
    )
    assert str(ModelRefused(429)) == "The model refused the request with status 429. Try again later."
    assert ModelRefused(400).error == {}


def test_turn_stopped_message_reports_whether_the_turn_was_kept() -> None:
    assert "kept" in str(TurnStopped(turn()))
    assert "discarded" in str(TurnStopped())


def test_idempotency_mismatch_names_the_differences_and_the_remedy_briefly() -> None:
    message = str(errors.IdempotencyMismatch())
    assert "another request (conversation, messages or parameters)" in message
    assert "unchanged, or use a new key" in message
    assert len(message.split()) < 20
