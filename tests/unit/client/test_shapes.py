"""What a server tells becomes values: ids are valid, items as they were given, secrets not shown."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.client.scripted import BRANCH, CHAT, INFO, TURN
from turnledger.client.shapes import (
    Answer,
    Attempt,
    Branch,
    Change,
    ChatInfo,
    Deleted,
    Hit,
    Page,
    Share,
    Sibling,
    Token,
    Turn,
    TurnState,
    decoded,
    encoded,
)
from turnledger.errors import RequestFailed
from turnledger.model.ids import BranchId, ConversationId
from turnledger.model.item import Item
from turnledger.server.routes import branches, catalogue, deletion, search, shares, tokens, turns
from turnledger.server.wire import shapes

SAID = b'{"type":"message",  "role":"assistant","content":[{"type":"output_text","text":"Hi"}]}'


def test_items_are_kept_as_they_were_given() -> None:
    raw = b'{"id":"%s","number":1,"kind":"completed","input":[],"output":[%s]}' % (TURN.encode(), SAID)
    turn = decoded(Turn, raw)
    assert turn.output[0].raw == SAID
    assert turn.output is turn.output
    assert (turn.text, turn.input) == ("Hi", ())
    info = decoded(ChatInfo, msgspec.json.encode(INFO))
    assert Answer(turn=turn, chat=info, branch=BranchId(BRANCH)).text == "Hi"


def test_ids_are_validated() -> None:
    assert isinstance(decoded(ChatInfo, msgspec.json.encode(INFO)).id, ConversationId)
    with pytest.raises(RequestFailed, match="not a valid id"):
        decoded(ChatInfo, b'{"id":"conv_1"}')


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"id":5}', b"[" * 5000])
def test_what_makes_no_sense_is_told_so(raw: bytes) -> None:
    with pytest.raises(RequestFailed, match="understands"):
        decoded(ChatInfo, raw)


def test_what_is_said_is_encoded() -> None:
    item = Item(SAID)
    assert encoded({"id": ConversationId(CHAT), "items": [item]}) == b'{"id":"%s","items":[%s]}' % (
        CHAT.encode(),
        SAID,
    )


def test_secrets_are_not_shown() -> None:
    token = Token(id="t", token="tlt_1")  # type: ignore[arg-type]
    share = Share(id="s", code="tls_1", path="/share#tls_1")  # type: ignore[arg-type]
    assert "tlt_1" not in f"{token} {token!r}"
    assert "tls_1" not in f"{share} {share!r}"


@pytest.mark.parametrize(
    ("shape", "schema"),
    [
        (ChatInfo, shapes.LISTED_CHAT),
        (ChatInfo, deletion.RESTORED),
        (Turn, shapes.TURN),
        (Attempt, shapes.ATTEMPT),
        (Page, catalogue.CHATS),
        (Hit, search.HIT),
        (Page, search.HITS),
        (Branch, branches.BRANCH),
        (Sibling, branches.SIBLING),
        (Deleted, deletion.DELETED),
        (Token, tokens.MADE),
        (Share, shares.MADE),
        (TurnState, turns.STANDING),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_everything_that_the_server_documents_is_known_here(shape: type, schema: dict[str, object]) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(shape)}
    assert set(schema["properties"]) <= known  # type: ignore[call-overload]


def test_a_page_is_read_like_a_list() -> None:
    page = Page((1, 2))
    assert (list(page), len(page)) == ([1, 2], 2)


def test_a_change_has_what_any_of_them_tells() -> None:
    raw = {
        "type": "turn.committed",
        "at": 1,
        "chat": CHAT,
        "turn": TURN,
        "branch": BRANCH,
        "outcome": "completed",
    }
    change = decoded(Change, msgspec.json.encode(raw))
    assert (change.type, change.chat, change.outcome) == ("turn.committed", CHAT, "completed")
