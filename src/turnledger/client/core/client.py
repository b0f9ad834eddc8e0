"""Operations of a client as steps, which the edges run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import asdict

from turnledger.api.access import ModelUsage
from turnledger.api.chats import ChatInfo, ChatList, Hit, ListedChat, Page, SearchPage
from turnledger.api.turns import Job, JobPage, StopAnswer
from turnledger.client.core.exchange import Pacing, RepeatedExchange, Retries, RetryCount
from turnledger.client.core.feed import FeedFollower
from turnledger.client.core.steps import JSON_TYPE, Request, Steps
from turnledger.client.core.transfer import Source, download, import_chats
from turnledger.client.core.turn_request import (
    TurnOptions,
    body_of,
    check,
    check_text,
    headers_of,
    idempotency_key_of,
)
from turnledger.client.shapes import FoundChat, Model, StopOutcome, decode_shape
from turnledger.errors import InvalidInput
from turnledger.model.ids import ConversationId
from turnledger.model.transfer import ImportReport
from turnledger.model.turn import OnStop

Shape = TypeVar("Shape")


class ClientCore:
    """State that the whole client shares. It holds no connection, and any thread may use it."""

    def __init__(
        self, model: str | None, retries: Retries, pacing: Pacing, *, uses_outbox: bool = False
    ) -> None:
        self._uses_outbox = uses_outbox
        self.retries = retries
        self.pacing = pacing
        self._model = model
        self._only_model: str | None = None

    def new_retry_count(self) -> RetryCount:
        return RetryCount(self.retries, self.pacing)

    def get(self, path: str, shape: type[Shape], query: Mapping[str, Any] | None = None) -> Steps[Shape]:
        request = Request(method="GET", path=path, query=query_of(query or {}))
        reply = yield from RepeatedExchange(self.new_retry_count()).run(request)
        return decode_shape(shape, reply.body)

    def post(
        self,
        path: str,
        shape: type[Shape],
        values: Mapping[str, Any],
        *,
        options: TurnOptions | None = None,
        hint: str | None = None,
    ) -> Steps[Shape]:
        """Send a POST that may be repeated: by its nature, or by an idempotency_key, the one in `options` or
        a fresh one. Otherwise `hint` is the hint of the error for a request that may have been carried
        out."""
        key, headers = None, {"content-type": JSON_TYPE}
        if options is not None:
            check(options)
            key = idempotency_key_of(options)
            headers = headers_of(options, key)
        request = Request(method="POST", path=path, headers=headers, body=body_of(values))
        exchange = RepeatedExchange(self.new_retry_count(), idempotency_key=key)
        if hint is not None:
            exchange = RepeatedExchange(self.new_retry_count(), is_repeatable=False, hint=hint)
        reply = yield from exchange.run(request)
        return decode_shape(shape, reply.body)

    def create(self, idempotency_key: str | None = None, **fields: Any) -> Steps[ChatInfo]:
        values = {name: value for name, value in fields.items() if value is not None}
        return self.post("/api/chats", ListedChat, values, options={"idempotency_key": idempotency_key})

    def find(self, conversation_key: str, scope: str | None) -> Steps[ChatInfo | None]:
        """Return the chat with this conversation_key, even before its first turn has ended, or None."""
        query = {"conversation_key": conversation_key, "scope": scope or ""}
        page = yield from self.get("/api/chats", ChatList, query)
        return page.data[0] if page.data else None

    def reset(self, conversation_key: str, *, replaces: str, scope: str | None = None) -> Steps[ChatInfo]:
        values = {"conversation_key": conversation_key, "replaces": ConversationId(replaces)}
        if scope is not None:
            values["scope"] = scope
        return self.post("/api/chats/reset", ListedChat, values)

    def stop(self, idempotency_key: str, policy: str | None) -> Steps[StopOutcome | None]:
        return self.request_stop("/api/turns/stop", policy, idempotency_key=check_text(idempotency_key))

    def request_stop(
        self, path: str, policy: str | None, hint: str | None = None, **fields: str
    ) -> Steps[StopOutcome | None]:
        """Stop a turn; None if there was nothing to stop. For `hint` see `post`. Raises InvalidInput."""
        check_stop_policy(policy)
        values = fields if policy is None else {**fields, "policy": str(policy)}
        answer = yield from self.post(path, StopAnswer, values, hint=hint)
        if answer.state is None:
            return None
        return StopOutcome(
            state=answer.state, committed=answer.committed, failure=answer.failure, turn=answer.turn
        )

    def list_page(
        self,
        cursor: str | None,
        limit: int,
        *,
        archived: bool | None,
        pinned: bool | None,
        deleted: bool,
        **query: str | None,
    ) -> Steps[Page[ChatInfo]]:
        flags = {"archived": _flag_text(archived), "pinned": _flag_text(pinned), "deleted": deleted or None}
        return self.get("/api/chats", ChatList, {**query, **flags, "cursor": cursor, "limit": limit})

    def search_page(self, cursor: str | None, limit: int, *, q: str, scope: str | None) -> Steps[Page[Hit]]:
        query = {"q": q, "scope": scope, "cursor": cursor, "limit": limit}
        return self.get("/api/search", SearchPage[Hit], query)

    def search_chats_page(
        self,
        cursor: str | None,
        limit: int,
        *,
        q: str,
        scope: str | None,
        tag: str | None,
        archived: bool | None,
        pinned: bool | None,
    ) -> Steps[Page[ChatInfo]]:
        page = yield from self.search_page(cursor, limit, q=q, scope=scope)
        found = tuple(
            FoundChat(**asdict(hit.chat), snippet=hit.snippet, marks=hit.marks)
            for hit in page
            if (tag is None or tag in hit.chat.tags)
            and archived in (None, hit.chat.archived)
            and pinned in (None, hit.chat.pinned)
        )
        return SearchPage(found, page.next, page.complete)

    def follow_feed(self, after: str | None) -> FeedFollower:
        return FeedFollower(self.new_retry_count(), self.retries, after)

    def export(self, scope: str | None) -> Steps[None]:
        request = Request(method="GET", path="/api/export", query=query_of({"scope": scope}))
        return download(self.new_retry_count(), request)

    def import_chats(self, source: Source, scope: str | None) -> Steps[tuple[ImportReport, ...]]:
        return import_chats(self.new_retry_count(), source, scope)

    def jobs_page(self, cursor: str | None, limit: int, *, chat: str | None) -> Steps[Page[Job]]:
        return self.get("/api/jobs", JobPage, {"chat": chat, "after": cursor, "limit": limit})

    def usage_page(self, cursor: str | None, limit: int) -> Steps[Page[ModelUsage]]:
        return self.get("/api/usage", Page[ModelUsage], {"cursor": cursor})

    def models(self) -> Steps[tuple[Model, ...]]:
        page = yield from self.get("/v1/models", Page[Model])
        return page.data

    def check_model(self, options: TurnOptions) -> None:
        """Refuse a turn without a model if it must be recorded before the client can ask the server for its
        models."""
        if self._uses_outbox and not (options.get("model") or self._model):
            raise InvalidInput("An outbox needs a model. Pass model= here or to Client(model=…).")

    def model_for(self, options: TurnOptions) -> Steps[str]:
        """Return the named model, that of the client, or the only one of the server."""
        model = options.get("model") or self._model or self._only_model
        if model is not None:
            return model
        models = yield from self.models()
        if len(models) != 1:
            names = ", ".join(model.id for model in models[:20])
            raise InvalidInput(f"No model given. Pass model= here or to Client(model=…): {names or 'none'}.")
        self._only_model = models[0].id
        return self._only_model


def check_stop_policy(policy: str | None) -> None:
    if policy is not None and policy not in frozenset(OnStop):
        raise InvalidInput(f"policy is {policy!r}; it must be one of {', '.join(OnStop)}.")


def query_of(values: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    return [(name, _query_text(value)) for name, value in values.items() if value is not None]


def _query_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return check_text(str(value))


def _flag_text(flag: bool | None) -> str:
    return "any" if flag is None else _query_text(flag)
