"""The codec: round trips, newer versions and damage."""

from __future__ import annotations

import contextlib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import any_items, call, repeatable, user
from turnledger.errors import StoreCorrupt, StoreTooNew
from turnledger.model import codec, event
from turnledger.model.event_log import LogChunk, WholeLog
from turnledger.model.item import Item, checked_items, raws, stored_items
from turnledger.model.job import JobBody
from turnledger.model.journal import JournalRecord
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.turn import AttemptBody, TurnBody

texts = st.text()
raw_items = st.builds(lambda item: msgspec.Raw(item.raw), any_items)
many = st.lists(raw_items, max_size=4).map(tuple)
numbers = st.integers(0, 2**40)


documents: st.SearchStrategy[codec.Document] = st.one_of(
    st.builds(TurnBody, input=numbers, items=many),
    st.builds(TurnBody, input=numbers, items=many, details=raw_items),
    st.builds(AttemptBody, input=many, partial=texts),
    st.builds(JournalRecord, item=raw_items),
    st.builds(JournalRecord, item=raw_items, emitted=st.booleans()),
    st.builds(LogChunk, log=st.binary(), text=texts, items=many),
    st.builds(JournalRecord, started=numbers, read_only=st.booleans()),
    st.builds(ResetPolicy, idle_after=st.none() | numbers, daily_at=st.none() | numbers, timezone=texts),
)


KINDS = [
    *(TurnBody, AttemptBody, JobBody, JournalRecord, LogChunk, WholeLog, ResetPolicy),
    *get_args(event.Event),
    event.Event,
]


def test_every_document_type_is_covered_by_these_tests() -> None:
    def below(kind: type) -> set[type]:
        return {each for sub in kind.__subclasses__() for each in {sub, *below(sub)}}

    found = {kind for kind in below(codec.Document) if kind.__module__.startswith("turnledger.model.")}
    ours = {kind for kind in found if not kind.__name__.startswith("_")}  # others only read a part of one
    assert ours == set(KINDS) - {event.Event}


@repeatable
@given(documents)
def test_document_of_every_type_survives_a_round_trip(document: codec.Document) -> None:
    written = codec.encode(document)
    found = codec.decode(type(document), written)
    assert codec.encode(found) == written
    assert msgspec.json.decode(written)["v"] == codec.VERSION
    assert type(found) is type(document)


@repeatable
@given(st.lists(any_items, max_size=6))
def test_items_survive_a_document_byte_for_byte(items: list[Item]) -> None:
    body = codec.decode(TurnBody, codec.encode(TurnBody(input=0, items=raws(items))))
    found = stored_items(body.items)
    assert [each.raw for each in found] == [each.raw for each in items]


def test_item_with_surrounding_white_space_survives_a_document() -> None:
    spaced = Item(b' {"type":"note"}\n')
    body = codec.decode(TurnBody, codec.encode(TurnBody(input=0, items=raws([spaced]))))
    assert stored_items(body.items) == (spaced,)


@repeatable
@given(documents, st.integers(codec.VERSION + 1, 10**30))
def test_document_of_a_newer_version_is_refused(document: codec.Document, version: int) -> None:
    fields = msgspec.json.decode(codec.encode(document))
    with pytest.raises(StoreTooNew, match=str(version)):
        codec.decode(type(document), msgspec.json.encode({**fields, "v": version}))


@pytest.mark.parametrize("kind", KINDS)
def test_document_of_a_newer_version_and_shape_is_refused_as_newer(kind: Any) -> None:
    with pytest.raises(StoreTooNew):
        codec.decode_one_of(kind, b'{"v":2,"type":"turn.paused","input":{"all":"different"}}')


@pytest.mark.parametrize("kind", KINDS)
def test_document_of_garbage_is_corrupt(kind: Any) -> None:
    for raw in (b"", b"\0", b"\xff\xfe", b"null", b"[]", b"5", b'"text"', b"{", b'{"v":"1"}', b'{"v":1.5}'):
        with pytest.raises(StoreCorrupt):
            codec.decode_one_of(kind, raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"v":1,"input":"0","items":[]}',
        b'{"v":1,"input":0,"items":{}}',
        b'{"v":1,"input":0,"items":[{]}',
        b'{"v":1,"input":0,"items":[]} trailing',
        b'{"v":1,"input":0,"items":["\xff"',
        b'{"v":1,"items":[]}',
        b'{"v":0,"input":0,"items":[]}',
        b'{"v":-1,"input":0,"items":[]}',
        b'{"v":1,"input":' + b"[" * 100_000,
    ],
)
def test_document_of_a_wrong_shape_is_corrupt(raw: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        codec.decode(TurnBody, raw)


@repeatable
@given(st.binary(max_size=40))
def test_document_of_random_bytes_is_refused(raw: bytes) -> None:
    with pytest.raises((StoreCorrupt, StoreTooNew)):
        codec.decode(TurnBody, raw)


@repeatable
@given(st.data())
def test_document_with_a_changed_or_missing_byte_raises_only_store_errors(data: st.DataObject) -> None:
    written = bytearray(codec.encode(TurnBody(input=1, items=raws((user("ünï"), call())))))
    at = data.draw(st.integers(0, len(written) - 1))
    if data.draw(st.booleans()):
        del written[at:]
    else:
        written[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(StoreCorrupt, StoreTooNew):
        codec.decode(TurnBody, bytes(written))


def test_stored_item_that_is_invalid_is_corrupt() -> None:
    raws = codec.decode(TurnBody, b'{"v":1,"input":0,"items":[5]}').items
    with pytest.raises(StoreCorrupt):
        checked_items(raws)
    [item] = stored_items(raws)
    with pytest.raises(StoreCorrupt):
        _ = item.role
    with pytest.raises(AttributeError):
        _ = item.rule


def test_unknown_fields_of_a_document_are_ignored() -> None:
    assert codec.decode(AttemptBody, b'{"v":1,"input":[],"later":true}') == AttemptBody(input=())


def test_item_in_a_document_is_written_as_its_json() -> None:
    class Holder(codec.Document, frozen=True):
        item: Any

    given = Item(b'{"type": "note",  "n": 1.0}')
    assert codec.encode(Holder(item=given)) == b'{"item":{"type": "note",  "n": 1.0},"v":1}'
