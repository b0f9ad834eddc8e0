"""What commands print for programs has the names that HTTP has for it."""

from __future__ import annotations

import pytest

from turnledger.cli import told
from turnledger.server.routes import chats, deleting, search, tokens


@pytest.mark.parametrize(
    ("shape", "schema", "left_out"),
    [
        (told.ChatTold, chats.CHAT_INFO, ()),
        (told.ListedChat, chats.LISTED_CHAT, ()),
        (told.ChatShown, chats.CHAT, ("attempts",)),
        (told.TurnTold, chats.TURN, ("hidden",)),  # what is hidden is not in a turn that is told
        (told.HitTold, search.HIT, ()),
        (told.HitPage, search.HITS, ()),
        (told.DeletedChat, deleting.DELETED, ()),
        (told.RestoredChat, deleting.RESTORED, ()),
        (told.TokenTold, tokens.TOKEN, ()),
        (told.TokenMade, tokens.MADE, ()),
        (told.Tokens, tokens.TOKENS, ()),
    ],
)
def test_names_are_those_of_http(
    shape: type, schema: dict[str, dict[str, object]], left_out: tuple[str, ...]
) -> None:
    names = shape.__struct_fields__  # type: ignore[attr-defined]
    assert set(names) == set(schema["properties"]) - set(left_out)
