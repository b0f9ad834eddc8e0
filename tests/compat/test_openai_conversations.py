"""The Conversations API through the official client."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.conversations import Conversation

from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL
from tests.compat.responses import (
    checked_conversation_item,
    checked_events,
    conversation_of,
    create,
    stream,
    types,
)
from turnledger.hosting import OWNER, Host
from turnledger.testing.upstream import Call

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}


def message(text: str, role: str = "user") -> Any:
    return {"type": "message", "role": role, "content": text}


def texts(items: Any) -> list[str]:
    return [checked_conversation_item(item).content[0].text for item in items]


def test_conversation_is_created_read_updated_listed_and_deleted(serve: Serve, store_url: str) -> None:
    served = serve(store=store_url)
    client = served.client()
    empty = client.conversations.create()
    Conversation.model_validate(empty.to_dict())
    made = client.conversations.create(items=[message("Hi")], metadata={"topic": "a"})
    assert made.metadata == {"topic": "a"}
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"topic": "b"}).metadata == {"topic": "b"}
    listed = served.http.get("/v1/conversations", params={"limit": 1}).json()
    assert [each["id"] for each in listed["data"]] == [made.id]
    deleted = client.conversations.delete(made.id)
    assert (deleted.deleted, deleted.object) == (True, "conversation.deleted")
    with pytest.raises(openai.APIStatusError) as gone:
        client.conversations.retrieve(made.id)
    assert gone.value.status_code == 410


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_conversations_are_listed_in_pages_in_either_order(serve: Serve, store_url: str, order: str) -> None:
    served = serve(store=store_url)
    client = served.client()
    made = [client.conversations.create(items=[message(str(number))]).id for number in range(5)]
    served.http.patch(f"/api/chats/{made[1]}", json={"archived": True}).raise_for_status()
    made.append(client.conversations.create().id)
    client.conversations.delete(client.conversations.create(items=[message("gone")]).id)
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = served.http.get("/v1/conversations", params={"limit": "2", "order": order, **after}).json()
        found += [each["id"] for each in page["data"]]
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert found == (made if order == "asc" else made[::-1])


def test_conversations_in_ascending_order_end_with_the_last_used(serve: Serve) -> None:
    served = serve()
    client = served.client()
    first, second, third = (client.conversations.create(items=[message("Hi")]).id for _ in range(3))
    client.conversations.items.create(first, items=[message("again")])
    listed = served.http.get("/v1/conversations", params={"order": "asc"}).json()
    assert [each["id"] for each in listed["data"]] == [second, third, first]
    behind = served.http.get("/v1/conversations", params={"order": "asc", "after": third}).json()
    assert ([each["id"] for each in behind["data"]], behind["has_more"]) == ([first], False)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_every_page_is_found_while_the_conversations_of_each_are_deleted(
    serve: Serve, store_url: str, order: str
) -> None:
    served = serve(store=store_url)
    client = served.client()
    made = [client.conversations.create(items=[message(str(number))]).id for number in range(5)]
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        answer = served.http.get("/v1/conversations", params={"limit": "2", "order": order, **after})
        page = answer.raise_for_status().json()
        for number, each in enumerate(page["data"]):
            found.append(each["id"])
            client.conversations.delete(each["id"])
            if number:
                served.do(served.ledger.for_owner(OWNER).delete(each["id"], purge=True))
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert found == (made if order == "asc" else made[::-1])


def test_conversation_of_others_is_no_cursor(serve: Serve) -> None:
    served = serve()
    mine, other = (served.client().conversations.create(items=[message("Hi")]).id for _ in range(2))
    create = Host(served.ledger).tokens.create
    narrowed = served.do(create(owner=OWNER, scopes=("chats:read",), conversation=mine))[1]
    headers = {"Authorization": f"Bearer {narrowed}"}
    for is_deleted in (False, True):
        if is_deleted:
            served.do(served.ledger.for_owner(OWNER).delete(other))
        refused = served.http.get("/v1/conversations", params={"after": other}, headers=headers)
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "after")


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_caller_of_one_conversation_lists_only_that_one(serve: Serve, order: str) -> None:
    served = serve()
    client = served.client()
    mine, _ = (client.conversations.create(items=[message("Hi")]).id for _ in range(2))
    create = Host(served.ledger).tokens.create
    narrowed = served.do(create(owner=OWNER, scopes=("chats:read",), conversation=mine))[1]
    headers = {"Authorization": f"Bearer {narrowed}"}
    listed = served.http.get("/v1/conversations", params={"order": order}, headers=headers).json()
    assert [each["id"] for each in listed["data"]] == [mine]
    params = {"order": order, "after": mine}
    assert served.http.get("/v1/conversations", params=params, headers=headers).json()["data"] == []


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_items_are_listed_in_pages_in_either_order(serve: Serve, order: Any) -> None:
    served = serve(*[[f"a{number}"] for number in range(6)])
    client = served.client()
    id = client.conversations.create().id
    for number in range(6):
        create(client, f"q{number}", conversation=id)
    found = list(client.conversations.items.list(id, order=order, limit=5))
    expected = [text for number in range(6) for text in (f"q{number}", f"a{number}")]
    assert texts(found) == (expected if order == "asc" else expected[::-1])
    assert len({item.id for item in found}) == 12


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("turns", [1, 2])
def test_item_of_a_side_branch_is_no_cursor_of_the_conversation(serve: Serve, order: Any, turns: int) -> None:
    client = serve(*[[f"a{number}"] for number in range(4)]).client()
    first = create(client, "q0")
    second = create(client, "q1", previous_response_id=first.id)
    side = create(client, "side", previous_response_id=first.id)
    for _ in range(turns - 1):
        side = create(client, "more", previous_response_id=side.id)
    id = conversation_of(first)
    for after in (side.output[0].id, "msg_unknown"):
        with pytest.raises(openai.NotFoundError) as refused:
            client.conversations.items.list(id, order=order, after=str(after))
        assert refused.value.param == "after"
    shared, own = str(first.output[0].id), str(second.output[0].id)
    assert texts(client.conversations.items.list(id, order="asc", after=shared)) == ["q1", "a1"]
    assert texts(client.conversations.items.list(id, order="desc", after=own)) == ["q1", "a0", "q0"]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_page_of_large_items_is_short_and_the_next_one_follows(serve: Serve, order: Any) -> None:
    client = serve().client()
    conversation = client.conversations.create().id
    for number in range(4):
        large: Any = {"role": "user", "content": f"{number}" * 700_000}
        client.conversations.items.create(conversation, items=[large])
    page = client.conversations.items.list(conversation, order=order)
    assert (len(page.data), page.has_more) == (2, True)
    first = [item.content[0].text[0] for item in page]  # type: ignore[union-attr]
    assert first == sorted("0123", reverse=order == "desc")


def test_items_added_are_shown_to_the_next_model_and_read_by_their_ids(serve: Serve) -> None:
    served = serve(["Yes."])
    client = served.client()
    id = client.conversations.create(items=[message("Be brief.", "system"), message("Hi")]).id
    added = client.conversations.items.create(id, items=[message("Hello.", "assistant"), message("So?")])
    assert texts(added.data) == ["Hello.", "So?"]
    create(client, "Well?", conversation=id)
    seen = [each["content"] for each in served.upstream.received[-1].body["messages"]]
    assert seen == ["Be brief.", "Hi", "Hello.", "So?", "Well?"]
    for item in client.conversations.items.list(id):
        assert client.conversations.items.retrieve(str(item.id), conversation_id=id) == item


def test_deleted_item_is_hidden_with_its_pair_from_lists_and_models(serve: Serve) -> None:
    served = serve([Call("weather", "{}", "call_a")], ["Warm."], ["Sure."])
    client = served.client()
    id = client.conversations.create().id
    create(client, "Weather?", conversation=id, tools=[WEATHER])
    create(client, [{"type": "function_call_output", "call_id": "call_a", "output": "30"}], conversation=id)
    items = list(client.conversations.items.list(id, order="asc"))
    assert [item.type for item in items] == ["message", "function_call", "function_call_output", "message"]
    assert client.conversations.items.delete(str(items[2].id), conversation_id=id).id == id
    left = list(client.conversations.items.list(id, order="asc"))
    assert [item.type for item in left] == ["message", "message"]
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(str(items[2].id), conversation_id=id)
    create(client, "Sure?", conversation=id)
    roles = [each["role"] for each in served.upstream.received[-1].body["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_deleted_item_is_not_in_the_stream_of_its_response(serve: Serve) -> None:
    calls = [Call("weather", "{}", "call_a"), Call("weather", "{}", "call_b", index=1)]
    client = serve(["Let me see.", *calls]).client()
    made = stream(client, "Hi", background=True)[-1].response
    text, deleted, kept = made.output
    for item in (text, deleted):
        client.conversations.items.delete(item.id, conversation_id=conversation_of(made))
    events = checked_events(client.responses.retrieve(made.id, stream=True))
    done = [event.item.id for event in events if event.type == "response.output_item.done"]
    assert done == [kept.id]
    assert [item.id for item in events[-1].response.output] == [kept.id]
    assert not any(item.id in str(events) for item in (text, deleted))
    assert types(events[:4]) == ["created", "queued", "in_progress", "output_item.added"]
    rest = client.responses.retrieve(made.id, stream=True, starting_after=3)
    assert [event.to_dict() for event in rest] == [event.to_dict() for event in events[4:]]


def test_item_of_another_conversation_is_not_found(serve: Serve) -> None:
    client = serve().client()
    one = client.conversations.create(items=[message("1")]).id
    two = client.conversations.create(items=[message("2")]).id
    [item] = client.conversations.items.list(one)
    for use in (client.conversations.items.retrieve, client.conversations.items.delete):
        with pytest.raises(openai.NotFoundError):
            use(str(item.id), conversation_id=two)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"items": [message(str(number)) for number in range(21)]}, "items"),
        ({"items": [{"type": "web_search_call"}]}, "items[0].type"),
        ({"items": [{"type": "item_reference", "id": "msg_x"}]}, "items[0].type"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"metadata": {"long": "x" * 513}}, "metadata"),
        ({"items": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "items"),
    ],
    ids=["21 items", "hosted call", "reference", "17 pairs", "long value", "stray result"],
)
def test_conversation_beyond_the_limits_is_refused_and_not_created(
    serve: Serve, fields: dict[str, Any], param: str | None
) -> None:
    served = serve()
    with pytest.raises(openai.BadRequestError) as refused:
        served.client().conversations.create(**fields)
    assert refused.value.param == param
    assert served.http.get("/v1/conversations").json()["data"] == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"metadata": {}, "title": "x"}, "title"),
        ("/{conversation}", {"metadata": {}, "title": "x"}, "title"),
        ("/{conversation}", {}, "metadata"),
        ("/{conversation}/items", {"items": [message("Hi")], "order": "asc"}, "order"),
        ("/{conversation}/items", {}, "items"),
    ],
    ids=str,
)
def test_unknown_or_missing_field_is_refused_by_name(
    serve: Serve, path: str, body: dict[str, Any], param: str
) -> None:
    served = serve()
    made = served.client().conversations.create().id
    answer = served.http.post("/v1/conversations" + path.format(conversation=made), json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    listed = served.http.get(f"/v1/conversations/{made}/items").json()
    assert listed["data"] == []


def test_chat_completions_conversation_is_a_conversation_with_items(serve: Serve) -> None:
    served = serve(["Hello"])
    client = served.client("k")
    client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
    id = served.id_of("k")
    assert client.conversations.retrieve(id).id == id
    assert texts(client.conversations.items.list(id, order="asc")) == ["Hi", "Hello"]


@pytest.mark.parametrize("items", [[], [message("Hi")]], ids=["empty", "with items"])
def test_conversation_with_an_idempotency_key_is_created_once(serve: Serve, items: list[Any]) -> None:
    served = serve()
    client = served.client(Idempotency_Key="k")
    made = client.conversations.create(items=items)
    assert client.conversations.create(items=items) == made
    with pytest.raises(openai.UnprocessableEntityError):
        client.conversations.create(items=[message("Else")])
