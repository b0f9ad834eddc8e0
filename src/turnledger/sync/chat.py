# Generated from chat.py by `make twins`. Edit that.
"""Chat for blocking programs: the methods of the awaiting one, without `await`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

from turnledger.chat import Chat as AwaitingChat
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.outcome import TurnStatus
from turnledger.engine.conversations.read import (
    ChatPage,
    ListedBranch,
    SetAsideAttempt,
)
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.lifecycle.moves import Sibling
from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.preview import ChatSnapshot
from turnledger.engine.turn.resent_request import ChatMessage, OnDivergence
from turnledger.engine.turn.validation import (
    Input,
    JobOptions,
    MoveOptions,
    TurnOptions,
)
from turnledger.model.catalogue import ChatEntry
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.event import Event
from turnledger.model.flags import FlagsByTurn, HiddenItems
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import OnStop, Turn
from turnledger.sync.block import AnyRunner, TurnBlock
from turnledger.sync.loop import LedgerLoop


class Chat:
    """One chat, as one owner sees it.

    A Chat that was opened `within` a scope or a single chat reaches nothing else. This is checked
    once, on opening: a chat never changes its scope, and chats that share turns have the same
    scope.
    """

    def __init__(self, loop: LedgerLoop, inner: AwaitingChat) -> None:
        self._loop = loop
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def is_new(self) -> bool:
        """Whether the call that returned this handle created the chat."""
        return self._inner.is_new

    @property
    def id(self) -> ConversationId:
        return self._inner.id

    @property
    def as_opened(self) -> Conversation:
        """The chat as it was when opened, created or restored; `info` reads its current state."""
        return self._inner.as_opened

    @property
    def owner(self) -> str:
        return self._inner.owner

    @property
    def conversation_key(self) -> str | None:
        return self._inner.conversation_key

    @property
    def former_conversation_key(self) -> str | None:
        """The key it had until another chat took it: by a reset, or while this one was deleted."""
        return self._inner.former_conversation_key

    @property
    def scope(self) -> str:
        """The application that the chat is for; empty for none."""
        return self._inner.scope

    def turn(
        self, input: Input, *, on_event: EventSink | None = None, **options: Unpack[TurnOptions]
    ) -> TurnBlock:
        """Run one turn as a block: `with chat.turn("Hello") as turn: …`; or with a runner:
        `chat.turn("Hello").run(runner)`. All methods that return a TurnBlock work like this.

        The turn is committed when the block ends normally. After an exception or a cancellation the history
        is unchanged. `turn.stop()` keeps the turn as interrupted. An idempotency_key of a committed turn
        raises TurnReplayed with that turn, and the block does not run. If its attempt still runs, the call
        waits for the end, or with `attach=True` raises TurnAttached at once.

        `instructions` (a text, or system and developer messages) are recorded with the turn, and apply to it
        and all later turns until replaced; an empty text ends them. `instructions_once` apply to this turn
        only. `primer` is a history of your own, shown to the model before the stored one and not stored;
        `context` limits how much of the stored one is shown. `on_busy`, `on_stop` and `on_failure` set the
        policies. With `interaction=False` the turn does not count as use: it postpones neither expiry nor a
        reset.

        With `after`, the turn follows that turn, on any branch, and never waits: at the end of the shown
        branch or of a side branch if its lane is free, else on a new side branch, which the chat does not
        show. See `branches` and `switch`.
        """
        return TurnBlock(
            self._loop, self._loop.call(lambda: self._inner.turn(input, on_event=on_event, **options))
        )

    def run(
        self,
        runner: AnyRunner,
        input: Input,
        *,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Run one turn with a runner, as `chat.turn(…).run(runner)`, and return the committed turn; see
        Ledger.run.
        """
        return TurnBlock(
            self._loop, self._loop.call(lambda: self._inner.turn(input, on_event=on_event, **options))
        ).run(runner)

    def resent(
        self,
        messages: Sequence[ChatMessage],
        *,
        sent: SentMessages | str | None = None,
        on_divergence: OnDivergence | str = OnDivergence.BRANCH,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run the turn that a list of chat messages asks for, as a block. For clients that send their whole
        history each time.

        The stored history is matched against the messages, even if the client trimmed them; the messages
        after the match are the input. A history that ends with an earlier question asks for another answer
        to it, see `regenerate`. Any other one continues from the last turn that both sides have, on a new
        branch, or raises HistoryDiverged if `on_divergence` is `reject`. Leading system and developer
        messages are the instructions. `sent="new"` declares all messages as input, `"full"` as the whole
        history.
        """
        return TurnBlock(
            self._loop,
            self._loop.call(
                lambda: self._inner.resent(
                    messages, sent=sent, on_divergence=on_divergence, on_event=on_event, **options
                )
            ),
        )

    def append(
        self,
        items: Input,
        *,
        details: Mapping[str, Any] | None = None,
        interaction: bool = True,
        **options: Unpack[MoveOptions],
    ) -> Turn:
        """Add a turn that no model answers, such as items from elsewhere, and return it as committed.

        The items are the whole turn: a text is a user message, and an answer may follow. Calls need their
        results, as everywhere; those at the end may be left open for the next turn. It takes the lane as a
        turn does. The same call with the same idempotency_key returns the same turn. When it is cancelled,
        the turn may be added. Raises what a turn with these options raises.
        """
        return self._loop.run(self._inner.append(items, details=details, interaction=interaction, **options))

    def snapshot(self, input: Input = (), **options: Unpack[TurnOptions]) -> ChatSnapshot:
        """Return what a model would be shown now, for a turn with this input and these options: for previews,
        to count tokens, and for answers that are not kept. Waits for no running turn and writes nothing.
        Effects of tools that wait to be settled are included. Raises what the turn raises for its input.
        """
        return self._loop.run(self._inner.snapshot(input, **options))

    def enqueue(self, input: Input, **options: Unpack[JobOptions]) -> TurnId:
        """Store a turn as durable work, and return its id; see Ledger.work, which runs it.

        It takes a place in the queue that outlives this process. If the process that runs it dies, another
        one resumes it after its last finished step, at most three times. `outcome`, `status`, `events` and
        `stop` take its id at any time. The same call with the same idempotency_key returns the same id.
        Raises what a turn raises, and QueueFull if too much is waiting.
        """
        return self._loop.run(self._inner.enqueue(input, **options))

    def edit(
        self, turn: str, input: Input, *, on_event: EventSink | None = None, **options: Unpack[TurnOptions]
    ) -> TurnBlock:
        """Run a turn in place of an earlier one, as a block.

        It sees the history before that turn and commits on a new branch, which the chat then shows;
        the old branch stays, see `siblings` and `switch`. Until the commit, and if it fails, nothing changes.
        It takes over the instructions of that turn, unless it brings its own. Raises TurnNotFound if the turn
        is not on the branch that the chat shows.
        """
        return TurnBlock(
            self._loop, self._loop.call(lambda: self._inner.edit(turn, input, on_event=on_event, **options))
        )

    def regenerate(
        self, turn: str | None = None, *, on_event: EventSink | None = None, **options: Unpack[TurnOptions]
    ) -> TurnBlock:
        """Run the last turn again, or the one named, with the same input, as a block; see `edit`."""
        return TurnBlock(
            self._loop, self._loop.call(lambda: self._inner.regenerate(turn, on_event=on_event, **options))
        )

    def fork(
        self,
        turn: str | None = None,
        *,
        conversation_key: str | None = None,
        internal: bool = False,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        expires_after: float | None = None,
        idempotency_key: str | None = None,
    ) -> Chat:
        """Start a new chat with the history of this one, up to a turn or to its end.

        Copies only the tool effects of later, incomplete turns; deleting this chat does not affect
        the fork. The fork has the same scope and inherits no details, see Ledger.conversation. The same call
        with the same idempotency_key returns the same fork; `is_new` reports whether this call created it.
        Raises TurnNotFound, and InvalidInput if the conversation_key is taken.
        """
        return Chat(
            self._loop,
            self._loop.run(
                self._inner.fork(
                    turn,
                    conversation_key=conversation_key,
                    internal=internal,
                    title=title,
                    metadata=metadata,
                    expires_after=expires_after,
                    idempotency_key=idempotency_key,
                )
            ),
        )

    def undo(
        self, turn: str | None = None, *, forget: bool = False, **options: Unpack[MoveOptions]
    ) -> Branch:
        """Take back the last turn, and return the branch without it, which the chat then shows.

        With `turn`, only if that is the last one; raises HistoryDiverged if it was undone already or other
        turns follow it. Effects of tools in incomplete turns are carried to the new branch, unless `forget`
        is set. Raises TurnNotFound if there is no turn to take back, and what a turn with these options
        raises.
        """
        return self._loop.run(self._inner.undo(turn, forget=forget, **options))

    def switch(self, branch: str, **options: Unpack[MoveOptions]) -> Branch:
        """Show another branch of the chat, and continue there. Effects of tools in incomplete turns
        on the branch that is left are added after its head. Raises BranchNotFound, and what a turn with
        these options raises.
        """
        return self._loop.run(self._inner.switch(branch, **options))

    def branches(self, *, before: str | None = None, limit: int = 50) -> list[ListedBranch]:
        """Return the branches of the chat, the newest first; `before` is the last id of the previous
        page. Raises BranchNotFound for an unknown one.
        """
        return self._loop.run(self._inner.branches(before=before, limit=limit))

    def siblings(self, turn: str, *, limit: int = 50) -> list[Sibling]:
        """Return the turns made in place of this one, and itself, each with the branch that shows it."""
        return self._loop.run(self._inner.siblings(turn, limit=limit))

    def read(
        self,
        *,
        before: int | None = None,
        limit: int = 50,
        most_bytes: int | None = None,
        branch: str | None = None,
    ) -> ChatPage:
        """Return the chat with its last turns and its attempts, all as of one moment: a turn that commits
        meanwhile is in one of the two. The arguments are those of `turns`, and bound the attempts likewise;
        attempts of other side branches are left out. Raises BranchNotFound.
        """
        return self._loop.run(
            self._inner.read(before=before, limit=limit, most_bytes=most_bytes, branch=branch)
        )

    def turns(
        self,
        *,
        before: int | None = None,
        limit: int = 50,
        most_bytes: int | None = None,
        branch: str | None = None,
    ) -> list[Turn]:
        """Return a page of committed turns in order: the last ones, or those before a turn's number; of the
        branch that is shown, or of another. Includes hidden items, see `flags`. With `most_bytes` the page
        ends before it is larger, but has at least one turn. `read` has the running turns, too. Raises
        BranchNotFound.
        """
        return self._loop.run(
            self._inner.turns(before=before, limit=limit, most_bytes=most_bytes, branch=branch)
        )

    def history(self) -> list[Item]:
        """Return all items of committed turns that the user sees, in order: without those hidden by
        `to_user=False`, and the other half of their pair.
        """
        return self._loop.run(self._inner.history())

    def flag(
        self,
        turn: str,
        item: int | Iterable[int] | None = None,
        *,
        to_model: bool | None = None,
        to_user: bool | None = None,
    ) -> HiddenItems:
        """Show or hide items of a committed turn, by their places among `turn.items`, or all of them; return
        the places of those that are hidden.

        Applies to turns that begin later, not to a running one. Hiding a call or its result hides both, and
        the reasoning that led to them. Raises TurnNotFound.
        """
        return self._loop.run(self._inner.flag(turn, item, to_model=to_model, to_user=to_user))

    def flags(self, *turns: str) -> FlagsByTurn:
        """Return the flags of these turns: turn → place among its items → flags, for each hidden item."""
        return self._loop.run(self._inner.flags(*turns))

    def hidden(self, turns: Sequence[Turn]) -> list[HiddenItems]:
        """Return, for each of these turns as read here, the places of the items that `history` leaves out,
        and of those that the model of a later turn does not receive.
        """
        return self._loop.run(self._inner.hidden(turns))

    def instructions(self) -> tuple[Item, ...]:
        """Return the instructions that apply to the next turn, unless it brings its own."""
        return self._loop.run(self._inner.instructions())

    def attempts(
        self, *, limit: int = 50, most_bytes: int | None = None, branch: str | None = None
    ) -> list[SetAsideAttempt]:
        """Return the attempts outside the history: running, failed, discarded; newest first. With
        `most_bytes` the page ends before it is larger, but has at least one. With `branch`, attempts of other
        side branches are left out; raises BranchNotFound.
        """
        return self._loop.run(self._inner.attempts(limit=limit, most_bytes=most_bytes, branch=branch))

    def stop(self, turn: str | None = None, *, policy: OnStop | str | None = None) -> Outcome | None:
        """Stop the running turn, or the named one, running or queued, in any process.

        Returns once it is final, with the outcome that won; None if there was nothing to stop.
        """
        return self._loop.run(self._inner.stop(turn, policy=policy))

    def outcome(self, turn: str) -> Outcome:
        """Wait until a turn has ended, in any process, and return how: its state, the turn it left, if any,
        and its failure. If its process is dead, the turn is ended by its policies.

        Raises TurnNotFound, also for a turn withdrawn from the queue, ConversationDeleted,
        ConversationExpired and, when the ledger is closed, LedgerClosed.
        """
        return self._loop.run(self._inner.outcome(turn))

    def status(self, turn: str) -> TurnStatus:
        """Return the state of a turn, committed or not, and of this chat at the same moment;
        `outcome` waits for its end. Raises what that raises.
        """
        return self._loop.run(self._inner.status(turn))

    def events(self, turn: str, *, after: int = 0) -> Iterator[Event]:
        """Read the events of a turn: `for event in chat.events(turn.id, after=7)`.

        Yields every event numbered above `after`, in order, and ends after TurnFinished. That one always
        comes, even if `after` lies beyond it: a process may send events and die before writing them. The turn
        may have ended or be running, in any process. For a queued turn this waits until it begins, and ends
        without an event if it is withdrawn. Raises TurnNotFound, ConversationDeleted, ConversationExpired,
        TooManyReaders and, when the ledger is closed, LedgerClosed.
        """
        return self._loop.iterate(self._inner.events(turn, after=after))

    def info(self) -> Conversation:
        """Return the chat as it is: title, metadata, revision, times."""
        return self._loop.run(self._inner.info())

    def summary(self) -> ChatEntry:
        """Return the chat as a list shows it: with its number of turns, preview, and whether a turn
        runs.
        """
        return self._loop.run(self._inner.summary())

    def update(
        self,
        *,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Iterable[str] | None = None,
        pinned: bool | None = None,
        archived: bool | None = None,
        revision: int | None = None,
    ) -> Conversation:
        """Set the given details, in one transaction.

        With the `revision` that was read, only if it is still current, or the values are the same already;
        otherwise raises RevisionConflict. Never disturbs a running turn. An automatic title never replaces
        one given here; an empty title removes it, and the chat is shown by its first words again.
        Retention never removes pinned chats; archived ones are listed separately.
        """
        return self._loop.run(
            self._inner.update(
                title=title, metadata=metadata, tags=tags, pinned=pinned, archived=archived, revision=revision
            )
        )

    def delete(self, *, purge: bool = False) -> Conversation:
        """Delete the chat and return it as deleted. Ends a running turn and frees the
        conversation_key.

        It can be restored until `purge_at`, see Ledger.restore. With `purge` it cannot: its turns are removed
        soon, except those that its forks show. Deleting it again changes nothing, unless it is to be purged
        now.
        """
        return self._loop.run(self._inner.delete(purge=purge))
