"""What the client as a whole does: one request for each verb, and what comes of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.client.scripted import BRANCH, CHAT, CUT, INFO, TURN, Script, refused, told
from turnledger import errors
from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore


def core(script: Script, model: str | None = None) -> ClientCore:
    return ClientCore(model, script.retries, script.pacing)


def query(script: Script) -> dict[str, str]:
    return dict(script.asked[-1].query)


def models(*names: str) -> Any:
    return told({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def test_a_chat_is_made_once_however_often_it_is_asked_for() -> None:
    script = Script(CUT, told(INFO, 201))
    made = script.play(core(script).create(title="A chat", metadata={"a": "b"}, tags=["x"]))
    assert (made.id, made.title, made.turn_count) == (CHAT, "A chat", 0)
    first, second = script.asked
    assert first == second
    assert first.headers["idempotency-key"]
    assert msgspec.json.decode(first.body or b"") == {
        "title": "A chat",
        "metadata": {"a": "b"},
        "tags": ["x"],
    }


def test_two_chats_have_two_idempotency_keys() -> None:
    script = Script(told(INFO, 201), told(INFO, 201))
    asking = core(script)
    script.play(asking.create())
    script.play(asking.create())
    first, second = (each.headers["idempotency-key"] for each in script.asked)
    assert first != second


def test_a_chat_is_found_by_its_conversation_key() -> None:
    script = Script(told({"data": [INFO], "next": None}), told({"data": [], "next": None}))
    asking = core(script)
    found = script.play(asking.find("key", None))
    assert found is not None
    assert query(script) == {"conversation_key": "key", "scope": ""}
    assert script.play(asking.find("key", "support")) is None
    assert query(script) == {"conversation_key": "key", "scope": "support"}


def test_a_key_is_reset_only_from_a_valid_id() -> None:
    script = Script(told(INFO))
    with pytest.raises(errors.InvalidId):
        script.play(core(script).reset("key", replaces="conv_1"))
    assert script.asked == []
    script.play(core(script).reset("key", replaces=CHAT, scope="support"))
    body = msgspec.json.decode(script.asked[0].body or b"")
    assert body == {"conversation_key": "key", "replaces": CHAT, "scope": "support"}


def test_lists_ask_for_what_is_wanted() -> None:
    script = Script(told({"data": [INFO], "next": "n", "as_of": "here"}))
    look = core(script).list_page
    page = script.play(look("c", 5, scope="s", tag="t", archived=None, pinned=True, deleted=True))
    assert (page.next, page.as_of, [chat.id for chat in page]) == ("n", "here", [CHAT])
    assert query(script) == {
        "scope": "s",
        "tag": "t",
        "archived": "any",
        "pinned": "true",
        "deleted": "true",
        "cursor": "c",
        "limit": "5",
    }


def test_what_a_search_finds_is_listed_with_the_reason() -> None:
    hits = [
        {
            "chat": {**INFO, "archived": archived},
            "turn": TURN,
            "branch": BRANCH,
            "snippet": "so it is",
            "marks": [[0, 2]],
        }
        for archived in (False, True)
    ]
    script = Script(told({"data": hits, "next": None, "complete": True}))
    look = core(script).found_page
    (chat,) = script.play(look(None, 5, q="so", scope=None, tag=None, archived=False, pinned=None))
    assert (chat.snippet, chat.marks, chat.archived) == ("so it is", ((0, 2),), False)


def test_fields_from_the_future_are_passed_over() -> None:
    script = Script(told({**INFO, "mood": "good"}))
    assert script.play(core(script).create()).title == "A chat"


def test_what_makes_no_sense_is_told_so() -> None:
    script = Script(told({"data": [INFO], "next": None}))  # chats where hits should be
    with pytest.raises(errors.RequestFailed, match="about the same version"):
        script.play(core(script).search_page(None, 5, q="", scope=None))


def test_the_model_that_is_named_answers() -> None:
    script = Script()
    assert script.play(core(script, "mine").model_for({"model": "other"})) == "other"
    assert script.play(core(script, "mine").model_for({})) == "mine"


def test_the_only_model_is_asked_for_once() -> None:
    script = Script(models("demo"))
    asking = core(script)
    assert [script.play(asking.model_for({})) for _ in range(2)] == ["demo", "demo"]
    assert len(script.asked) == 1


def test_of_several_models_one_must_be_named() -> None:
    with pytest.raises(errors.InvalidInput, match="fast, smart"):
        (script := Script(models("fast", "smart"))).play(core(script).model_for({}))


def test_lookups_are_repeated() -> None:
    script = Script(CUT, refused(503, "shutting_down"), models("demo"))
    assert [model.id for model in script.play(core(script).models())] == ["demo"]


def test_text_that_cannot_be_sent_is_refused_here() -> None:
    """Half of a pair of UTF-16: it comes from JavaScript, or from names of files."""
    script = Script()
    core = ClientCore("demo", script.retries, script.pacing)
    with pytest.raises(errors.InvalidInput, match="UTF-8"):
        script.play(core.search_page(None, 5, q="\ud800", scope=None))
    with pytest.raises(errors.InvalidInput, match="UTF-8"):
        ChatCore(core, CHAT).send("Hi", {"idempotency_key": "\ud800"})
