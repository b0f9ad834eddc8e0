"""Ids: derived and new ones, validation, text and bytes, and their order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable, some_id
from turnledger.errors import InvalidId, StoreCorrupt
from turnledger.model import codec
from turnledger.model.ids import (
    BranchId,
    ConversationId,
    Id,
    IdSource,
    LeaseId,
    SystemEntropy,
    TokenId,
    TurnId,
    derive_id,
    time_of,
)

TIMES = st.integers(0, 2**48 - 1)


@repeatable
@given(TIMES, st.text(), st.text())
def test_derived_id_is_deterministic_and_keeps_its_time(at: int, one: str, two: str) -> None:
    made = derive_id(TurnId, at, one, two)
    assert TurnId(made) == made == derive_id(TurnId, at, one, two)
    assert time_of(made) == at


def test_derived_ids_of_different_texts_kinds_or_times_differ() -> None:
    assert derive_id(TurnId, 1, "a", "b") != derive_id(TurnId, 1, "ab")
    assert derive_id(TurnId, 1, "a").raw != derive_id(BranchId, 1, "a").raw
    assert derive_id(ConversationId, 1, "a") != derive_id(ConversationId, 2, "a")


KINDS: list[type[Id]] = [ConversationId, BranchId, TurnId, LeaseId, TokenId]
HEX = "0190a1b2c3d47e5f8a6b7c8d9e0f1a2b"

BAD = {
    "other prefix": "conv_" + HEX,
    "no prefix": HEX,
    "prefix alone": "turn_",
    "empty": "",
    "version 4": "turn_" + HEX[:12] + "4" + HEX[13:],
    "other variant": "turn_" + HEX[:16] + "c" + HEX[17:],
    "upper case": "turn_" + HEX.upper(),
    "upper case prefix": "TURN_" + HEX,
    "too short": "turn_" + HEX[:-1],
    "too long": "turn_" + HEX + "0",
    "trailing newline": "turn_" + HEX + "\n",
    "leading blank": " turn_" + HEX,
    "with dashes": "turn_0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b",
    "digits of another script": "turn_" + HEX[:-1] + "٣",
}


class Named(codec.Document, frozen=True):
    id: TurnId


@st.composite
def uuid7_hex(draw: st.DrawFn) -> str:
    number = draw(st.integers(0, 2**128 - 1))
    number = number & ~(0xF << 76) | 7 << 76
    return f"{number & ~(3 << 62) | 2 << 62:032x}"


@pytest.mark.parametrize("kind", KINDS)
@repeatable
@given(text=uuid7_hex())
def test_id_survives_text_and_bytes(kind: type[Id], text: str) -> None:
    id = kind(kind.prefix + text)
    assert str(id) == id == kind.prefix + text
    assert len(id.raw) == 16
    assert id.raw.hex() == text
    assert kind.of_bytes(id.raw) == id
    assert type(kind.of_bytes(id.raw)) is kind
    assert hash(kind.of_bytes(id.raw)) == hash(id)


@repeatable
@given(uuid7_hex(), uuid7_hex())
def test_ids_sort_like_their_bytes(one: str, other: str) -> None:
    first, second = TurnId("turn_" + one), TurnId("turn_" + other)
    assert (first < second) == (first.raw < second.raw)


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_id_with_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidId, match="turn_…"):
        TurnId(text)


@pytest.mark.parametrize(
    "value", [*BAD.values(), 5, None, [], True], ids=[*BAD, *("5", "null", "[]", "true")]
)
def test_id_with_an_invalid_value_in_a_document_is_corrupt(value: Any) -> None:
    with pytest.raises(StoreCorrupt):
        codec.decode(Named, codec.encode(Named(id=value)))


def test_id_read_from_a_document_keeps_its_kind() -> None:
    id = some_id(TurnId, 1)
    found = codec.decode(Named, codec.encode(Named(id=id))).id
    assert found == id
    assert type(found) is TurnId


@pytest.mark.parametrize("raw", [b"", bytes(16), bytes(15), bytes(17)])
def test_id_with_invalid_bytes_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidId):
        TurnId.of_bytes(raw)


def test_invalid_id_error_shows_only_the_beginning_of_a_long_text() -> None:
    with pytest.raises(InvalidId) as caught:
        TurnId("x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("prefix", "name"), [("tlt_", "The text of a token"), ("tls_", "The code of a link")]
)
def test_invalid_id_error_does_not_repeat_a_secret(prefix: str, name: str) -> None:
    with pytest.raises(InvalidId, match=f"{name} is not an id") as refused:
        ConversationId(prefix + "7" * 38)
    assert "7" not in str(refused.value)


def test_id_of_another_kind_is_refused() -> None:
    for kind in KINDS:
        for other in KINDS:
            if kind is not other:
                with pytest.raises(InvalidId):
                    kind(some_id(other, 1))


@repeatable
@given(st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=30), st.integers())
def test_new_ids_rise_for_any_clock_readings(times: list[int], seed: int) -> None:
    clock = iter(times)
    source = IdSource(lambda: next(clock), Random(seed).getrandbits)
    ids = [source.new(KINDS[at % len(KINDS)]).raw for at in range(len(times))]
    assert ids == sorted(set(ids))


def test_new_ids_rise_while_the_clock_stands_still() -> None:
    source = IdSource(lambda: 1_700_000_000_000, Random(1).getrandbits)
    ids = [source.new(TurnId) for _ in range(1_000)]
    assert ids == sorted(set(ids))


def test_a_new_id_begins_with_the_time() -> None:
    id = IdSource(lambda: 0x0190A1B2C3D4, Random(1).getrandbits).new(TurnId)
    assert id.startswith("turn_0190a1b2c3d47")


def test_new_ids_of_the_same_clock_and_randomness_are_the_same() -> None:
    one, other = (IdSource(lambda: 5, Random(9).getrandbits) for _ in range(2))
    assert [one.new(TurnId) for _ in range(5)] == [other.new(TurnId) for _ in range(5)]


def test_system_entropy_returns_the_requested_bits_and_no_repeats() -> None:
    entropy = SystemEntropy(bulk=16)
    drawn = [entropy(74) for _ in range(200)]
    assert all(0 <= bits < 2**74 for bits in drawn)
    assert len(set(drawn)) == len(drawn)
    assert any(bits >= 2**73 for bits in drawn)
    assert entropy(1) in (0, 1)
