"""One chat, as steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from msgspec import UNSET

from turnledger.api.chats import ChatInfo, Conflict, Deletion, ListedChat, Page, RestoredChat
from turnledger.api.turns import (
    AcceptedTurn,
    Branch,
    BranchPage,
    ChatContext,
    ShownChat,
    Sibling,
    Turn,
    TurnAnswer,
    TurnFlags,
    TurnState,
)
from turnledger.client.core.client import ClientCore, check_stop_policy, query_of
from turnledger.client.core.exchange import RepeatedExchange
from turnledger.client.core.steps import JSON_TYPE, Request, Steps
from turnledger.client.core.transfer import download
from turnledger.client.core.turn_request import (
    Input,
    TurnOptions,
    body_of,
    check,
    idempotency_key_of,
    turn_request,
    without_stream,
)
from turnledger.client.core.turn_stream import FORBIDDEN, TurnFollower
from turnledger.client.errors import copy_details, error_of_failure
from turnledger.client.shapes import Answer, ChatPage, Shape, StopOutcome, decode_shape
from turnledger.errors import (
    BranchNotFound,
    ConversationNotFound,
    ConversationUnavailable,
    InvalidInput,
    NotAdmitted,
    RequestFailed,
    RevisionConflict,
    ServerUnavailable,
    TurnStopped,
)
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import AttemptState

_STOP_HINT = "A turn may have been stopped. Check the chat, then stop a turn by its id."


class ChatCore:
    """One chat, named by its id or by a conversation_key. With a key, each turn goes to the chat that has the
    key then; `id` is that of the last turn's chat."""

    def __init__(
        self,
        client: ClientCore,
        id: str | None,
        conversation_key: str | None = None,
        scope: str | None = None,
        *,
        uses_key: bool = False,
    ) -> None:
        if id is None and not conversation_key:
            raise InvalidInput("Give the id of the chat, or a conversation_key.")
        self._client = client
        self.id = None if id is None else ConversationId(id)
        self.conversation_key = conversation_key
        self.scope = scope
        self._uses_key = uses_key
        self._followers: WeakValueDictionary[int, TurnFollower] = WeakValueDictionary()
        """In the order of their requests."""
        self._numbers = count()
        self._lock = Lock()
        """Guards them: threads may share a chat."""

    @classmethod
    def open(
        cls, client: ClientCore, id: str | None, conversation_key: str | None, scope: str | None
    ) -> ChatCore:
        """Name a chat. Raises InvalidId or InvalidInput."""
        if id is not None and (conversation_key is not None or scope is not None):
            raise InvalidInput("Give only the id of the chat, or a conversation_key and its scope.")
        return cls(client, id, conversation_key, scope, uses_key=id is None)

    @classmethod
    def from_info(cls, client: ClientCore, info: ChatInfo) -> ChatCore:
        return cls(client, info.id, info.conversation_key, info.scope)

    def send(self, input: Input, options: TurnOptions) -> TurnFollower:
        return self._request_turn({"input": input}, options, self._target())

    def edit(self, turn: str, input: Input, options: TurnOptions) -> TurnFollower:
        return self._request_turn({"input": input, "replaces": TurnId(turn)}, options, self._current_target())

    def regenerate(self, turn: str | None, options: TurnOptions) -> TurnFollower:
        regenerates = True if turn is None else TurnId(turn)
        return self._request_turn({"regenerates": regenerates}, options, self._current_target())

    def enqueue(self, input: Input, options: TurnOptions) -> Steps[TurnId]:
        check(options)
        key, target = idempotency_key_of(options), self._target()
        model = yield from self._client.model_for(options)
        request = turn_request(model, {"input": input}, target, options, key, background=True)
        exchange = RepeatedExchange(self._client.new_retry_count(), idempotency_key=key)
        accepted = decode_shape(AcceptedTurn, (yield from exchange.run(request)).body)
        self._set_id(accepted.chat.id)
        return accepted.id

    def events(self, turn: str, after: int) -> TurnFollower:
        if after < 0:
            raise InvalidInput("after must be the number of an event, or 0 for all.")
        client = self._client
        return TurnFollower(client.new_retry_count(), client.retries, turn=TurnId(turn), after=after)

    def _request_turn(
        self, body: Mapping[str, Any], options: TurnOptions, target: Mapping[str, Any]
    ) -> TurnFollower:
        check(options)
        self._client.check_model(options)
        key = idempotency_key_of(options)
        body_of(body)  # raises here, in the caller's frame, if the input cannot be sent

        def make_request() -> Steps[Request]:
            model = yield from self._client.model_for(options)
            return turn_request(model, body, target, options, key)

        return self._new_follower(
            make_request, key, may_be_replayed=options.get("idempotency_key") is not None
        )

    def resend(self, request: Request, idempotency_key: str) -> TurnFollower:
        """Request a turn again, by its original request."""

        def make_request() -> Steps[Request]:
            yield from ()
            return request

        return self._new_follower(make_request, idempotency_key)

    def _new_follower(
        self,
        make_request: Callable[[], Steps[Request]],
        idempotency_key: str,
        *,
        may_be_replayed: bool = True,
    ) -> TurnFollower:
        client = self._client
        follower = TurnFollower(
            client.new_retry_count(),
            client.retries,
            make_request=make_request,
            idempotency_key=idempotency_key,
            may_be_replayed=may_be_replayed,
            on_conversation=self._set_id,
        )
        with self._lock:
            self._followers[next(self._numbers)] = follower
        return follower

    def _target(self) -> dict[str, Any]:
        if self._uses_key:
            return self._key_target()
        return {"chat": self.id}

    def _current_target(self) -> dict[str, Any]:
        return self._key_target() if self.id is None else {"chat": self.id}

    def _key_target(self) -> dict[str, Any]:
        target = {"conversation_key": self.conversation_key}
        return target if self.scope is None else {**target, "scope": self.scope}

    def _set_id(self, id: ConversationId) -> None:
        self.id = id

    def answer(self, follower: TurnFollower) -> Steps[Answer]:
        """Return the committed turn of a follower that has reached its end."""
        if follower.turn is None or follower.finished is None:
            raise RequestFailed(
                "The stream was closed before the turn ended. Send the same request with its "
                "idempotency_key again."
            )
        try:
            state = yield from self._turn_state(follower)
        except ServerUnavailable as problem:
            message = f"The turn {follower.turn} has ended, but its answer could not be read. {problem}"
            message += " Retry with the same idempotency_key to receive it again."
            key = follower.idempotency_key
            raise copy_details(problem, ServerUnavailable(message, idempotency_key=key)) from None
        if state.turn is None or state.branch is None:
            raise TurnStopped() if state.state == AttemptState.DISCARDED else error_of_failure(state.failure)
        return Answer(
            turn=state.turn,
            chat=state.chat,
            branch=state.branch,
            state=follower.state,
            is_replayed=follower.is_replayed,
        )

    def _turn_state(self, follower: TurnFollower) -> Steps[TurnState]:
        try:
            state = yield from self._client.get(f"/api/turns/{follower.turn}", TurnState)
        except NotAdmitted as refused:
            if refused.status != FORBIDDEN or follower.request is None:
                raise
            # A token that may run turns, but not read, gets the answer to its own request.
            exchange = RepeatedExchange(
                self._client.new_retry_count(), idempotency_key=follower.idempotency_key
            )
            reply = yield from exchange.run(without_stream(follower.request))
            state = decode_shape(TurnState, reply.body)
        return state

    def stop(self, turn: str | None, policy: str | None) -> Steps[StopOutcome | None]:
        """Stop a turn; or the oldest one that was requested here and is not known to have ended; or the
        running one of the chat; None if there was nothing to stop. If nothing runs, turns that were requested
        here and have no id yet are stopped as soon as they begin."""
        check_stop_policy(policy)  # even if there is nothing to stop
        if turn is not None:
            return (yield from self._client.request_stop(f"/api/turns/{TurnId(turn)}/stop", policy))
        for number, follower in self._running_followers().items():
            if follower.turn is None:
                continue
            ended = yield from self._client.request_stop(f"/api/turns/{follower.turn}/stop", policy)
            if ended is not None:
                with self._lock:
                    self._followers.pop(number, None)  # it has ended, even if its stream is never read
                return ended
        ended = None
        with suppress(ConversationNotFound):  # or its first turn has not begun
            path = f"/api/chats/{(yield from self.resolve_id())}/stop"
            # A repeated request would also stop the next turn in line.
            ended = yield from self._client.request_stop(path, policy, hint=_STOP_HINT)
        if ended is None:
            for follower in self._running_followers().values():
                follower.stop_when_begun(partial(self.stop, policy=policy))
        return ended

    def _running_followers(self) -> dict[int, TurnFollower]:
        with self._lock:
            return {number: each for number, each in self._followers.items() if each.finished is None}

    def resolve_id(self) -> Steps[ConversationId]:
        """Return the id, looked up if only the conversation_key is known. Raises ConversationNotFound."""
        if self.id is None:
            assert self.conversation_key is not None  # noqa: S101 - it is named by one of the two
            found = yield from self._client.find(self.conversation_key, self.scope)
            if found is None:
                raise ConversationNotFound
            self.id = found.id
        return self.id

    def read(
        self, before: int | None = None, limit: int | None = None, branch: str | None = None
    ) -> Steps[ChatPage]:
        query = {"before": before, "limit": limit, "branch": None if branch is None else BranchId(branch)}
        page = yield from self._get("", ShownChat, query)
        info = {name: getattr(page, name) for name in ListedChat.__struct_fields__}
        return ChatPage(chat=ListedChat(**info), turns=page.turns, before=page.before, attempts=page.attempts)

    def info(self) -> Steps[ChatInfo]:
        page = yield from self.read(limit=1)
        return page.chat

    def turns_page(self, cursor: str | None, limit: int, *, branch: str | None) -> Steps[Page[Turn]]:
        """Return a page of turns, the newest first. Without a named branch, the cursor keeps the branch of
        the first page, even if the chat shows another one later."""
        number, _, first = (cursor or "").partition(" ")
        before = int(number) if number else None
        try:
            page = yield from self.read(before, limit, branch or first or None)
        except BranchNotFound:
            if not first:
                raise
            # The branch is gone; or this caller came by a share link and cannot name branches.
            page, first = (yield from self.read(before, limit)), ""
        else:
            first = first or (page.chat.branch or "" if cursor is None and branch is None else "")
        next_cursor = None if page.before is None else f"{page.before} {first}".rstrip()
        return Page(tuple(reversed(page.turns)), next_cursor)

    def branches_page(self, cursor: str | None, limit: int) -> Steps[Page[Branch]]:
        return self._get("/branches", BranchPage, {"before": cursor, "limit": limit})

    def context(self, last: int | None, budget: int | None, after: str | None) -> Steps[ChatContext]:
        return self._get("/context", ChatContext, {"last": last, "budget": budget, "after": after})

    def siblings(self, turn: str) -> Steps[tuple[Sibling, ...]]:
        page = yield from self._get(f"/turns/{TurnId(turn)}/siblings", Page[Sibling], {})
        return page.data

    def export(self, format: str) -> Steps[None]:
        id = yield from self.resolve_id()
        query = query_of({"format": format})
        request = Request(method="GET", path=f"/api/chats/{id}/export", query=query)
        yield from download(self._client.new_retry_count(), request)

    def update(self, revision: int | None = None, **fields: Any) -> Steps[ChatInfo]:
        values = {name: value for name, value in fields.items() if value is not UNSET}
        headers = {"content-type": JSON_TYPE}
        if revision is not None:
            headers["if-match"] = f'"{revision}"'
        id = yield from self.resolve_id()
        request = Request(method="PATCH", path=f"/api/chats/{id}", headers=headers, body=body_of(values))
        exchange = RepeatedExchange(self._client.new_retry_count())
        try:
            reply = yield from exchange.run(request)
        except RevisionConflict as conflict:
            return _accept_own_change(conflict, exchange, values, revision)
        return decode_shape(ListedChat, reply.body)

    def append(
        self, items: Input, details: Mapping[str, Any] | None, interaction: bool, options: TurnOptions
    ) -> Steps[Turn]:
        values: dict[str, Any] = {"items": items} if details is None else {"items": items, "details": details}
        if not interaction:
            values["interaction"] = False
        answer = yield from self._post("/items", TurnAnswer, values, options)
        return answer.turn

    def flag(self, turn: str, **fields: Any) -> Steps[TurnFlags]:
        values = {name: value for name, value in fields.items() if value is not None}
        path = f"/api/chats/{(yield from self.resolve_id())}/turns/{TurnId(turn)}"
        headers = {"content-type": JSON_TYPE}
        request = Request(method="PATCH", path=path, headers=headers, body=body_of(values))
        reply = yield from RepeatedExchange(self._client.new_retry_count()).run(request)
        return decode_shape(TurnFlags, reply.body)

    def fork(self, at: str | None, fields: Mapping[str, Any], options: TurnOptions) -> Steps[ChatInfo]:
        values = {name: value for name, value in fields.items() if value is not None}
        if at is not None:
            values["turn"] = TurnId(at)
        return self._post("/fork", ListedChat, values, options)

    def switch(self, branch: str, options: TurnOptions) -> Steps[ChatInfo]:
        return self._post("/switch", ListedChat, {"branch": BranchId(branch)}, options)

    def undo(self, turn: str | None, forget: bool, options: TurnOptions) -> Steps[ChatInfo]:
        values = {"forget": forget} if turn is None else {"turn": TurnId(turn), "forget": forget}
        return self._post("/undo", ListedChat, values, options)

    def delete(self, purge: bool) -> Steps[Deletion]:
        """Delete it. After a lost response, a missing chat counts as deleted."""
        id = yield from self.resolve_id()
        request = Request(method="DELETE", path=f"/api/chats/{id}", query=query_of({"purge": purge or None}))
        exchange = RepeatedExchange(self._client.new_retry_count())
        try:
            reply = yield from exchange.run(request)
        except ConversationUnavailable:
            if not exchange.may_be_done:
                raise
            return Deletion(id=id, state="purged" if purge else "deleted")
        return decode_shape(Deletion, reply.body)

    def restore(self) -> Steps[ChatInfo]:
        return self._post("/restore", RestoredChat, {})

    def _get(self, below: str, shape: type[Shape], query: Mapping[str, Any]) -> Steps[Shape]:
        id = yield from self.resolve_id()
        return (yield from self._client.get(f"/api/chats/{id}{below}", shape, query))

    def _post(
        self, below: str, shape: type[Shape], values: Mapping[str, Any], options: TurnOptions | None = None
    ) -> Steps[Shape]:
        id = yield from self.resolve_id()
        return (yield from self._client.post(f"/api/chats/{id}{below}", shape, values, options=options))


def _accept_own_change(
    conflict: RevisionConflict, exchange: RepeatedExchange, values: Mapping[str, Any], revision: int | None
) -> ChatInfo:
    """Return the chat if the conflicting change is our own, whose response was lost. Raises the conflict
    otherwise."""
    assert exchange.refusal is not None  # noqa: S101 - a conflict is a refusal
    chat = decode_shape(Conflict, exchange.refusal.body).chat
    conflict.current = chat.revision
    expected = {name: _empty_value(name, value) for name, value in values.items()}
    is_own = revision is not None and chat.revision == revision + 1
    if exchange.may_be_done and is_own and all(_has(chat, name, expected[name]) for name in expected):
        return chat
    raise conflict


def _empty_value(name: str, value: Any) -> Any:
    return {"metadata": {}, "tags": ()}.get(name) if value is None else value


def _has(chat: ChatInfo, name: str, value: Any) -> bool:
    found = getattr(chat, name)
    if name == "tags":
        return set(found) == set(value)
    if name == "title" and not value:
        return chat.named_by != "person"
    return bool(found == value)
