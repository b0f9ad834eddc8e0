"""What commands print for programs has the names that HTTP has for it."""

from __future__ import annotations

import pytest

from turnledger.cli.output import json
from turnledger.server.routes import deletion, search, tokens
from turnledger.server.wire import shapes


@pytest.mark.parametrize(
    ("shape", "schema", "left_out"),
    [
        (json.ChatTold, shapes.CHAT_INFO, ()),
        (json.ListedChat, shapes.LISTED_CHAT, ()),
        (json.ChatShown, shapes.CHAT, ("attempts",)),
        (json.TurnTold, shapes.TURN, ("hidden",)),  # what is hidden is not in a turn that is told
        (json.HitTold, search.HIT, ()),
        (json.HitPage, search.HITS, ()),
        (json.DeletedChat, deletion.DELETED, ()),
        (json.RestoredChat, deletion.RESTORED, ()),
        (json.TokenTold, tokens.TOKEN, ()),
        (json.TokenMade, tokens.MADE, ()),
        (json.TokenList, tokens.TOKENS, ()),
    ],
)
def test_names_are_those_of_http(
    shape: type, schema: dict[str, dict[str, object]], left_out: tuple[str, ...]
) -> None:
    names = shape.__struct_fields__  # type: ignore[attr-defined]
    assert set(names) == set(schema["properties"]) - set(left_out)
