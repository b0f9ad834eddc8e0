"""A chat, as its owner sees it. Run turns on it; read its history, branch it, hide parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Unpack

from turnledger.engine.admission import Authorization, persist_admitted
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.outcome import FindOutcomeRequest, TurnStatus, read_status, wait_for_turn
from turnledger.engine.attempt.stop import stop_turn
from turnledger.engine.conversations.details import UpdateRequest, check_details, details_of, tags_of, update
from turnledger.engine.conversations.flags import FlagRequest, FlagsOfRequest, flag, flags_in
from turnledger.engine.conversations.read import (
    BranchesRequest,
    ChatPage,
    InfoRequest,
    ListedBranch,
    SetAsideAttempt,
    TurnPageRequest,
    attempts_page,
    branches,
    hidden_in,
    instructions_in_force,
    read_chat,
    read_conversation,
    read_entry,
    turns_page,
    whole_history,
)
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.events.reader import read_events
from turnledger.engine.lifecycle.delete import delete_for
from turnledger.engine.lifecycle.moves import Move, Sibling, SiblingsRequest, Switch, Undo, fork, siblings
from turnledger.engine.ports import Runner
from turnledger.engine.process import Process
from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.block import TurnBlock, append_items, relocate
from turnledger.engine.turn.preview import ChatSnapshot, preview
from turnledger.engine.turn.resent_request import ChatMessage, OnDivergence
from turnledger.engine.turn.validation import (
    PAGE,
    Input,
    JobOptions,
    MoveOptions,
    TurnOptions,
    append_request,
    check_limit,
    check_may_make,
    divergence_of,
    fork_request,
    job_request,
    move_request,
    preview_request,
    resent_request,
    stop_request,
    target_of,
    turn_request,
)
from turnledger.engine.turn.worker import enqueue
from turnledger.errors import InvalidInput
from turnledger.model.catalogue import ChatEntry
from turnledger.model.conversation import EVERYWHERE, Branch, Conversation, Within
from turnledger.model.event import Event
from turnledger.model.flags import FlagsByTurn, HiddenItems
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.text.plain import plain
from turnledger.model.turn import OnStop, Turn


class Chat:
    """One chat, as one owner sees it.

    A Chat that was opened `within` a scope or a single chat reaches nothing else. This is checked
    once, on opening: a chat never changes its scope, and chats that share turns have the same
    scope.
    """

    def __init__(
        self,
        process: Process,
        found: Conversation,
        *,
        is_new: bool = False,
        within: Within = EVERYWHERE,
        authorization: Authorization | None = None,
    ) -> None:
        self._process = process
        self._authorization = authorization
        self._found = found
        self._target = Target(found.owner, found.id, found.conversation_key, scope=found.scope, within=within)
        self.is_new: bool = is_new
        """Whether the call that returned this handle created the chat."""

    def __repr__(self) -> str:
        title = f' "{plain(self._found.title)}"' if self._found.title else ""
        return f"<Chat {self.id}{title}>"

    @property
    def id(self) -> ConversationId:
        return self._found.id

    @property
    def as_opened(self) -> Conversation:
        """The chat as it was when opened, created or restored; `info` reads its current state."""
        return self._found

    @property
    def owner(self) -> str:
        return self._found.owner

    @property
    def conversation_key(self) -> str | None:
        return self._found.conversation_key

    @property
    def former_conversation_key(self) -> str | None:
        """The key it had until another chat took it: by a reset, or while this one was deleted."""
        return self._found.former_conversation_key

    @property
    def scope(self) -> str:
        """The application that the chat is for; empty for none."""
        return self._found.scope

    def turn(
        self,
        input: Input,
        *,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run one turn as a block: `async with chat.turn("Hello") as turn: …`; or with a runner:
        `await chat.turn("Hello").run(runner)`. All methods that return a TurnBlock work like this.

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
        request = turn_request(self._process, self._target, self._authorization, input, **options)
        return TurnBlock(self._process, request, on_event)

    async def run(
        self,
        runner: Runner,
        input: Input,
        *,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Run one turn with a runner, as `chat.turn(…).run(runner)`, and return the committed turn; see
        Ledger.run."""
        request = turn_request(self._process, self._target, self._authorization, input, **options)
        return await TurnBlock(self._process, request, on_event).run(runner)

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
        request = resent_request(
            self._process, self._target, self._authorization, messages, sent, on_divergence, options
        )
        return TurnBlock(self._process, request, on_event)

    async def append(
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
        place = self._process, self._target, self._authorization
        request = append_request(*place, items, details=details, interaction=interaction, **options)
        return await append_items(self._process, request)

    async def snapshot(self, input: Input = (), **options: Unpack[TurnOptions]) -> ChatSnapshot:
        """Return what a model would be shown now, for a turn with this input and these options: for previews,
        to count tokens, and for answers that are not kept. Waits for no running turn and writes nothing.
        Effects of tools that wait to be settled are included. Raises what the turn raises for its input.
        """
        request = preview_request(self._process, self._target, input, **options)
        return await preview(self._process, request)

    async def enqueue(self, input: Input, **options: Unpack[JobOptions]) -> TurnId:
        """Store a turn as durable work, and return its id; see Ledger.work, which runs it.

        It takes a place in the queue that outlives this process. If the process that runs it dies, another
        one resumes it after its last finished step, at most three times. `outcome`, `status`, `events` and
        `stop` take its id at any time. The same call with the same idempotency_key returns the same id.
        Raises what a turn raises, and QueueFull if too much is waiting.
        """
        request = job_request(self._process, self._target, self._authorization, input, **options)
        id, _ = await enqueue(self._process, request)
        return id

    def edit(
        self,
        turn: str,
        input: Input,
        *,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run a turn in place of an earlier one, as a block.

        It sees the history before that turn and commits on a new branch, which the chat then shows;
        the old branch stays, see `siblings` and `switch`. Until the commit, and if it fails, nothing changes.
        It takes over the instructions of that turn, unless it brings its own. Raises TurnNotFound if the turn
        is not on the branch that the chat shows.
        """
        place = divergence_of(self._process, turn, regenerates=False)
        request = turn_request(self._process, self._target, self._authorization, input, place, **options)
        return TurnBlock(self._process, request, on_event)

    def regenerate(
        self,
        turn: str | None = None,
        *,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run the last turn again, or the one named, with the same input, as a block; see `edit`."""
        place = divergence_of(self._process, None, regenerates=True if turn is None else turn)
        request = turn_request(self._process, self._target, self._authorization, (), place, **options)
        return TurnBlock(self._process, request, on_event)

    async def fork(
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
        process, within, authorization = self._process, self._target.within, self._authorization
        check_may_make(within)
        details = details_of(title, metadata, internal=internal, expires_after=expires_after)
        target = target_of(process, None, conversation_key, self.owner, scope=self.scope, **details)
        request = fork_request(
            process, self._target, authorization, turn, target, idempotency_key=idempotency_key
        )
        made = await persist_admitted(process, fork, request, self.owner, authorization)
        is_new = made.id == request.fresh.id
        return Chat(process, made, is_new=is_new, within=within, authorization=authorization)

    async def undo(
        self, turn: str | None = None, *, forget: bool = False, **options: Unpack[MoveOptions]
    ) -> Branch:
        """Take back the last turn, and return the branch without it, which the chat then shows.

        With `turn`, only if that is the last one; raises HistoryDiverged if it was undone already or other
        turns follow it. Effects of tools in incomplete turns are carried to the new branch, unless `forget`
        is set. Raises TurnNotFound if there is no turn to take back, and what a turn with these options
        raises.
        """
        name = TurnId(turn) if turn is not None else None
        return await self._move(Undo(self._process.ids.new(BranchId), forget, name), options)

    async def switch(self, branch: str, **options: Unpack[MoveOptions]) -> Branch:
        """Show another branch of the chat, and continue there. Effects of tools in incomplete turns
        on the branch that is left are added after its head. Raises BranchNotFound, and what a turn with
        these options raises."""
        return await self._move(Switch(BranchId(branch)), options)

    async def _move(self, move: Move, options: MoveOptions) -> Branch:
        request = move_request(self._process, self._target, self._authorization, move, **options)
        return (await relocate(self._process, request)).branch

    async def branches(self, *, before: str | None = None, limit: int = 50) -> list[ListedBranch]:
        """Return the branches of the chat, the newest first; `before` is the last id of the previous
        page. Raises BranchNotFound for an unknown one."""
        process, cursor = self._process, BranchId(before) if before is not None else None
        request = BranchesRequest(self.id, cursor, check_limit(limit), process.clock.due_ms())
        return await process.store.read(branches, request, self.owner)

    async def siblings(self, turn: str, *, limit: int = 50) -> list[Sibling]:
        """Return the turns made in place of this one, and itself, each with the branch that shows it."""
        now = self._process.clock.due_ms()
        request = SiblingsRequest(self.id, TurnId(turn), check_limit(limit), now)
        return await self._process.store.read(siblings, request, self.owner)

    async def read(
        self,
        *,
        before: int | None = None,
        limit: int = 50,
        most_bytes: int | None = None,
        branch: str | None = None,
    ) -> ChatPage:
        """Return the chat with its last turns and its attempts, all as of one moment: a turn that commits
        meanwhile is in one of the two. The arguments are those of `turns`, and bound the attempts likewise;
        attempts of other side branches are left out. Raises BranchNotFound."""
        page = self._page(before, limit, most_bytes, branch)
        return await self._process.store.read(read_chat, page, self.owner)

    async def turns(
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
        BranchNotFound."""
        page = self._page(before, limit, most_bytes, branch)
        return await self._process.store.read(turns_page, page, self.owner)

    async def history(self) -> list[Item]:
        """Return all items of committed turns that the user sees, in order: without those hidden by
        `to_user=False`, and the other half of their pair."""
        return await whole_history(self._process.store, self.owner, lambda before: self._page(before, PAGE))

    async def flag(
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
        places = None if item is None else (item,) if isinstance(item, int) else tuple(item)
        process = self._process
        request = FlagRequest(
            conversation=self.id,
            turn=TurnId(turn),
            places=places,
            to_model=to_model,
            to_user=to_user,
            limit=process.limits.turn_flags,
            now=process.clock.now_ms(),
            due=process.clock.due_ms(),
        )
        return await process.persist(flag, request, self.owner)

    async def flags(self, *turns: str) -> FlagsByTurn:
        """Return the flags of these turns: turn → place among its items → flags, for each hidden item."""
        check_limit(len(turns))
        names = tuple(map(TurnId, turns))
        request = FlagsOfRequest(self.id, names, self._process.clock.due_ms())
        return await self._process.store.read(flags_in, request, self.owner)

    async def hidden(self, turns: Sequence[Turn]) -> list[HiddenItems]:
        """Return, for each of these turns as read here, the places of the items that `history` leaves out,
        and of those that the model of a later turn does not receive."""
        return await hidden_in(self._process.store, self.owner, turns, PAGE)

    async def instructions(self) -> tuple[Item, ...]:
        """Return the instructions that apply to the next turn, unless it brings its own."""
        request = InfoRequest(self.id, self._process.clock.due_ms())
        return await self._process.store.read(instructions_in_force, request, self.owner)

    async def attempts(
        self, *, limit: int = 50, most_bytes: int | None = None, branch: str | None = None
    ) -> list[SetAsideAttempt]:
        """Return the attempts outside the history: running, failed, discarded; newest first. With
        `most_bytes` the page ends before it is larger, but has at least one. With `branch`, attempts of other
        side branches are left out; raises BranchNotFound."""
        page = self._page(None, limit, most_bytes, branch)
        return await self._process.store.read(attempts_page, page, self.owner)

    def _page(
        self, before: int | None, limit: int, most_bytes: int | None = None, branch: str | None = None
    ) -> TurnPageRequest:
        of = BranchId(branch) if branch is not None else None
        now = self._process.clock.due_ms()
        return TurnPageRequest(self.id, before, check_limit(limit), now, most_bytes, of)

    async def stop(self, turn: str | None = None, *, policy: OnStop | str | None = None) -> Outcome | None:
        """Stop the running turn, or the named one, running or queued, in any process.

        Returns once it is final, with the outcome that won; None if there was nothing to stop.
        """
        name = TurnId(turn) if turn else None
        request = stop_request(self._process, self.owner, self.id, name, policy)
        return await stop_turn(self._process, request)

    async def outcome(self, turn: str) -> Outcome:
        """Wait until a turn has ended, in any process, and return how: its state, the turn it left, if any,
        and its failure. If its process is dead, the turn is ended by its policies.

        Raises TurnNotFound, also for a turn withdrawn from the queue, ConversationDeleted,
        ConversationExpired and, when the ledger is closed, LedgerClosed.
        """
        name = TurnId(turn)
        if self._process.is_inside(self.id, name):
            raise InvalidInput("A turn cannot wait for its own outcome. Leave its block first.")
        return await wait_for_turn(self._process, self.owner, self.id, name)

    async def status(self, turn: str) -> TurnStatus:
        """Return the state of a turn, committed or not, and of this chat at the same moment;
        `outcome` waits for its end. Raises what that raises."""
        request = FindOutcomeRequest(self.id, TurnId(turn), self._process.clock.due_ms())
        return await self._process.store.read(read_status, request, self.owner)

    def events(self, turn: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Read the events of a turn: `async for event in chat.events(turn.id, after=7)`.

        Yields every event numbered above `after`, in order, and ends after TurnFinished. That one always
        comes, even if `after` lies beyond it: a process may send events and die before writing them. The turn
        may have ended or be running, in any process. For a queued turn this waits until it begins, and ends
        without an event if it is withdrawn. Raises TurnNotFound, ConversationDeleted, ConversationExpired,
        TooManyReaders and, when the ledger is closed, LedgerClosed.
        """
        if after < 0:
            raise InvalidInput("after must be the number of an event, or 0 for all.")
        return read_events(self._process, self.owner, self.id, TurnId(turn), after)

    async def info(self) -> Conversation:
        """Return the chat as it is: title, metadata, revision, times."""
        request = InfoRequest(self.id, self._process.clock.due_ms())
        return await self._process.store.read(read_conversation, request, self.owner)

    async def summary(self) -> ChatEntry:
        """Return the chat as a list shows it: with its number of turns, preview, and whether a turn
        runs."""
        request = InfoRequest(self.id, self._process.clock.due_ms())
        return await self._process.store.read(read_entry, request, self.owner)

    async def update(
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
        check_details(title, metadata)
        request = UpdateRequest(
            id=self.id,
            title=title,
            metadata=metadata,
            tags=None if tags is None else tags_of(tags),
            pinned=pinned,
            archived=archived,
            revision=revision,
            now=self._process.clock.now_ms(),
            due=self._process.clock.due_ms(),
            quota=self._process.limits.quota,
        )
        return await self._process.persist(update, request, self.owner)

    async def delete(self, *, purge: bool = False) -> Conversation:
        """Delete the chat and return it as deleted. Ends a running turn and frees the
        conversation_key.

        It can be restored until `purge_at`, see Ledger.restore. With `purge` it cannot: its turns are removed
        soon, except those that its forks show. Deleting it again changes nothing, unless it is to be purged
        now.
        """
        return await delete_for(self._process, self.owner, self.id, self._target.within, purge=purge)
