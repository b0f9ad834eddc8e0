"""The turn request: body, headers and validation of options."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from turnledger.client.core.turn_request import TurnOptions, check, idempotency_key_of, turn_request
from turnledger.errors import InvalidInput
from turnledger.model.item import Item
from turnledger.server.requests.turn import turn_request as understood


def request(options: TurnOptions | None = None, key: str = "k", **fields: Any) -> Any:
    return turn_request("demo", {"input": "Hello", **fields}, {"chat": "c"}, options or {}, key)


def test_turn_request_body_contains_items_byte_for_byte() -> None:
    item = Item(b'{"type": "message",  "role":"user","content":"Hi"}')
    assert item.raw in request(input=[item]).body


def test_turn_request_is_understood_by_the_server() -> None:
    options: TurnOptions = {"on_busy": "reject", "must_exist": True, "settings": {"temperature": 0}}
    sent = request(options, "käse/1")
    headers = [(name.encode(), value.encode()) for name, value in sent.headers.items()]
    received = understood("/api/turns", headers, sent.body)
    assert (received.idempotency_key, received.must_exist, received.policies.on_busy) == (
        "käse/1",
        True,
        "reject",
    )
    assert received.stream


@pytest.mark.parametrize("key", ["a b", "ünlich", "100%", "a\r\nx-evil: 1", "%41"])
def test_turn_request_quotes_any_text_as_idempotency_key(key: str) -> None:
    header = request(key=key).headers["idempotency-key"]
    assert header.isascii()
    assert "\n" not in header
    assert unquote(header) == key


def test_turn_request_without_an_idempotency_key_gets_a_unique_one() -> None:
    assert idempotency_key_of({}) != idempotency_key_of({})
    assert idempotency_key_of({"idempotency_key": "mine"}) == "mine"
    with pytest.raises(InvalidInput):
        idempotency_key_of({"idempotency_key": " "})


def test_turn_request_with_a_misspelt_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="one of interrupt, queue, reject, rollback"):
        check({"on_busy": "wait"})
    with pytest.raises(TypeError, match="on_bussy"):
        check({"on_bussy": "queue"})  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize("wrong", [object(), float, "\ud800"])
def test_turn_request_with_input_that_is_not_json_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot be sent as JSON"):
        request(input=[wrong])
