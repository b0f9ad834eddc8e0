"""API shapes as JSON: the server sends every field, and a client accepts answers that omit defaults."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from tests.unit.client.script import BRANCH, CHAT, TURN
from tests.unit.model.shapes import conversation
from tests.unit.model.shapes import turn as stored_turn
from turnledger.api.access import NewShare, NewToken, OwnToken, Share, Token
from turnledger.api.chats import ChatInfo, ChatList, Hit, ListedChat, Page, RestoredChat, SearchPage
from turnledger.api.events import Change
from turnledger.api.json import decode, encode
from turnledger.api.turns import ShownChat, StopAnswer, Turn
from turnledger.api.views import show_change, show_chat, show_turn
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.flags import HiddenItems
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item, message

ANSWER = b'{"type":"message",  "role":"assistant","content":[{"type":"output_text","text":"Hi"}]}'
CONVERSATION = conversation(id=ConversationId(CHAT), branch=BranchId(BRANCH))


def test_items_are_encoded_and_decoded_byte_for_byte() -> None:
    turn = stored_turn(input=(message("user", "Hello"),), output=(Item(ANSWER),), details=b'{"model":"m"}')
    sent = encode(show_turn(turn, HiddenItems((0,))))
    assert ANSWER in sent
    read = decode(Turn, sent)
    assert read.output[0].raw == ANSWER
    assert read.output is read.output
    assert (read.text, read.input[0].text, read.hidden, read.details) == ("Hi", "Hello", (0,), {"model": "m"})


@pytest.mark.parametrize("shape", [ChatInfo, ListedChat, RestoredChat, ShownChat])
def test_chat_decodes_with_unknown_and_missing_fields(shape: type[ChatInfo]) -> None:
    chat = decode(shape, b'{"id":"%s","branch":"%s","color":"red"}' % (CHAT.encode(), BRANCH.encode()))
    assert isinstance(chat.id, ConversationId)
    assert (chat.title, chat.tags, chat.preview, chat.snippet, chat.marks) == (None, (), "", "", ())


def test_chat_shape_leaves_list_fields_at_their_defaults() -> None:
    chat = show_chat(ChatInfo, CONVERSATION)
    assert (chat.turn_count, chat.is_running, chat.former_conversation_key) == (None, False, None)
    listed = show_chat(ListedChat, CONVERSATION, turn_count=3, preview="so", is_running=True)
    assert (listed.turn_count, listed.preview, listed.is_running) == (3, "so", True)
    assert set(fields(listed)) - set(fields(chat)) == {"turn_count", "preview", "is_running"}


def test_empty_scope_is_sent_as_null() -> None:
    assert fields(show_chat(ChatInfo, CONVERSATION))["scope"] is None


def test_page_fields_default_when_absent() -> None:
    page: Page[int] = Page((1, 2))
    assert (list(page), len(page), page.next, page.as_of, page.complete) == ([1, 2], 2, None, None, True)
    assert ChatList((), None, "now").as_of == "now"
    found: SearchPage[Hit] = SearchPage((), None, False)
    assert not found.complete


def test_secrets_are_encoded_but_hidden_from_repr() -> None:
    token = NewToken(id="t", token="tlt_1")  # type: ignore[arg-type]
    share = NewShare(id="s", code="tls_1", path="/share#tls_1")  # type: ignore[arg-type]
    assert "tlt_1" not in f"{token} {token!r}"
    assert "tls_1" not in f"{share} {share!r}"
    assert fields(token)["token"] == "tlt_1"
    assert fields(share)["code"] == "tls_1"


def test_listed_tokens_and_shares_have_no_secret() -> None:
    token, share = Token(id="t"), Share(id="s")  # type: ignore[arg-type]
    assert (token.token, token.keeps, share.code, share.path) == (None, None, None, None)
    own = OwnToken(id="t", keeps=False)  # type: ignore[arg-type]
    assert own.keeps is False


def test_stop_answer_without_a_turn_has_null_fields() -> None:
    assert fields(StopAnswer(state=None)) == {
        "turn": None,
        "state": None,
        "committed": False,
        "failure": None,
    }


OF_CHAT = {"conversation": ConversationId(CHAT), "branch": BranchId(BRANCH)}
SENT = {"at": 5, "chat": CHAT, "branch": BRANCH}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": ChangeKind.START}, {"type": "start", "at": 5}),
        (
            {**OF_CHAT, "kind": ChangeKind.TURN_COMMITTED, "turn": TurnId(TURN), "detail": "completed"},
            {**SENT, "type": "turn.committed", "scope": None, "turn": TURN, "outcome": "completed"},
        ),
        (
            {**OF_CHAT, "kind": ChangeKind.CHAT_CHANGED, "scope": "app", "chat": CONVERSATION},
            {
                **SENT,
                "type": "chat.changed",
                "scope": "app",
                "title": None,
                "metadata": {},
                "tags": [],
                "pinned": False,
                "archived": False,
                "revision": 1,
            },
        ),
    ],
    ids=["of the stream", "of a turn", "of a chat"],
)
def test_change_omits_fields_that_do_not_apply(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    sent = encode(show_change(LiveChange(owner="ann", at=5, **fields)))
    assert msgspec.json.decode(sent) == expected
    read = decode(Change, sent)
    assert (read.type, read.position, read.code) == (expected["type"], "", None)


def fields(answer: msgspec.Struct) -> dict[str, Any]:
    """An answer as a client sees it."""
    decoded: dict[str, Any] = msgspec.json.decode(encode(answer))
    return decoded


QUESTION = b'{"type":"message",  "role":"user","content":"Hi"}'


def test_ids_items_and_mappings_are_encoded() -> None:
    answer = {"id": ConversationId(CHAT), "items": [Item(QUESTION)], "map": MappingProxyType({"a": 1})}
    assert encode(answer) == b'{"id":"%s","items":[%s],"map":{"a":1}}' % (CHAT.encode(), QUESTION)


def test_encoding_a_value_without_json_form_raises() -> None:
    with pytest.raises(NotImplementedError):
        encode({"a": object()})


def test_ids_are_checked_when_decoded() -> None:
    raw = b'{"id":"%s","branch":"%s"}'
    assert isinstance(decode(ChatInfo, raw % (CHAT.encode(), BRANCH.encode())).id, ConversationId)
    with pytest.raises(msgspec.ValidationError, match="is not an id"):
        decode(ChatInfo, raw % (b"conv_1", BRANCH.encode()))
    with pytest.raises(msgspec.ValidationError, match="ConversationId is a text"):
        decode(ChatInfo, b'{"id":5}')
