"""Share links: the rights and expiry of their visitors, their code, and the visitor token."""

import re
from random import Random

import pytest

from tests.unit.model.shapes import some_id
from turnledger.model.access.share import (
    NONCE,
    READS,
    VISITOR_SCOPES,
    Share,
    ShareKind,
    is_code,
    new_code,
    visitors_token_text,
)
from turnledger.model.access.token import TokenScope, is_token_text, new_token_text
from turnledger.model.conversation import Within, link_of
from turnledger.model.ids import ConversationId, ShareId, TokenId

CHAT, TOKEN = some_id(ConversationId, 1), some_id(TokenId, 2)


def share(**changes: object) -> Share:
    fields = {"id": some_id(ShareId, 1), "owner": "ann", "chat_scope": "shop", "created_at": 1, "digest": b""}
    return Share(**{**fields, **changes})  # type: ignore[arg-type]


def test_scope_link_gives_its_visitor_an_owner_of_its_own() -> None:
    into_scope = share(models=("small",), parent=TOKEN)
    token = into_scope.token_for(TOKEN, b"d", 5)
    assert into_scope.kind is ShareKind.SCOPE
    assert token.owner == f"guest_{into_scope.id.removeprefix('share_')}_{TOKEN.removeprefix('tok_')}"
    assert link_of(token.owner) == into_scope.id
    assert [link_of(owner) for owner in ("ann", "guest_", f"{token.owner}0", "guest_x_y")] == [None] * 4
    assert (token.scopes, token.within, token.models) == (VISITOR_SCOPES, Within("shop"), ("small",))
    assert (token.share, token.parent, token.digest, token.created_at) == (into_scope.id, TOKEN, b"d", 5)
    assert TokenScope.ADMIN not in token.scopes


def test_chat_link_gives_its_visitor_read_access_to_one_chat() -> None:
    to_chat = share(conversation=CHAT, chat_scope="")
    token = to_chat.token_for(TOKEN, b"", 5)
    assert (to_chat.kind, token.owner, token.scopes) == (ShareKind.CHAT, "ann", READS)
    assert token.within == to_chat.within == Within(None, CHAT)


@pytest.mark.parametrize(
    ("link", "stay", "ends"),
    [(None, None, None), (100, None, 100), (None, 10, 15), (100, 10, 15), (12, 10, 12)],
)
def test_visitor_token_expires_no_later_than_the_link(
    link: int | None, stay: int | None, ends: int | None
) -> None:
    token = share(expires_at=link, visitor_lifetime=stay).token_for(TOKEN, b"", 5)
    assert token.expires_at == ends


def test_share_link_is_open_until_it_expires_is_revoked_or_used_up() -> None:
    assert share(expires_at=10, max_uses=2, uses=1).is_open(9)
    assert not share(expires_at=10).is_open(10)
    assert not share(revoked_at=3).is_open(9)
    assert not share(max_uses=2, uses=2).is_open(9)
    assert share(max_uses=2, uses=2).is_valid(9)


CODE = new_code(Random(1).getrandbits)
SHARE = some_id(ShareId, 1)


def test_share_code_has_a_shape_of_its_own_unlike_a_token() -> None:
    assert re.fullmatch(r"tls_[0-9A-Za-z]{39}", CODE)
    assert is_code(CODE)
    assert not is_token_text(CODE)
    assert not is_code(new_token_text(Random(1).getrandbits))
    assert not is_code(CODE[:-1])


def test_visitor_token_depends_on_code_nonce_and_link_only() -> None:
    text = visitors_token_text(CODE, "n", SHARE)
    assert is_token_text(text)
    assert visitors_token_text(CODE, "n", SHARE) == text
    others = {
        visitors_token_text(new_code(Random(2).getrandbits), "n", SHARE),
        visitors_token_text(CODE, "m", SHARE),
        visitors_token_text(CODE, "n", some_id(ShareId, 2)),
        visitors_token_text(CODE, "n", None),
    }
    assert len(others | {text}) == 5


def test_nonce_must_be_22_to_128_plain_characters() -> None:
    assert NONCE.fullmatch("aZ09_-" * 4)
    for other in ("a" * 21, "a" * 129, "a" * 30 + " ", "é" * 30):
        assert not NONCE.fullmatch(other)
