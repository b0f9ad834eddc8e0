"""The words that schemas are made of."""

from __future__ import annotations

import re

from turnledger.model.access.token import TokenScope
from turnledger.model.ids import IdSource, SystemEntropy, TokenId, TurnId
from turnledger.server.openapi.schemas import TEXT, an_object, id_of, one_of, or_null


def test_an_id_is_known_by_its_pattern() -> None:
    pattern = id_of(TurnId)["pattern"]
    ids = IdSource(lambda: 1_700_000_000_000, SystemEntropy())
    assert re.search(pattern, ids.new(TurnId))
    assert not re.search(pattern, ids.new(TokenId))
    assert not re.search(pattern, ids.new(TurnId) + "0")


def test_an_enumeration_lists_its_words() -> None:
    assert one_of(TokenScope)["enum"] == ["chats:read", "chats:write", "turns:run", "admin"]


def test_an_object_needs_all_but_the_optional() -> None:
    assert an_object({"a": TEXT}, optional={"b": or_null(TEXT)}) == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": TEXT, "b": {"anyOf": [TEXT, {"type": "null"}]}},
    }
