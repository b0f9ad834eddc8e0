"""What is done with one chat, as the steps it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakSet

from msgspec import UNSET, UnsetType

from turnledger.api.chats import ChatInfo, Conflict, Deleted, ListedChat, Page, RestoredChat
from turnledger.api.turns import Branch, BranchPage, ShownChat, Sibling, StopAnswer, Turn, TurnState
from turnledger.client.core.client import ClientCore, query_of
from turnledger.client.core.download import download
from turnledger.client.core.exchange import Exchanging
from turnledger.client.core.steps import JSON_TYPE, Doing, Request
from turnledger.client.core.turn_request import (
    AskOptions,
    Said,
    body_of,
    check,
    idempotency_key_of,
    turn_request,
    whole,
)
from turnledger.client.core.turn_stream import FORBIDDEN, Following
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
from turnledger.model.attempt import AttemptState, OnStop
from turnledger.model.ids import BranchId, ConversationId, TurnId

_STOPPED = "What ran in the chat may have been stopped; look, then stop a turn by its id."


class ChatCore:
    """One chat, named by its id or by a conversation_key. The latter is whichever chat has the key: each turn
    goes there, and `id` is where the last one went."""

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
        self._asked_for: WeakSet[Following] = WeakSet()
        self._lock = Lock()
        """For that: threads may share a chat."""

    @classmethod
    def opened(
        cls, client: ClientCore, id: str | None, conversation_key: str | None, scope: str | None
    ) -> ChatCore:
        """One that is named. Raises InvalidId or InvalidInput."""
        if id is not None and (conversation_key is not None or scope is not None):
            raise InvalidInput("Name the chat by its id alone, or by a conversation_key and its scope.")
        return cls(client, id, conversation_key, scope, goes_by_key=id is None)

    @classmethod
    def told(cls, client: ClientCore, info: ChatInfo) -> ChatCore:
        """One that a server has told of."""
        return cls(client, info.id, info.conversation_key, info.scope)

    # Turns.

    def send(self, input: Said, options: AskOptions) -> Following:
        """Ask for a turn behind the last one."""
        return self._asked({"input": input}, options, self._place())

    def edit(self, turn: str, input: Said, options: AskOptions) -> Following:
        """Ask for a turn in the place of another."""
        return self._asked({"input": input, "replaces": TurnId(turn)}, options, self._place_known())

    def regenerate(self, turn: str | None, options: AskOptions) -> Following:
        """Ask the input of a turn once more; without one, of the last."""
        regenerates = True if turn is None else TurnId(turn)
        return self._asked({"regenerates": regenerates}, options, self._place_known())

    def events(self, turn: str, after: int) -> Following:
        """Read the events of a turn."""
        if after < 0:
            raise InvalidInput("after is the number of an event: 0 for all of them.")
        client = self._client
        return Following(client.trying(), client.retries, turn=TurnId(turn), after=after)

    def _asked(self, said: Mapping[str, Any], options: AskOptions, place: Mapping[str, Any]) -> Following:
        check(options)
        self._client.check_model(options)
        key = idempotency_key_of(options)
        body_of(said)  # what cannot be sent is refused here, where it was said

        def ask() -> Doing[Request]:
            model = yield from self._client.model_for(options)
            return turn_request(model, said, place, options, key)

        return self._followed(ask, key, may_be_replayed=options.get("idempotency_key") is not None)

    def again(self, request: Request, idempotency_key: str) -> Following:
        """Ask once more for a turn, by the request that asked for it."""

        def ask() -> Doing[Request]:
            yield from ()
            return request

        return self._followed(ask, idempotency_key)

    def _followed(
        self, ask: Callable[[], Doing[Request]], idempotency_key: str, *, may_be_replayed: bool = True
    ) -> Following:
        client = self._client
        following = Following(
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

    def answer(self, following: Following) -> Doing[Answer]:
        """The turn that was followed to its end, as it was committed."""
        if following.turn is None or following.finished is None:
            raise RequestFailed(
                "The stream was closed before the turn ended, so there is no answer yet. Send the same again "
                "under its idempotency_key to have it."
            )
        try:
            told = yield from self._told(following)
        except ServerUnavailable as problem:
            message = f"The turn {following.turn} has ended, but its answer could not be read. {problem}"
            message += " Ask again with the same idempotency_key, and it is told again."
            key = following.idempotency_key
            raise like(problem, ServerUnavailable(message, idempotency_key=key)) from None
        if told.turn is None or told.branch is None:
            raise TurnStopped() if told.state == AttemptState.DISCARDED else failed_with(told.failure)
        return Answer(
            turn=told.turn,
            chat=told.chat,
            branch=told.branch,
            state=following.state,
            is_replayed=following.is_replayed,
        )

    def _told(self, following: Following) -> Doing[TurnState]:
        try:
            told = yield from self._client.get(f"/api/turns/{following.turn}", TurnState)
        except NotAdmitted as refused:
            if refused.status != FORBIDDEN or following.request is None:
                raise
            # A token that may run turns, and not read, is given the answer to what it has asked.
            exchanging = Exchanging(self._client.trying(), idempotency_key=following.idempotency_key)
            reply = yield from exchanging.ask(whole(following.request))
            told = decoded(TurnState, reply.body)
        return told

    def stop(self, turn: str | None, policy: str | None) -> Doing[Ended | None]:
        """Stop a turn, or whichever runs in this chat; None if there was nothing to stop. One that was asked
        for here and has not begun is then stopped as soon as it does."""
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
            # Asked again after a lost answer, it would stop the next turn in line, too.
            ended = yield from self._stopped(path, policy, once=_STOPPED)
        if ended is None:
            for following in self._unended():
                following.stop_when_begun(partial(self.stop, policy=policy))
        return ended

    def _unended(self) -> list[Following]:
        with self._lock:
            return [each for each in self._asked_for if each.finished is None]

    def _stopped(self, path: str, policy: str | None, once: str | None = None) -> Doing[Ended | None]:
        values = {} if policy is None else {"policy": str(policy)}
        told = yield from self._client.post(path, StopAnswer, values, once=once)
        if told.state is None:
            return None
        return Ended(state=told.state, committed=told.committed, failure=told.failure, turn=told.turn)

    # Reading.

    def known_id(self) -> Doing[ConversationId]:
        """Its id, looked up where only the conversation_key is known. Raises ConversationNotFound."""
        if self.id is None:
            assert self.conversation_key is not None  # noqa: S101 - it is named by one of the two
            found = yield from self._client.find(self.conversation_key, self.scope)
            if found is None:
                raise ConversationNotFound
            self.id = found.id
        return self.id

    def read(
        self, before: int | None = None, limit: int | None = None, branch: str | None = None
    ) -> Doing[ChatPage]:
        """Some of its turns, and what is known of it."""
        id = yield from self.known_id()
        query = {"before": before, "limit": limit, "branch": None if branch is None else BranchId(branch)}
        page = yield from self._client.get(f"/api/chats/{id}", ShownChat, query)
        told = {name: getattr(page, name) for name in ListedChat.__struct_fields__}
        return ChatPage(chat=ListedChat(**told), turns=page.turns, before=page.before, attempts=page.attempts)

    def info(self) -> Doing[ChatInfo]:
        """What is known of it besides its turns."""
        page = yield from self.read(limit=1)
        return page.chat

    def turns_page(self, cursor: str | None, limit: int, *, branch: str | None) -> Doing[Page[Turn]]:
        """Turns from the newest backwards. Where no branch is named it is that of the first page, whatever
        the chat shows by then: the cursor tells it."""
        number, _, first = (cursor or "").partition(" ")
        before = int(number) if number else None
        try:
            page = yield from self.read(before, limit, branch or first or None)
        except BranchNotFound:
            if not first:
                raise
            # It is gone; or this is a reader by a link, who sees what the chat shows, and names no branch.
            page, first = (yield from self.read(before, limit)), ""
        else:
            first = first or (page.chat.branch or "" if cursor is None and branch is None else "")
        following = None if page.before is None else f"{page.before} {first}".rstrip()
        return Page(tuple(reversed(page.turns)), following)

    def branches_page(self, cursor: str | None, limit: int) -> Doing[Page[Branch]]:
        id = yield from self.known_id()
        query = {"before": cursor, "limit": limit}
        page = yield from self._client.get(f"/api/chats/{id}/branches", BranchPage, query)
        return page

    def siblings(self, turn: str) -> Doing[tuple[Sibling, ...]]:
        """The turns at the place of one that it shows, the first made first."""
        id = yield from self.known_id()
        path = f"/api/chats/{id}/turns/{TurnId(turn)}/siblings"
        page = yield from self._client.get(path, Page[Sibling])
        return page.data

    def export(self, format: str) -> Doing[None]:
        """The chat as a file, line by line."""
        id = yield from self.known_id()
        query = query_of({"format": format})
        request = Request(method="GET", path=f"/api/chats/{id}/export", query=query)
        yield from download(self._client.trying(), request)

    # Changing what people say of it.

    def update(
        self,
        *,
        title: str | UnsetType | None = UNSET,
        metadata: Mapping[str, str] | UnsetType | None = UNSET,
        tags: Sequence[str] | UnsetType | None = UNSET,
        pinned: bool | UnsetType = UNSET,
        archived: bool | UnsetType = UNSET,
        revision: int | None = None,
    ) -> Doing[ChatInfo]:
        """Change it in one step; with a revision, only if it is still the one that was read."""
        said = {"title": title, "metadata": metadata, "tags": tags, "pinned": pinned, "archived": archived}
        values = {name: value for name, value in said.items() if value is not UNSET}
        headers = {"content-type": JSON_TYPE}
        if revision is not None:
            headers["if-match"] = f'"{revision}"'
        id = yield from self.known_id()
        request = Request(method="PATCH", path=f"/api/chats/{id}", headers=headers, body=body_of(values))
        exchanging = Exchanging(self._client.trying())
        try:
            reply = yield from exchanging.ask(request)
        except RevisionConflict as conflict:
            return _unless_own(conflict, exchanging, values, revision)
        return decoded(ListedChat, reply.body)

    # Which turns it shows.

    def fork(self, at: str | None, title: str | None, keyed: AskOptions) -> Doing[ChatInfo]:
        """Make a chat that begins as this one does."""
        said = {"turn": None if at is None else TurnId(at), "title": title}
        values = {name: value for name, value in said.items() if value is not None}
        made = yield from self._moved("fork", values, keyed)
        return made

    def switch(self, branch: str, keyed: AskOptions) -> Doing[ChatInfo]:
        """Show another branch."""
        shown = yield from self._moved("switch", {"branch": BranchId(branch)}, keyed)
        return shown

    def undo(self, turn: str | None, forget: bool, keyed: AskOptions) -> Doing[ChatInfo]:
        """Take back the last turn."""
        values = {"forget": forget} if turn is None else {"turn": TurnId(turn), "forget": forget}
        shown = yield from self._moved("undo", values, keyed)
        return shown

    def _moved(self, verb: str, values: Mapping[str, Any], keyed: AskOptions) -> Doing[ChatInfo]:
        id = yield from self.known_id()
        told = yield from self._client.post(f"/api/chats/{id}/{verb}", ListedChat, values, keyed=keyed)
        return told

    # Deleting.

    def delete(self, purge: bool) -> Doing[Deleted]:
        """Delete it; where an answer was lost, finding it gone is the answer."""
        id = yield from self.known_id()
        request = Request(method="DELETE", path=f"/api/chats/{id}", query=query_of({"purge": purge or None}))
        exchanging = Exchanging(self._client.trying())
        try:
            reply = yield from exchanging.ask(request)
        except ConversationUnavailable:
            if not exchanging.may_be_done:
                raise
            return Deleted(id=id, state="purged" if purge else "deleted")
        return decoded(Deleted, reply.body)

    def restore(self) -> Doing[ChatInfo]:
        """Bring it back."""
        id = yield from self.known_id()
        restored = yield from self._client.post(f"/api/chats/{id}/restore", RestoredChat, {})
        return restored


def _unless_own(
    conflict: RevisionConflict, exchanging: Exchanging, values: Mapping[str, Any], revision: int | None
) -> ChatInfo:
    """The chat, where the change that was in the way is the one that was asked for, its answer lost. Raises
    the conflict otherwise."""
    assert exchanging.refusal is not None  # noqa: S101 - it told the conflict
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
