"""Events are told apart by their tag and come back as they were."""

import msgspec
import pytest

from tests.unit.model.shapes import call
from turnledger.errors import StoreCorrupt, StoreTooNew
from turnledger.model import codec, event
from turnledger.model.event import Event, ItemDone, TextDelta, TurnFinished, TurnStarted
from turnledger.model.turn import AttemptState, Failure

EVENTS: list[tuple[Event, str]] = [
    (TurnStarted(number=1), "turn.started"),
    (TextDelta(number=2, text="ünï\n"), "text.delta"),
    (ItemDone(number=3, item=msgspec.Raw(call().raw)), "item.done"),
    (TurnFinished(number=4, state=AttemptState.COMPLETED), "turn.finished"),
    (TurnFinished(number=4, state=AttemptState.FAILED, failure=Failure("boom", "it broke")), "turn.finished"),
]


@pytest.mark.parametrize(("given", "tag"), EVENTS)
def test_an_event_comes_back_by_its_tag(given: Event, tag: str) -> None:
    written = codec.encode(given)
    found = event.decode(written)
    assert type(found) is type(given)
    assert codec.encode(found) == written
    assert msgspec.json.decode(written)["type"] == tag


def test_the_item_of_an_event_is_its_json() -> None:
    found = event.decode(codec.encode(EVENTS[2][0]))
    assert isinstance(found, ItemDone)
    assert bytes(found.item) == call().raw


@pytest.mark.parametrize(
    "raw",
    [b"{}", b'{"v":1,"number":1}', b'{"type":"no.such","v":1,"number":1}', b'{"type":"turn.started","v":1}'],
)
def test_what_is_no_event_is_damage(raw: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        event.decode(raw)


@pytest.mark.parametrize("tag", ["turn.started", "turn.paused"])
def test_an_event_of_a_newer_version_is_refused(tag: str) -> None:
    with pytest.raises(StoreTooNew):
        event.decode(b'{"type":"%s","v":2,"number":1}' % tag.encode())
