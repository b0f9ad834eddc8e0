"""One chat, as steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakSet

from msgspec import UNSET

from turnledger.api.chats import ChatInfo, Conflict, Deleted, ListedChat, Page, RestoredChat
from turnledger.api.turns import Branch, BranchPage, ShownChat, Sibling, StopAnswer, Turn, TurnState
from turnledger.client.core.client import ClientCore, query_of
from turnledger.client.core.exchange import RepeatedExchange
from turnledger.client.core.steps import JSON_TYPE, Request, Steps
from turnledger.client.core.transfer import download
from turnledger.client.core.turn_request import (
    AskOptions,
    Said,
    body_of,
    check,
    idempotency_key_of,
    turn_request,
    whole,
)
from turnledger.client.core.turn_stream import FORBIDDEN, TurnFollower
from turnledger.client.errors import failed_with, like
from turnledger.client.shapes import Answer, ChatPage, Ended, decoded
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
from turnledger.model.turn import AttemptState, OnStop

_STOPPED = "What ran in the chat may have been stopped; look, then stop a turn by its id."


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
        goes_by_key: bool = False,
    ) -> None:
        if id is None and not conversation_key:
            raise InvalidInput("Name the chat: its id, or a conversation_key.")
        self._client = client
        self.id = None if id is None else ConversationId(id)
        self.conversation_key = conversation_key
        self.scope = scope
        self._goes_by_key = goes_by_key
        self._asked_for: WeakSet[TurnFollower] = WeakSet()
        self._lock = Lock()
        """Guards that set: threads may share a chat."""

    @classmethod
    def opened(
        cls, client: ClientCore, id: str | None, conversation_key: str | None, scope: str | None
    ) -> ChatCore:
        """Name a chat. Raises InvalidId or InvalidInput."""
        if id is not None and (conversation_key is not None or scope is not None):
            raise InvalidInput("Name the chat by its id alone, or by a conversation_key and its scope.")
        return cls(client, id, conversation_key, scope, goes_by_key=id is None)

    @classmethod
    def told(cls, client: ClientCore, info: ChatInfo) -> ChatCore:
        return cls(client, info.id, info.conversation_key, info.scope)

    def send(self, input: Said, options: AskOptions) -> TurnFollower:
        return self._asked({"input": input}, options, self._place())

    def edit(self, turn: str, input: Said, options: AskOptions) -> TurnFollower:
        return self._asked({"input": input, "replaces": TurnId(turn)}, options, self._place_known())

    def regenerate(self, turn: str | None, options: AskOptions) -> TurnFollower:
        regenerates = True if turn is None else TurnId(turn)
        return self._asked({"regenerates": regenerates}, options, self._place_known())

    def events(self, turn: str, after: int) -> TurnFollower:
        if after < 0:
            raise InvalidInput("after must be the number of an event, or 0 for all.")
        client = self._client
        return TurnFollower(client.trying(), client.retries, turn=TurnId(turn), after=after)

    def _asked(self, body: Mapping[str, Any], options: AskOptions, place: Mapping[str, Any]) -> TurnFollower:
        check(options)
        self._client.check_model(options)
        key = idempotency_key_of(options)
        body_of(body)  # raises here, in the caller's frame, if the input cannot be sent

        def ask() -> Steps[Request]:
            model = yield from self._client.model_for(options)
            return turn_request(model, body, place, options, key)

        return self._followed(ask, key, may_be_replayed=options.get("idempotency_key") is not None)

    def again(self, request: Request, idempotency_key: str) -> TurnFollower:
        """Request a turn again, by its original request."""

        def ask() -> Steps[Request]:
            yield from ()
            return request

        return self._followed(ask, idempotency_key)

    def _followed(
        self, ask: Callable[[], Steps[Request]], idempotency_key: str, *, may_be_replayed: bool = True
    ) -> TurnFollower:
        client = self._client
        following = TurnFollower(
            client.trying(),
            client.retries,
            ask=ask,
            idempotency_key=idempotency_key,
            may_be_replayed=may_be_replayed,
            on_place=self._found_at,
        )
        with self._lock:
            self._asked_for.add(following)
        return following

    def _place(self) -> dict[str, Any]:
        if self._goes_by_key:
            return self._by_key()
        return {"chat": self.id}

    def _place_known(self) -> dict[str, Any]:
        return self._by_key() if self.id is None else {"chat": self.id}

    def _by_key(self) -> dict[str, Any]:
        place = {"conversation_key": self.conversation_key}
        return place if self.scope is None else {**place, "scope": self.scope}

    def _found_at(self, id: ConversationId) -> None:
        self.id = id

    def answer(self, following: TurnFollower) -> Steps[Answer]:
        """Return the committed turn of a follower that has reached its end."""
        if following.turn is None or following.finished is None:
            raise RequestFailed(
                "The stream was closed before the turn ended. Send the same request with its "
                "idempotency_key again."
            )
        try:
            state = yield from self._turn_state(following)
        except ServerUnavailable as problem:
            message = f"The turn {following.turn} has ended, but its answer could not be read. {problem}"
            message += " Retry with the same idempotency_key to receive it again."
            key = following.idempotency_key
            raise like(problem, ServerUnavailable(message, idempotency_key=key)) from None
        if state.turn is None or state.branch is None:
            raise TurnStopped() if state.state == AttemptState.DISCARDED else failed_with(state.failure)
        return Answer(
            turn=state.turn,
            chat=state.chat,
            branch=state.branch,
            state=following.state,
            is_replayed=following.is_replayed,
        )

    def _turn_state(self, following: TurnFollower) -> Steps[TurnState]:
        try:
            state = yield from self._client.get(f"/api/turns/{following.turn}", TurnState)
        except NotAdmitted as refused:
            if refused.status != FORBIDDEN or following.request is None:
                raise
            # A token that may run turns, but not read, gets the answer to its own request.
            exchanging = RepeatedExchange(self._client.trying(), idempotency_key=following.idempotency_key)
            reply = yield from exchanging.ask(whole(following.request))
            state = decoded(TurnState, reply.body)
        return state

    def stop(self, turn: str | None, policy: str | None) -> Steps[Ended | None]:
        """Stop a turn, or the running one of this chat; None if there was nothing to stop. A turn that was
        requested here and has not begun is stopped as soon as it begins."""
        if policy is not None and policy not in frozenset(OnStop):
            raise InvalidInput(f"policy is {policy!r}; it must be one of {', '.join(OnStop)}.")
        if turn is not None:
            return (yield from self._stopped(f"/api/turns/{TurnId(turn)}/stop", policy))
        for own in [each.turn for each in self._unended() if each.turn is not None]:
            ended = yield from self._stopped(f"/api/turns/{own}/stop", policy)
            if ended is not None:
                return ended
        ended = None
        with suppress(ConversationNotFound):  # or its first turn has not begun
            path = f"/api/chats/{(yield from self.known_id())}/stop"
            # A repeated request would also stop the next turn in line.
            ended = yield from self._stopped(path, policy, once=_STOPPED)
        if ended is None:
            for following in self._unended():
                following.stop_when_begun(partial(self.stop, policy=policy))
        return ended

    def _unended(self) -> list[TurnFollower]:
        with self._lock:
            return [each for each in self._asked_for if each.finished is None]

    def _stopped(self, path: str, policy: str | None, once: str | None = None) -> Steps[Ended | None]:
        values = {} if policy is None else {"policy": str(policy)}
        answer = yield from self._client.post(path, StopAnswer, values, once=once)
        if answer.state is None:
            return None
        return Ended(state=answer.state, committed=answer.committed, failure=answer.failure, turn=answer.turn)

    def known_id(self) -> Steps[ConversationId]:
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
        id = yield from self.known_id()
        query = {"before": before, "limit": limit, "branch": None if branch is None else BranchId(branch)}
        page = yield from self._client.get(f"/api/chats/{id}", ShownChat, query)
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
        following = None if page.before is None else f"{page.before} {first}".rstrip()
        return Page(tuple(reversed(page.turns)), following)

    def branches_page(self, cursor: str | None, limit: int) -> Steps[Page[Branch]]:
        id = yield from self.known_id()
        query = {"before": cursor, "limit": limit}
        return (yield from self._client.get(f"/api/chats/{id}/branches", BranchPage, query))

    def siblings(self, turn: str) -> Steps[tuple[Sibling, ...]]:
        id = yield from self.known_id()
        path = f"/api/chats/{id}/turns/{TurnId(turn)}/siblings"
        page = yield from self._client.get(path, Page[Sibling])
        return page.data

    def export(self, format: str) -> Steps[None]:
        id = yield from self.known_id()
        query = query_of({"format": format})
        request = Request(method="GET", path=f"/api/chats/{id}/export", query=query)
        yield from download(self._client.trying(), request)

    def update(self, revision: int | None = None, **fields: Any) -> Steps[ChatInfo]:
        values = {name: value for name, value in fields.items() if value is not UNSET}
        headers = {"content-type": JSON_TYPE}
        if revision is not None:
            headers["if-match"] = f'"{revision}"'
        id = yield from self.known_id()
        request = Request(method="PATCH", path=f"/api/chats/{id}", headers=headers, body=body_of(values))
        exchanging = RepeatedExchange(self._client.trying())
        try:
            reply = yield from exchanging.ask(request)
        except RevisionConflict as conflict:
            return _unless_own(conflict, exchanging, values, revision)
        return decoded(ListedChat, reply.body)

    def fork(self, at: str | None, title: str | None, keyed: AskOptions) -> Steps[ChatInfo]:
        fields = {"turn": None if at is None else TurnId(at), "title": title}
        values = {name: value for name, value in fields.items() if value is not None}
        return self._moved("fork", values, keyed)

    def switch(self, branch: str, keyed: AskOptions) -> Steps[ChatInfo]:
        return self._moved("switch", {"branch": BranchId(branch)}, keyed)

    def undo(self, turn: str | None, forget: bool, keyed: AskOptions) -> Steps[ChatInfo]:
        values = {"forget": forget} if turn is None else {"turn": TurnId(turn), "forget": forget}
        return self._moved("undo", values, keyed)

    def _moved(self, verb: str, values: Mapping[str, Any], keyed: AskOptions) -> Steps[ChatInfo]:
        id = yield from self.known_id()
        return (yield from self._client.post(f"/api/chats/{id}/{verb}", ListedChat, values, keyed=keyed))

    def delete(self, purge: bool) -> Steps[Deleted]:
        """Delete it. After a lost response, a missing chat counts as deleted."""
        id = yield from self.known_id()
        request = Request(method="DELETE", path=f"/api/chats/{id}", query=query_of({"purge": purge or None}))
        exchanging = RepeatedExchange(self._client.trying())
        try:
            reply = yield from exchanging.ask(request)
        except ConversationUnavailable:
            if not exchanging.may_be_done:
                raise
            return Deleted(id=id, state="purged" if purge else "deleted")
        return decoded(Deleted, reply.body)

    def restore(self) -> Steps[ChatInfo]:
        id = yield from self.known_id()
        return (yield from self._client.post(f"/api/chats/{id}/restore", RestoredChat, {}))


def _unless_own(
    conflict: RevisionConflict, exchanging: RepeatedExchange, values: Mapping[str, Any], revision: int | None
) -> ChatInfo:
    """Return the chat if the conflicting change is our own, whose response was lost. Raises the conflict
    otherwise."""
    assert exchanging.refusal is not None  # noqa: S101 - a conflict is a refusal
    chat = decoded(Conflict, exchanging.refusal.body).chat
    conflict.current = chat.revision
    wanted = {name: _emptied(name, value) for name, value in values.items()}
    is_own = revision is not None and chat.revision == revision + 1
    if exchanging.may_be_done and is_own and all(_has(chat, name, wanted[name]) for name in wanted):
        return chat
    raise conflict


def _emptied(name: str, value: Any) -> Any:
    return {"metadata": {}, "tags": ()}.get(name) if value is None else value


def _has(chat: ChatInfo, name: str, value: Any) -> bool:
    found = getattr(chat, name)
    if name == "tags":
        return set(found) == set(value)
    if name == "title" and not value:
        return chat.named_by != "person"
    return bool(found == value)
