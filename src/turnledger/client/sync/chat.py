# Generated from client/aio by `make twins`. Edit that.
"""One chat, blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Unpack, overload

from msgspec import UNSET, UnsetType

from turnledger.api.chats import ChatInfo, Deletion
from turnledger.api.turns import Branch, ChatContext, Sibling, Turn, TurnFlags
from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore
from turnledger.client.core.turn_request import Input, TurnOptions
from turnledger.client.core.turn_stream import TurnFollower
from turnledger.client.shapes import Answer, ChatPage, StopOutcome, TurnEvent
from turnledger.client.sync.pages import Pages
from turnledger.client.sync.wire import Stream, Wire
from turnledger.model.ids import ConversationId, TurnId


class TurnStream(Stream[TurnEvent]):
    """The events of a turn as they arrive: TurnStarted, deltas (TextDelta, ReasoningDelta, RefusalDelta, and
    after ItemAdded ArgumentsDelta), ItemDone and at last TurnFinished. Then raises the error if the turn
    failed or was stopped; a stream of `events` only ends."""

    def __init__(self, wire: Wire, core: ChatCore, follower: TurnFollower) -> None:
        super().__init__(wire, follower.steps())
        self._core = core
        self._follower = follower

    @property
    def turn_id(self) -> TurnId | None:
        """The id of the turn; another one after a TurnRestarted."""
        return self._follower.turn

    @property
    def idempotency_key(self) -> str | None:
        """The same request under the same key is carried out once."""
        return self._follower.idempotency_key

    @property
    def text(self) -> str:
        """The text that this stream has received, without what a TurnRestarted or TurnResumed made void."""
        return self._follower.text

    def stop(self, policy: str | None = None) -> StopOutcome | None:
        """Stop the turn, from any thread. Return the final outcome, whichever won; None if there was nothing
        left to stop."""
        return self._wire.run(self._core.stop(self.turn_id, policy))

    def answer(self) -> Answer:
        """Read to the end, and return the committed turn. Raises the error of a turn that failed or was
        stopped."""
        for _ in self:
            pass
        return self._wire.run(self._core.answer(self._follower))


class Chat:
    """One chat on a server. Any number of threads may use it."""

    def __init__(self, wire: Wire, core: ChatCore, client: ClientCore) -> None:
        self._wire = wire
        self._core = core
        self._client = client

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id or self.conversation_key!r})"

    @property
    def id(self) -> ConversationId | None:
        """None until known, if the chat was opened by a conversation_key."""
        return self._core.id

    @property
    def conversation_key(self) -> str | None:
        return self._core.conversation_key

    @property
    def scope(self) -> str | None:
        return self._core.scope

    @overload
    def send(
        self, input: Input, *, stream: Literal[False] = False, **options: Unpack[TurnOptions]
    ) -> Answer: ...
    @overload
    def send(self, input: Input, *, stream: Literal[True], **options: Unpack[TurnOptions]) -> TurnStream: ...
    @overload
    def send(self, input: Input, *, stream: bool, **options: Unpack[TurnOptions]) -> Answer | TurnStream: ...
    def send(
        self, input: Input, *, stream: bool = False, **options: Unpack[TurnOptions]
    ) -> Answer | TurnStream:
        """Request a turn; return its answer, or with `stream` its events.

        A stream is returned once the turn has begun or is queued, with its id.
        The turn happens once, whatever happens to the connection and the server. Raises the error of a turn
        that failed or was stopped, and ServerUnavailable if its end could not be learned.
        """
        return self._run(self._core.send(input, options), stream)

    @overload
    def edit(
        self, turn: str, input: Input, *, stream: Literal[False] = False, **options: Unpack[TurnOptions]
    ) -> Answer: ...
    @overload
    def edit(
        self, turn: str, input: Input, *, stream: Literal[True], **options: Unpack[TurnOptions]
    ) -> TurnStream: ...
    @overload
    def edit(
        self, turn: str, input: Input, *, stream: bool, **options: Unpack[TurnOptions]
    ) -> Answer | TurnStream: ...
    def edit(
        self, turn: str, input: Input, *, stream: bool = False, **options: Unpack[TurnOptions]
    ) -> Answer | TurnStream:
        """Request a turn in place of another, on a new branch; see `send`."""
        return self._run(self._core.edit(turn, input, options), stream)

    @overload
    def regenerate(
        self, turn: str | None = None, *, stream: Literal[False] = False, **options: Unpack[TurnOptions]
    ) -> Answer: ...
    @overload
    def regenerate(
        self, turn: str | None = None, *, stream: Literal[True], **options: Unpack[TurnOptions]
    ) -> TurnStream: ...
    @overload
    def regenerate(
        self, turn: str | None = None, *, stream: bool, **options: Unpack[TurnOptions]
    ) -> Answer | TurnStream: ...
    def regenerate(
        self, turn: str | None = None, *, stream: bool = False, **options: Unpack[TurnOptions]
    ) -> Answer | TurnStream:
        """Request another answer to the input of a turn, or of the last one; see `send`."""
        return self._run(self._core.regenerate(turn, options), stream)

    def _run(self, follower: TurnFollower, stream: bool) -> Answer | TurnStream:
        turn_stream = TurnStream(self._wire, self._core, follower)
        if stream:
            return turn_stream._begin()
        with turn_stream:
            return turn_stream.answer()

    def enqueue(self, input: Input, **options: Unpack[TurnOptions]) -> TurnId:
        """Store a turn that a server runs in the background, and return its id, without waiting for it.

        It outlives this program and the server: another server resumes it after a crash. `events` and `stop`
        take its id; `send` with the same idempotency_key waits for its answer. `on_busy` and `on_disconnect`
        do not apply.
        """
        return self._wire.run(self._core.enqueue(input, options))

    def append(
        self,
        items: Input,
        *,
        details: Mapping[str, Any] | None = None,
        interaction: bool = True,
        on_busy: str | None = None,
        idempotency_key: str | None = None,
    ) -> Turn:
        """Add a turn that no model answers, such as items from elsewhere, and return it as committed.

        The items are the whole turn: a text is a user message, and an answer may follow. With
        `interaction=False` it postpones neither expiry nor a reset. For `on_busy` see `send`.
        """
        options: TurnOptions = {"on_busy": on_busy, "idempotency_key": idempotency_key}
        return self._wire.run(self._core.append(items, details, interaction, options))

    def stop(self, turn: str | None = None, *, policy: str | None = None) -> StopOutcome | None:
        """Stop the oldest turn that this object sent and that has not ended, running or queued; if there is
        none, the turn that runs in the chat. With `turn`, stop that one. Works from any thread. Return the
        final outcome, whichever won; None if there was nothing to stop."""
        return self._wire.run(self._core.stop(turn, policy))

    def events(self, turn: str, *, after: int = 0) -> TurnStream:
        """Read the events of any turn, after the number `after`, while it runs and after it has ended.

        Only reads: a failed turn ends with TurnFinished, raises no error and is not requested again. For a
        queued turn it waits.
        """
        return TurnStream(self._wire, self._core, self._core.events(turn, after))._begin()

    def info(self) -> ChatInfo:
        """Return the chat without its turns."""
        return self._wire.run(self._core.info())

    def read(self, before: int | None = None, limit: int = 50, branch: str | None = None) -> ChatPage:
        """Return the last turns, or those before a number; of the current branch, or another. Also returns
        the attempts outside the history: the running one, and failed ones."""
        return self._wire.run(self._core.read(before, limit, branch))

    def turns(self, *, branch: str | None = None, limit: int | None = None) -> Pages[Turn]:
        """Return the turns, the newest first."""
        return Pages(self._wire.run, partial(self._core.turns_page, branch=branch), limit)

    def branches(self) -> Pages[Branch]:
        """Return the branches, the newest first."""
        return Pages(self._wire.run, self._core.branches_page)

    def context(
        self, *, last: int | None = None, budget: int | None = None, after: str | None = None
    ) -> ChatContext:
        """Return what a model would be shown now, and its size in tokens: of the whole history, of the `last`
        turns, or of as many as fit into a `budget` of tokens; with `after`, as after that turn."""
        return self._wire.run(self._core.context(last, budget, after))

    def siblings(self, turn: str) -> tuple[Sibling, ...]:
        """Return all turns in the place of this one, the oldest first."""
        return self._wire.run(self._core.siblings(turn))

    def export(self, format: str = "jsonl") -> Stream[bytes]:
        """Export the chat as a file, line by line: `jsonl`, which can be imported, or `markdown` for people.
        Raises ServerUnavailable if it breaks off: then it is incomplete."""
        return Stream[bytes](self._wire, self._core.export(format))._begin()

    def update(
        self,
        *,
        title: str | UnsetType | None = UNSET,
        metadata: Mapping[str, str] | UnsetType | None = UNSET,
        tags: Sequence[str] | UnsetType | None = UNSET,
        pinned: bool | UnsetType = UNSET,
        archived: bool | UnsetType = UNSET,
        revision: int | None = None,
    ) -> ChatInfo:
        """Change details in one transaction; those left out stay. With a `revision`, raises RevisionConflict,
        and changes nothing, if the chat has changed since."""
        return self._wire.run(
            self._core.update(
                title=title,
                metadata=metadata,
                tags=tags,
                pinned=pinned,
                archived=archived,
                revision=revision,
            )
        )

    def rename(self, title: str | None, *, revision: int | None = None) -> ChatInfo:
        """Set the title; None: its first words again. For `revision` see `update`."""
        return self._wire.run(self._core.update(title=title, revision=revision))

    def pin(self, on: bool = True) -> ChatInfo:
        """Pin or unpin it."""
        return self._wire.run(self._core.update(pinned=on))

    def archive(self, on: bool = True) -> ChatInfo:
        """Archive or unarchive it."""
        return self._wire.run(self._core.update(archived=on))

    def flag(
        self,
        turn: str,
        items: Sequence[int] | None = None,
        *,
        to_model: bool | None = None,
        to_user: bool | None = None,
    ) -> TurnFlags:
        """Show items of a committed turn to models of later turns and to the user, or hide them; by their
        places through `input` and then `output`, or all. A flag left out stays. A call and its result are
        hidden together."""
        return self._wire.run(self._core.flag(turn, items=items, to_model=to_model, to_user=to_user))

    def fork(
        self,
        at: str | None = None,
        title: str | None = None,
        *,
        internal: bool = False,
        expires_after: float | None = None,
        idempotency_key: str | None = None,
    ) -> Chat:
        """Start a chat with the history of this one, up to a turn or to its end; once under the same
        idempotency_key. For `internal` and `expires_after` see `chats.create`."""
        fields = {"title": title, "internal": internal or None, "expires_after": expires_after}
        info = self._wire.run(self._core.fork(at, fields, {"idempotency_key": idempotency_key}))
        return Chat(self._wire, ChatCore.from_info(self._client, info), self._client)

    def switch(
        self, branch: str, *, on_busy: str | None = None, idempotency_key: str | None = None
    ) -> ChatInfo:
        """Show another branch, and continue there. For `on_busy` see `send`."""
        options: TurnOptions = {"on_busy": on_busy, "idempotency_key": idempotency_key}
        return self._wire.run(self._core.switch(branch, options))

    def undo(
        self,
        turn: str | None = None,
        forget: bool = False,
        *,
        on_busy: str | None = None,
        idempotency_key: str | None = None,
    ) -> ChatInfo:
        """Take back the last turn; with `turn`, only if that is the last. With `forget`, the effects of its
        tools are dropped, too. For `on_busy` see `send`."""
        options: TurnOptions = {"on_busy": on_busy, "idempotency_key": idempotency_key}
        return self._wire.run(self._core.undo(turn, forget, options))

    def delete(self, purge: bool = False) -> Deletion:
        """Delete it; it can be restored for a while. With `purge` it cannot."""
        return self._wire.run(self._core.delete(purge))

    def restore(self) -> ChatInfo:
        """Restore it after it was deleted."""
        return self._wire.run(self._core.restore())
