"""The headers of a turn: what each request understands, and that it refuses the rest by name."""

from __future__ import annotations

import pytest

from turnledger.errors import InvalidInput
from turnledger.model.turn import OnBusy
from turnledger.server.requests.turn import (
    KEY,
    NO_POLICIES,
    OF_MAKING,
    OF_MOVES,
    OF_TURNS,
    asks_not_to_keep,
    count_of,
    must_exist,
    named_among,
    named_in,
    policies_of,
    text_of,
)


def test_only_what_is_known_is_looked_at() -> None:
    assert named_in([(b"accept", b"*/*"), (b"idempotency-key", b"a"), (b"x-other", b"b")]) == {KEY: b"a"}


def test_what_is_said_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="idempotency-key: given more than once"):
        named_in([(b"idempotency-key", b"a"), (b"idempotency-key", b"a")])


@pytest.mark.parametrize(
    ("taken", "refused"),
    [
        (OF_MAKING, b"x-turn-on-busy"),
        (OF_MOVES, b"x-turn-on-stop"),
        (OF_MOVES, b"x-conversation-id"),
        (OF_TURNS, b"x-conversation-id"),
        (OF_TURNS, b"x-conversation-keep"),
        (OF_TURNS, b"x-turn-on-divergence"),
    ],
)
def test_what_a_request_does_not_understand_is_refused_by_name(
    taken: frozenset[bytes], refused: bytes
) -> None:
    with pytest.raises(InvalidInput, match=refused.decode()):
        named_among([(refused, b"no"), (b"idempotency-key", b"a")], taken)
    # Clients send this one by themselves.
    assert KEY in named_among([(b"x-stainless-retry-count", b"0"), (b"idempotency-key", b"a")], taken)


def test_what_they_say() -> None:
    named = {b"x-turn-on-busy": b"reject", KEY: b"%C3%A4", b"x-conversation-expect": b"continued"}
    assert policies_of(named).on_busy is OnBusy.REJECT
    assert text_of(named, KEY) == "ä"
    assert must_exist(named)
    assert not asks_not_to_keep(named)
    assert (policies_of({}), text_of({}, KEY), must_exist({}), count_of({})) == (
        NO_POLICIES,
        None,
        False,
        None,
    )


@pytest.mark.parametrize("name", ["x-conversation-expect", "x-conversation-keep", "x-turn-on-busy"])
def test_another_value_is_refused_with_those_there_are(name: str) -> None:
    named = {name.encode(): b"maybe"}
    with pytest.raises(InvalidInput, match=name):
        (must_exist(named), asks_not_to_keep(named), policies_of(named))
