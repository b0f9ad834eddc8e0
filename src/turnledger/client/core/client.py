"""What a client does, without doing it: every verb as the steps it takes. The edges run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import asdict

from turnledger.api.chats import ChatInfo, ChatList, Hit, ListedChat, Page, SearchPage
from turnledger.client.core.download import download
from turnledger.client.core.exchange import Exchanging, Pacing, Retries, Trying
from turnledger.client.core.feed import Listening
from turnledger.client.core.steps import JSON_TYPE, Doing, Request
from turnledger.client.core.turn_request import (
    AskOptions,
    body_of,
    check,
    headers_of,
    idempotency_key_of,
    sendable,
)
from turnledger.client.core.upload import Source, import_chats
from turnledger.client.shapes import FoundChat, Model, decoded
from turnledger.errors import InvalidInput
from turnledger.model.ids import ConversationId
from turnledger.model.transfer import ImportReport

Shape = TypeVar("Shape")


class ClientCore:
    """What belongs to the client as a whole. It holds no connection, and any thread may use it."""

    def __init__(self, model: str | None, retries: Retries, pacing: Pacing, *, records: bool = False) -> None:
        self._records = records
        self.retries = retries
        self.pacing = pacing
        self._model = model
        self._only_model: str | None = None

    def trying(self) -> Trying:
        return Trying(self.retries, self.pacing)

    # How most requests are made.

    def get(self, path: str, shape: type[Shape], query: Mapping[str, Any] | None = None) -> Doing[Shape]:
        """Look something up; repeated freely."""
        request = Request(method="GET", path=path, query=query_of(query or {}))
        reply = yield from Exchanging(self.trying()).ask(request)
        return decoded(shape, reply.body)

    def post(
        self,
        path: str,
        shape: type[Shape],
        values: Mapping[str, Any],
        *,
        keyed: AskOptions | None = None,
        once: str | None = None,
    ) -> Doing[Shape]:
        """Have something done that may be repeated: by its nature, or by an idempotency_key, the one in
        `keyed` or a fresh one; else `once` is what to tell where it may have been done."""
        key, headers = None, {"content-type": JSON_TYPE}
        if keyed is not None:
            check(keyed)
            key = idempotency_key_of(keyed)
            headers = headers_of(keyed, key)
        request = Request(method="POST", path=path, headers=headers, body=body_of(values))
        exchanging = Exchanging(self.trying(), idempotency_key=key)
        if once is not None:
            exchanging = Exchanging(self.trying(), is_repeatable=False, once=once)
        reply = yield from exchanging.ask(request)
        return decoded(shape, reply.body)

    # Chats.

    def create(
        self,
        *,
        conversation_key: str | None = None,
        scope: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Doing[ChatInfo]:
        """Make a chat, or find the one that has the conversation_key."""
        said = {
            "conversation_key": conversation_key,
            "scope": scope,
            "title": title,
            "metadata": metadata,
            "tags": tags,
        }
        values = {name: value for name, value in said.items() if value is not None}
        keyed: AskOptions = {"idempotency_key": idempotency_key}
        made = yield from self.post("/api/chats", ListedChat, values, keyed=keyed)
        return made

    def find(self, conversation_key: str, scope: str | None) -> Doing[ChatInfo | None]:
        """The chat that has this conversation_key, also before its first turn has ended; None if none has."""
        query = {"conversation_key": conversation_key, "scope": scope or ""}
        page = yield from self.get("/api/chats", ChatList, query)
        return page.data[0] if page.data else None

    def reset(self, conversation_key: str, *, replaces: str, scope: str | None = None) -> Doing[ChatInfo]:
        """Give the key to a fresh chat, if it still names the one that is replaced."""
        values = {"conversation_key": conversation_key, "replaces": ConversationId(replaces)}
        if scope is not None:
            values["scope"] = scope
        made = yield from self.post("/api/chats/reset", ListedChat, values)
        return made

    def list_page(
        self,
        cursor: str | None,
        limit: int,
        *,
        scope: str | None,
        tag: str | None,
        archived: bool | None,
        pinned: bool | None,
        deleted: bool,
    ) -> Doing[Page[ChatInfo]]:
        query = {
            "scope": scope,
            "tag": tag,
            "archived": _or_any(archived),
            "pinned": _or_any(pinned),
            "deleted": deleted or None,
            "cursor": cursor,
            "limit": limit,
        }
        page = yield from self.get("/api/chats", ChatList, query)
        return page

    def search_page(self, cursor: str | None, limit: int, *, q: str, scope: str | None) -> Doing[Page[Hit]]:
        query = {"q": q, "scope": scope, "cursor": cursor, "limit": limit}
        page = yield from self.get("/api/search", SearchPage[Hit], query)
        return page

    def found_page(
        self,
        cursor: str | None,
        limit: int,
        *,
        q: str,
        scope: str | None,
        tag: str | None,
        archived: bool | None,
        pinned: bool | None,
    ) -> Doing[Page[ChatInfo]]:
        """The chats that a search finds, of those that are wanted."""
        page = yield from self.search_page(cursor, limit, q=q, scope=scope)
        found = tuple(
            FoundChat(**asdict(hit.chat), snippet=hit.snippet, marks=hit.marks)
            for hit in page
            if (tag is None or tag in hit.chat.tags)
            and archived in (None, hit.chat.archived)
            and pinned in (None, hit.chat.pinned)
        )
        return SearchPage(found, page.next, page.complete)

    # All chats.

    def listen(self, after: str | None) -> Listening:
        """Hear of what happens to them."""
        return Listening(self.trying(), self.retries, after)

    def export(self, scope: str | None) -> Doing[None]:
        """All of them as one file, line by line."""
        request = Request(method="GET", path="/api/export", query=query_of({"scope": scope}))
        yield from download(self.trying(), request)

    def import_chats(self, source: Source, scope: str | None) -> Doing[tuple[ImportReport, ...]]:
        """Take chats in from a file."""
        reports = yield from import_chats(self.trying(), source, scope)
        return reports

    # Models.

    def models(self) -> Doing[tuple[Model, ...]]:
        """Which models may be asked."""
        page = yield from self.get("/v1/models", Page[Model])
        return page.data

    def check_model(self, options: AskOptions) -> None:
        """Refuse what could not be recorded before the server was asked for its models."""
        if self._records and not (options.get("model") or self._model):
            raise InvalidInput("With an outbox, say which model shall answer: there, or in Client(model=…).")

    def model_for(self, options: AskOptions) -> Doing[str]:
        """The model that is named, or that of the client, or the only one that the server has."""
        named = options.get("model") or self._model or self._only_model
        if named is not None:
            return named
        known = yield from self.models()
        if len(known) != 1:
            names = ", ".join(model.id for model in known[:20])
            raise InvalidInput(
                f"Say which model shall answer, there or in Client(model=…): {names or 'none'}."
            )
        self._only_model = known[0].id
        return self._only_model


def query_of(values: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """What stands behind the question mark; what is None is left out."""
    return [(name, _word(value)) for name, value in values.items() if value is not None]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return sendable(str(value))


def _or_any(flag: bool | None) -> str:
    return "any" if flag is None else _word(flag)
