"""Secrets are asked for once, and never shown by accident."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.client.scripted import CHAT, CUT, Script, told
from turnledger import errors
from turnledger.client.core.access import AccessCore
from turnledger.client.core.client import ClientCore

TOKEN_ID = "tok_01890000000070008000000000000005"
SHARE_ID = "share_01890000000070008000000000000006"
TOKEN = {"id": TOKEN_ID, "owner": "me", "scopes": ["chats:read"], "name": "mine"}
SHARE = {"id": SHARE_ID, "kind": "chat", "chat": CHAT}
NOTHING: dict[str, Any] = {
    "owner": None,
    "name": "",
    "chat_scope": None,
    "chat": None,
    "models": None,
    "expires_in": None,
    "max_tokens": None,
    "n": None,
}


def access(script: Script) -> AccessCore:
    return AccessCore(ClientCore(None, script.retries, script.pacing))


def test_a_token_is_made() -> None:
    script = Script(told({**TOKEN, "token": "tlt_secret"}, 201))
    made = script.play(access(script).create_token(scopes=["chats:read"], **{**NOTHING, "chat": CHAT}))
    assert (made.id, made.token) == (TOKEN_ID, "tlt_secret")
    assert "secret" not in repr(made)
    assert msgspec.json.decode(script.asked[0].body or b"") == {
        "scopes": ["chats:read"],
        "name": "",
        "chat": CHAT,
    }


def test_a_secret_that_may_have_been_made_is_not_asked_for_again() -> None:
    script = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match=r"its secret was lost.*revoke it"):
        script.play(access(script).create_token(scopes=["chats:read"], **NOTHING))
    share = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match="its secret was lost"):
        made = {"scope": None, "chat": CHAT, "name": "", "max_uses": None, "expires_in": None, "models": None}
        share.play(access(share).create_share(**made))


def test_pages_go_on_behind_the_last_one() -> None:
    script = Script(told({"data": [TOKEN]}), told({"data": [SHARE]}), told({"data": []}))
    assert script.play(access(script).tokens_page(None, 1, owner="me")).next == TOKEN_ID
    assert script.play(access(script).shares_page(None, 2)).next is None
    assert script.play(access(script).tokens_page(TOKEN_ID, 1, owner=None)).next is None
    assert [dict(each.query) for each in script.asked] == [
        {"owner": "me", "limit": "1"},
        {"limit": "2"},
        {"before": TOKEN_ID, "limit": "1"},
    ]


def test_who_asks() -> None:
    script = Script(told({**TOKEN, "keeps": True}), told({"id": None, "owner": "local", "scopes": []}))
    own = script.play(access(script).own_token(scope="shop"))
    assert own is not None
    assert (own.owner, own.keeps) == ("me", True)
    assert dict(script.asked[-1].query) == {"scope": "shop"}
    assert script.play(access(script).own_token()) is None


def test_revoking_may_be_repeated() -> None:
    script = Script(CUT, told({"data": [TOKEN]}), told(SHARE), told({"data": []}))
    assert [token.id for token in script.play(access(script).revoke_token(TOKEN_ID))] == [TOKEN_ID]
    assert script.play(access(script).revoke_share(SHARE_ID)).id == SHARE_ID
    script.play(access(script).revoke_token("self"))
    assert script.asked[-1].path == "/api/tokens/self"
    with pytest.raises(errors.InvalidId, match="The text of a token"):
        script.play(access(script).revoke_token("tlt_secret"))
