"""Operations of the client: one request each, pages fetched on demand, secrets returned once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.client.script import CHAT, CUT, INFO, Script, error_reply, reply
from turnledger import errors
from turnledger.api.chats import SearchPage
from turnledger.client import AsyncPages, Page, Pages
from turnledger.client.core.access import AccessCore
from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore
from turnledger.client.core.steps import Steps
from turnledger.errors import InvalidInput


def core(script: Script, model: str | None = None) -> ClientCore:
    return ClientCore(model, script.retries, script.pacing)


def query(script: Script) -> dict[str, str]:
    return dict(script.received[-1].query)


def models(*names: str) -> Any:
    return reply({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def test_find_looks_up_a_chat_by_conversation_key_and_scope() -> None:
    script = Script(reply({"data": [INFO], "next": None}), reply({"data": [], "next": None}))
    client = core(script)
    found = script.play(client.find("key", None))
    assert found is not None
    assert query(script) == {"conversation_key": "key", "scope": ""}
    assert script.play(client.find("key", "support")) is None
    assert query(script) == {"conversation_key": "key", "scope": "support"}


def test_reset_with_an_invalid_chat_id_is_refused_before_sending() -> None:
    script = Script(reply(INFO))
    with pytest.raises(errors.InvalidId):
        script.play(core(script).reset("key", replaces="conv_1"))
    assert script.received == []
    script.play(core(script).reset("key", replaces=CHAT, scope="support"))
    body = msgspec.json.decode(script.received[0].body or b"")
    assert body == {"conversation_key": "key", "replaces": CHAT, "scope": "support"}


def test_unknown_answer_fields_are_ignored() -> None:
    script = Script(reply({**INFO, "mood": "good"}))
    assert script.play(core(script).create()).title == "A chat"


def test_unreadable_answer_raises_with_a_version_hint() -> None:
    script = Script(reply({"data": [INFO], "next": None}))  # chats where hits should be
    with pytest.raises(errors.RequestFailed, match="versions of client and server"):
        script.play(core(script).search_page(None, 5, q="", scope=None))


def test_model_is_taken_from_the_call_before_the_client() -> None:
    script = Script()
    assert script.play(core(script, "mine").model_for({"model": "other"})) == "other"
    assert script.play(core(script, "mine").model_for({})) == "mine"


def test_model_is_looked_up_once_if_the_server_has_only_one() -> None:
    script = Script(models("demo"))
    client = core(script)
    assert [script.play(client.model_for({})) for _ in range(2)] == ["demo", "demo"]
    assert len(script.received) == 1


def test_model_must_be_named_if_the_server_has_several() -> None:
    with pytest.raises(errors.InvalidInput, match="fast, smart"):
        (script := Script(models("fast", "smart"))).play(core(script).model_for({}))


def test_model_lookup_is_retried() -> None:
    script = Script(CUT, error_reply(503, "shutting_down"), models("demo"))
    assert [model.id for model in script.play(core(script).models())] == ["demo"]


def test_text_that_is_not_valid_utf8_is_refused_before_sending() -> None:
    """Half of a pair of UTF-16: it comes from JavaScript, or from names of files."""
    script = Script()
    core = ClientCore("demo", script.retries, script.pacing)
    with pytest.raises(errors.InvalidInput, match="UTF-8"):
        script.play(core.search_page(None, 5, q="\ud800", scope=None))
    with pytest.raises(errors.InvalidInput, match="UTF-8"):
        ChatCore(core, CHAT).send("Hi", {"idempotency_key": "\ud800"})


class Shelf:
    """A hundred and twenty numbers in pages, and the requests for them."""

    def __init__(self) -> None:
        self.received: list[tuple[str | None, int]] = []

    def read_page(self, cursor: str | None, limit: int) -> Steps[Page[int]]:
        yield from ()
        self.received.append((cursor, limit))
        first = int(cursor or 0)
        numbers = tuple(range(first, min(first + limit, 120)))
        return SearchPage(numbers, str(first + limit) if first + limit < 120 else None, False)


def run(doing: Steps[Any]) -> Any:
    try:
        next(doing)
    except StopIteration as end:
        return end.value
    raise AssertionError


async def run_awaited(doing: Steps[Any]) -> Any:
    return run(doing)


def test_pages_iterate_over_all_entries() -> None:
    shelf = Shelf()
    assert list(Pages(run, shelf.read_page)) == list(range(120))
    assert shelf.received == [(None, 50), ("50", 50), ("100", 50)]


def test_pages_are_fetched_only_when_needed() -> None:
    shelf = Shelf()
    entries = iter(Pages(run, shelf.read_page))
    assert shelf.received == []
    assert [next(entries) for _ in range(50)] == list(range(50))
    assert len(shelf.received) == 1


@pytest.mark.parametrize(("limit", "limits"), [(3, [3]), (50, [50]), (60, [50, 10]), (500, [50, 50, 50])])
def test_pages_stop_at_the_limit(limit: int, limits: list[int]) -> None:
    shelf = Shelf()
    assert list(Pages(run, shelf.read_page, limit)) == list(range(min(limit, 120)))
    assert [each for _, each in shelf.received] == limits


def test_pages_can_be_iterated_again_and_page_by_page() -> None:
    pages = Pages(run, Shelf().read_page, 60)
    assert [len(page) for page in pages.pages()] == [50, 10]
    assert [page.complete for page in pages.pages()] == [False, False]


async def test_async_pages_iterate_over_entries_and_pages() -> None:
    pages = AsyncPages(run_awaited, Shelf().read_page, 60)
    assert [entry async for entry in pages] == list(range(60))
    assert [len(page) async for page in pages.pages()] == [50, 10]


@pytest.mark.parametrize("limit", [0, -1])
def test_pages_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(InvalidInput):
        Pages(run, Shelf().read_page, limit)


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


def test_create_token_returns_a_secret_hidden_from_repr() -> None:
    script = Script(reply({**TOKEN, "token": "tlt_secret"}, 201))
    made = script.play(access(script).create_token(scopes=["chats:read"], **{**NOTHING, "chat": CHAT}))
    assert (made.id, made.token) == (TOKEN_ID, "tlt_secret")
    assert "secret" not in repr(made)
    assert msgspec.json.decode(script.received[0].body or b"") == {
        "scopes": ["chats:read"],
        "name": "",
        "chat": CHAT,
    }


def test_create_token_or_share_whose_answer_was_lost_is_not_retried() -> None:
    script = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match=r"its secret lost.*revoke it"):
        script.play(access(script).create_token(scopes=["chats:read"], **NOTHING))
    share = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match="its secret lost"):
        made = {"scope": None, "chat": CHAT, "name": "", "max_uses": None, "expires_in": None, "models": None}
        share.play(access(share).create_share(**made))


def test_token_and_share_pages_continue_after_the_last_id() -> None:
    script = Script(reply({"data": [TOKEN]}), reply({"data": [SHARE]}), reply({"data": []}))
    assert script.play(access(script).tokens_page(None, 1, owner="me")).next == TOKEN_ID
    assert script.play(access(script).shares_page(None, 2)).next is None
    assert script.play(access(script).tokens_page(TOKEN_ID, 1, owner=None)).next is None
    assert [dict(each.query) for each in script.received] == [
        {"owner": "me", "limit": "1"},
        {"limit": "2"},
        {"before": TOKEN_ID, "limit": "1"},
    ]


def test_own_token_is_returned_or_none_without_a_token() -> None:
    script = Script(reply({**TOKEN, "keeps": True}), reply({"id": None, "owner": "local", "scopes": []}))
    own = script.play(access(script).own_token(scope="shop"))
    assert own is not None
    assert (own.owner, own.keeps) == ("me", True)
    assert dict(script.received[-1].query) == {"scope": "shop"}
    assert script.play(access(script).own_token()) is None


def test_revoke_is_retried_and_refuses_token_texts() -> None:
    script = Script(CUT, reply({"data": [TOKEN]}), reply(SHARE), reply({"data": []}))
    assert [token.id for token in script.play(access(script).revoke_token(TOKEN_ID))] == [TOKEN_ID]
    assert script.play(access(script).revoke_share(SHARE_ID)).id == SHARE_ID
    script.play(access(script).revoke_token("self"))
    assert script.received[-1].path == "/api/tokens/self"
    with pytest.raises(errors.InvalidId, match="The text of a token"):
        script.play(access(script).revoke_token("tlt_secret"))
