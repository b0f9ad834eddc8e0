"""Every request with an id, sent with ids of another owner and with ids that never existed. The answers must
be equal byte for byte, except for ids and times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from tests.guarded.town import ALL, BODIES, Town, chat_body
from tests.unit.server.asgi import Reply
from turnledger.chat import Chat
from turnledger.hosting import Host
from turnledger.model.access.token import digest_of
from turnledger.model.ids import TurnId

_ID = re.compile(rb"(conv|turn|resp|msg|branch|share|tok|req)_[0-9a-f]{24,39}")
_TIME = re.compile(rb"\b1\d{9}(?:\d{3})?\b")
_SEALED = re.compile(rb'"as_of":"[^"]*"')
_OWN_KINDS = ("{chat}", "{turn}", "{share}", "{token}", "{response}", "{conversation}")


class Ids(msgspec.Struct, frozen=True, kw_only=True):
    chat: str
    turn: str
    branch: str
    share: str
    token: str
    conversation_key: str

    @property
    def response(self) -> str:
        return "resp_" + self.turn.removeprefix("turn_")

    @property
    def item(self) -> str:
        """The first item of the turn."""
        return f"msg_{self.turn.removeprefix('turn_')}0000000"

    def never(self) -> Ids:
        """Return ids like these that never existed, with the same sort order."""
        made = {name: _never(getattr(self, name)) for name in self.__struct_fields__}
        return Ids(**made)


def _never(id: str) -> str:
    digits = "beef" if id[-12:-8] != "beef" else "cafe"
    return id[:-12] + digits + id[-8:]


class Probe(NamedTuple):
    name: str
    method: str
    path: str
    body: Any = None
    key: str | None = None


def probes(place: Town, theirs: Ids, own: Ids) -> Iterator[Probe]:
    """Yield requests with their ids, alone or beside own ids."""
    named = {name: getattr(theirs, name) for name in ("chat", "turn", "share", "token")}
    named |= {"response": theirs.response, "conversation": theirs.chat, "item": theirs.item}
    for operation in place.operations():
        if not any(kind in operation.path for kind in _OWN_KINDS):
            continue
        body = BODIES.get(operation.name) if "requestBody" in operation.about else None
        if operation.path.endswith("/switch"):
            body = {"branch": theirs.branch}
        path = re.sub(r"{(\w+)}", lambda found: named[found[1]], operation.path)
        yield Probe(operation.name, operation.method, path, body)
    yield from _mixed(theirs, own)
    yield from _fields(theirs)


def _mixed(theirs: Ids, own: Ids) -> Iterator[Probe]:
    """Yield requests with their ids in an own chat, and the other way round."""
    mine = f"/api/chats/{own.chat}"
    yield Probe("their branch in my chat", "GET", f"{mine}?branch={theirs.branch}")
    yield Probe("behind their branch", "GET", f"{mine}/branches?before={theirs.branch}")
    yield Probe("siblings of their turn", "GET", f"{mine}/turns/{theirs.turn}/siblings")
    yield Probe("context after their turn", "GET", f"{mine}/context?after={theirs.turn}")
    yield Probe("switch to their branch", "POST", f"{mine}/switch", {"branch": theirs.branch})
    yield Probe("undo their turn", "POST", f"{mine}/undo", {"turn": theirs.turn})
    yield Probe("fork at their turn", "POST", f"{mine}/fork", {"turn": theirs.turn})
    yield Probe("hide their turn", "PATCH", f"{mine}/turns/{theirs.turn}", {"to_model": False})
    yield Probe(
        "hide in their chat", "PATCH", f"/api/chats/{theirs.chat}/turns/{own.turn}", {"to_user": False}
    )
    yield Probe("siblings in their chat", "GET", f"/api/chats/{theirs.chat}/turns/{own.turn}/siblings")
    for field in ("replaces", "regenerates", "after"):
        body = {"model": "demo", "input": "Hi", "chat": own.chat, field: theirs.turn}
        yield Probe(f"{field} their turn", "POST", "/api/turns", body)
    yield Probe("their item in my chat", "GET", f"/v1/conversations/{own.chat}/items/{theirs.item}")
    yield Probe("hide their item", "DELETE", f"/v1/conversations/{own.chat}/items/{theirs.item}")
    yield Probe("items behind theirs", "GET", f"/v1/conversations/{own.chat}/items?after={theirs.item}")
    yield Probe("my item in their chat", "GET", f"/v1/conversations/{theirs.chat}/items/{own.item}")
    reset = {"conversation_key": own.conversation_key, "replaces": theirs.chat}
    yield Probe("reset from their chat", "POST", "/api/chats/reset", reset)


def _fields(theirs: Ids) -> Iterator[Probe]:
    """Yield requests with their ids in bodies, headers and queries."""
    yield Probe("talk in their chat", "POST", "/v1/chat/completions", chat_body("Hi"), theirs.chat)
    yield Probe("their key", "POST", "/v1/chat/completions", chat_body("Hi"), theirs.conversation_key)
    yield Probe("a turn there", "POST", "/api/turns", {"model": "demo", "input": "Hi", "chat": theirs.chat})
    background = {"model": "demo", "input": "Hi", "chat": theirs.chat, "background": True}
    yield Probe("a background turn there", "POST", "/api/turns", background)
    for stored in ({}, {"store": False}, {"background": True}):
        body = {"model": "demo", "input": "Hi", **stored}
        yield Probe(
            "continue theirs", "POST", "/v1/responses", {**body, "previous_response_id": theirs.response}
        )
        yield Probe("respond there", "POST", "/v1/responses", {**body, "conversation": theirs.chat})
        yield Probe("respond at their key", "POST", "/v1/responses", body, theirs.conversation_key)
        quoted = [{"type": "item_reference", "id": theirs.item}, {"role": "user", "content": "Hi"}]
        yield Probe("quote their item", "POST", "/v1/responses", {**body, "input": quoted})
    counted = {"model": "demo", "input": "Hi", "previous_response_id": theirs.response}
    yield Probe("count theirs", "POST", "/v1/responses/input_tokens", counted)
    yield Probe("stream theirs", "GET", f"/v1/responses/{theirs.response}?stream=true")
    yield Probe("conversations behind theirs", "GET", f"/v1/conversations?after={theirs.chat}")
    yield Probe("those before theirs", "GET", f"/v1/conversations?order=asc&after={theirs.chat}")
    # Their turn has an Idempotency-Key like the conversation_key.
    stop = {"idempotency_key": theirs.conversation_key}
    yield Probe("stop by their Idempotency-Key", "POST", "/api/turns/stop", stop)
    yield Probe("jobs behind theirs", "GET", f"/api/jobs?after={theirs.turn}")
    yield Probe("jobs of theirs", "GET", f"/api/jobs?chat={theirs.chat}")
    yield Probe("find their key", "GET", f"/api/chats?conversation_key={theirs.conversation_key}")
    yield Probe("take their key", "POST", "/api/chats", {"conversation_key": theirs.conversation_key})
    yield Probe("purge theirs", "DELETE", f"/api/chats/{theirs.chat}?purge=true")
    yield Probe("theirs as text", "GET", f"/api/chats/{theirs.chat}/export?format=markdown")
    yield Probe("share their chat", "POST", "/api/shares", {"chat": theirs.chat})
    yield Probe("links behind theirs", "GET", f"/api/shares?before={theirs.share}")
    yield Probe("tokens behind theirs", "GET", f"/api/tokens?before={theirs.token}")
    token = {"scopes": ["chats:read"], "chat": theirs.chat, "expires_in": 60}
    yield Probe("a token for their chat", "POST", "/api/tokens", token)
    chat = {"type": "chat", "schema_version": 1, "id": theirs.chat, "created_at": 1, "touched_at": 1}
    branches = [{"id": theirs.branch, "head": theirs.turn}]
    turn = {
        "type": "turn",
        "schema_version": 1,
        "chat": theirs.chat,
        "id": theirs.turn,
        "parent": None,
        "kind": "completed",
        "created_at": 1,
        "committed_at": 1,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
        ],
    }
    whole = {**chat, "branches": branches, "current": theirs.branch, "turns": 1}
    lines = b"\n".join(map(msgspec.json.encode, (whole, turn)))
    yield Probe("import their ids", "POST", "/api/import", msgspec.Raw(lines))


def comparable(reply: Reply) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return an answer without ids and times."""
    headers = [(name, _plain(value)) for name, value in reply.headers if name != b"content-length"]
    return reply.status, headers, _plain(reply.body)


def _plain(body: bytes) -> bytes:
    return _SEALED.sub(b"", _TIME.sub(b"TIME", _ID.sub(rb"\1", body)))


async def differences(place: Town, who: str, theirs: Ids, own: Ids) -> list[str]:
    """Send every probe twice; return the differences."""
    never, found = theirs.never(), list[str]()
    pairs = zip(probes(place, theirs, own), probes(place, never, own), strict=True)
    for foreign, unknown in pairs:
        if who == "child admin" and foreign.name in VISIBLE_TO_ADMIN:
            continue
        answers = [
            _named(comparable(await place.fetch(each.method, each.path, who, each.body, each.key)), ids)
            for each, ids in ((foreign, theirs), (unknown, never))
        ]
        if answers[0] != answers[1]:
            found.append(f"{foreign.name} as {who}: {answers[0]} but {answers[1]}")
    return found


def _named(answer: tuple[int, list[tuple[bytes, bytes]], bytes], ids: Ids) -> object:
    """Replace the conversation_key, which answers repeat as sent."""
    status, headers, body = answer
    return status, headers, body.replace(ids.conversation_key.encode(), b"KEY")


VISIBLE_TO_ADMIN = ("links behind theirs", "tokens behind theirs", "import their ids")
"""With `admin`, callers list tokens and links of all owners, and create tokens for them."""
ROLES = ("bob", "child admin", "guest", "reader", "narrow")
"""Callers: another owner without `admin`, one with a derived `admin` token, a visitor of a scope, a reader of
another chat of Alice, and a token of Alice for another scope."""


async def add_roles(place: Town) -> None:
    """Create the missing tokens of a town."""
    tokens = Host(place.ledger).tokens
    root, _ = await tokens.create(owner="bob", scopes=ALL)
    _, place.tokens["child admin"] = await tokens.create(owner="bob", scopes=ALL, parent=root.id)


async def ids_of(place: Town, chat: Chat, turn: TurnId) -> Ids:
    """Return the ids of a chat of Alice and its turn, with a new link and token."""
    place.clock.advance(1)  # so that never-used ids have the same sort order
    share, _ = await Host(place.ledger).shares.create(scope="fair", owner=chat.owner)
    token, _ = await Host(place.ledger).tokens.create(owner=chat.owner, scopes=ALL)
    place.clock.advance(1)
    info = await chat.info()
    return Ids(
        chat=str(chat.id),
        turn=str(turn),
        branch=str(info.branch),
        share=str(share.id),
        token=str(token.id),
        conversation_key=info.conversation_key or "",
    )


async def own_of(place: Town, who: str) -> Ids:
    """Return the ids of a chat of the caller."""
    token = (await Host(place.ledger).tokens.find(digest_of(place.tokens[who]))).token
    assert token is not None
    key = f"own-of-{who.replace(' ', '-')}"
    chat = await place.ledger.for_owner(token.owner, scope=token.chat_scope).conversation(
        conversation_key=key
    )
    async with chat.turn("Mine") as turn:
        turn.emit("Yours.")
    return await ids_of(place, chat, turn.id)
