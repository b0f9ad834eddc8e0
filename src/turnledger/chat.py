"""A chat: one conversation, as one owner sees it. Turns run on it; its history is read, bent and hidden."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from turnledger.engine.admission import Readmit, persist_admitted
from turnledger.engine.attempt.end import Ended
from turnledger.engine.attempt.outcome import SoughtRequest, Standing, outcome_in, standing
from turnledger.engine.attempt.stop import StopRequest, stop_turn
from turnledger.engine.conversations.flags import FlagRequest, FlagsOfRequest, flag, flags_in
from turnledger.engine.conversations.read import (
    BranchesRequest,
    InfoRequest,
    ListedBranch,
    SetAside,
    TurnPageRequest,
    attempts_page,
    branches,
    hidden_in,
    in_force,
    info,
    summary,
    turns_page,
    whole_history,
)
from turnledger.engine.conversations.resolve import Target, UpdateRequest, update
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.events.reader import read_events
from turnledger.engine.lifecycle.delete import delete_for
from turnledger.engine.lifecycle.moves import Move, Sibling, SiblingsRequest, Switch, Undo, fork, siblings
from turnledger.engine.ports import Runner
from turnledger.engine.process import Process
from turnledger.engine.resend.match import Sent
from turnledger.engine.turn.block import TurnBlock, relocate
from turnledger.engine.turn.resend import ChatMessage, OnDivergence
from turnledger.engine.turn.validation import (
    PAGE,
    Input,
    MoveOptions,
    TurnOptions,
    check_details,
    check_limit,
    check_may_make,
    choice,
    details_of,
    divergence_of,
    fork_request,
    move_request,
    resent_request,
    tags_of,
    target_of,
    turn_request,
)
from turnledger.errors import InvalidInput
from turnledger.model.catalogue import Listed
from turnledger.model.conversation import EVERYWHERE, Branch, Conversation, Within
from turnledger.model.event import Event
from turnledger.model.flags import FlagsOf
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import OnStop, Turn


class Chat:
    """One conversation, as one owner sees it.

    Who got it within a scope, or alone, sees nothing else through it. That was decided when it was opened,
    for good: no conversation ever changes its scope, and those that share turns are of one.
    """

    def __init__(
        self, process: Process, found: Conversation, *, is_new: bool = False, within: Within = EVERYWHERE
    ) -> None:
        self._process = process
        self._found = found
        self._target = Target(found.owner, found.id, found.conversation_key, scope=found.scope, within=within)
        self.is_new = is_new
        """Whether the call that returned this handle made the conversation."""

    @property
    def id(self) -> ConversationId:
        return self._found.id

    @property
    def as_opened(self) -> Conversation:
        """The conversation as it was when this was opened, made or restored; see `info` for how it is."""
        return self._found

    @property
    def owner(self) -> str:
        return self._found.owner

    @property
    def conversation_key(self) -> str | None:
        return self._found.conversation_key

    @property
    def former_conversation_key(self) -> str | None:
        """The one that named it until a reset, or while it was deleted, gave it to another."""
        return self._found.former_conversation_key

    @property
    def scope(self) -> str:
        """The application that the conversation is for; empty for none."""
        return self._found.scope

    def turn(
        self,
        input: Input,
        *,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run one turn as a block: `async with chat.turn("Hello") as turn: …`; or with a runner:
        `await chat.turn("Hello").run(runner)`. So do all that return a TurnBlock.

        Left normally, it is committed when the block has ended. Left by an exception or a cancellation,
        nothing happened. `turn.stop()` keeps it as interrupted. An idempotency_key that stands for a
        committed turn raises TurnReplayed with that turn, instead of running the block; one whose attempt
        still runs waits for its end, or with `attach=True` raises TurnAttached at once.

        `instructions` (a text, or system and developer messages) are recorded with the turn, and in force for
        it and all later ones until replaced; an empty text ends them. `instructions_once` are in force for
        this turn only. `priming` is a history of your own, shown before the stored one and not kept;
        `context` says how much of the stored one is shown. `on_busy`, `on_stop` and `on_failure` name the
        policies for what may come in between. With `interaction=False` the turn does not count as use: it
        puts off neither expiry nor a reset.
        """
        request = turn_request(self._process, self._target, input, **options)
        return TurnBlock(self._process, request, on_event)

    async def run(
        self,
        runner: Runner,
        input: Input,
        *,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Run one turn with a runner, as `chat.turn(…).run(runner)`, and return it as committed; see
        Ledger.run."""
        request = turn_request(self._process, self._target, input, **options)
        return await TurnBlock(self._process, request, on_event).run(runner)

    def resent(
        self,
        messages: Sequence[ChatMessage],
        *,
        sent: Sent | str | None = None,
        on_divergence: OnDivergence | str = OnDivergence.BRANCH,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run the turn that a list of chat messages asks for, as a block, where a client sends all of its
        history each time.

        What is stored is found in it, however it was trimmed: what comes behind it is the input. A history
        that ends with an earlier question asks for another answer to it, see `regenerate`; any other one
        goes on from the last turn that both sides have, on a branch of its own, or is refused with
        HistoryDiverged where `on_divergence` is `reject`. Leading system and developer messages are the
        instructions. `sent="new"` says that all of it is input, `"full"` that it is the whole history.
        """
        request = resent_request(self._process, self._target, messages, sent, on_divergence, options)
        return TurnBlock(self._process, request, on_event)

    def edit(
        self,
        turn: str,
        input: Input,
        *,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run a turn in the place of an earlier one, as a block.

        It sees the history before that turn, and commits on a new branch, which the conversation shows from
        then on; the old branch stays, see `siblings` and `switch`. Until then, and if it fails, nothing has
        changed. It takes over the instructions of that turn, unless it brings its own. Raises TurnNotFound if
        the turn is not on the branch that the conversation shows.
        """
        place = divergence_of(self._process, turn, regenerates=False)
        request = turn_request(self._process, self._target, input, place, **options)
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
        request = turn_request(self._process, self._target, (), place, **options)
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
        admitted: int | None = None,
        readmit: Readmit | None = None,
    ) -> Chat:
        """Start a new conversation that begins as this one does, up to a turn, or to its end. It copies
        nothing but what tools of later turns did that did not complete; deleting this one leaves it whole. It
        is of the same scope; the details are its own, see Ledger.conversation: it takes over none. The same
        call with the same idempotency_key returns the same one; `is_new` says whether this call made it.
        Raises TurnNotFound, InvalidInput if the conversation_key is taken, and AdmissionMoved as a turn with
        `admitted` does."""
        process, within = self._process, self._target.within
        check_may_make(within)
        details = details_of(title, metadata, internal=internal, expires_after=expires_after)
        fresh = target_of(process, None, conversation_key, self.owner, **details).fresh
        assert fresh is not None  # noqa: S101 - it may be made
        request = fork_request(
            process, self._target, turn, fresh, idempotency_key=idempotency_key, admitted=admitted
        )
        made = await persist_admitted(process, fork, request, readmit)
        return Chat(process, made, is_new=made.id == fresh.id, within=within)

    async def undo(
        self, turn: str | None = None, *, forget: bool = False, **options: Unpack[MoveOptions]
    ) -> Branch:
        """Take back the last turn: the conversation shows a branch without it, which is returned.

        With `turn`, only if that is the last one: who undoes what another has undone already, or what has
        been gone on from, is told by HistoryDiverged. What the tools of turns that did not complete have done
        is told on the new branch, unless `forget` is set. Raises TurnNotFound if there is no turn to take
        back, and what a turn with these options raises.
        """
        name = TurnId(turn) if turn is not None else None
        return await self._move(Undo(self._process.ids.new(BranchId), forget, name), options)

    async def switch(self, branch: str, **options: Unpack[MoveOptions]) -> Branch:
        """Show another branch of the conversation, and go on there. What the tools of unfinished turns did on
        the branch that is left is added behind its head. Raises BranchNotFound, and what a turn with these
        options raises."""
        return await self._move(Switch(BranchId(branch)), options)

    async def _move(self, move: Move, options: MoveOptions) -> Branch:
        request = move_request(self._process, self._target, move, **options)
        return (await relocate(self._process, request)).branch

    async def branches(self, *, before: str | None = None, limit: int = 50) -> list[ListedBranch]:
        """The branches of the conversation, the last made first; `before` is the last id of the page
        before. Raises BranchNotFound for one that is none of them."""
        process, cursor = self._process, BranchId(before) if before is not None else None
        request = BranchesRequest(self.owner, self.id, cursor, check_limit(limit), process.clock.due_ms())
        return await process.store.read(branches, request)

    async def siblings(self, turn: str, *, limit: int = 50) -> list[Sibling]:
        """The turns that were made in the place of this one, itself included, each with the branch that
        shows it."""
        now = self._process.clock.due_ms()
        request = SiblingsRequest(self.owner, self.id, TurnId(turn), check_limit(limit), now)
        return await self._process.store.read(siblings, request)

    async def turns(
        self,
        *,
        before: int | None = None,
        limit: int = 50,
        most_bytes: int | None = None,
        branch: str | None = None,
    ) -> list[Turn]:
        """A page of committed turns in order: the last ones, or those before a turn's number; of the branch
        that is shown, or of another. They are given whole; see `flags` for what is hidden of them. With
        `most_bytes` the page ends before it is larger, but never without a turn. Raises BranchNotFound."""
        page = self._page(before, limit)
        of = BranchId(branch) if branch is not None else None
        return await self._process.store.read(turns_page, replace(page, most_bytes=most_bytes, branch=of))

    async def history(self) -> list[Item]:
        """All items of all committed turns that their user sees, in order: without those hidden by
        `to_user=False`, and the other half of their pair."""
        return await whole_history(self._process.store, lambda before: self._page(before, PAGE))

    async def flag(
        self,
        turn: str,
        item: int | Iterable[int] | None = None,
        *,
        to_model: bool | None = None,
        to_user: bool | None = None,
    ) -> None:
        """Show or hide items of a committed turn, by their places among `turn.items`, or all of them.

        Takes effect for turns that begin later, and disturbs none that runs. Hiding one half of a call and
        its result hides both, and reasoning goes with what it led to. Raises TurnNotFound.
        """
        places = None if item is None else (item,) if isinstance(item, int) else tuple(item)
        process = self._process
        request = FlagRequest(
            owner=self.owner,
            conversation=self.id,
            turn=TurnId(turn),
            places=places,
            to_model=to_model,
            to_user=to_user,
            limit=process.limits.turn_flags,
            now=process.clock.now_ms(),
            due=process.clock.due_ms(),
        )
        await process.persist(flag, request)

    async def flags(self, *turns: str) -> FlagsOf:
        """The flags of these turns: turn → place among its items → flags, of all items hidden from anyone."""
        check_limit(len(turns))
        names = tuple(map(TurnId, turns))
        request = FlagsOfRequest(self.owner, self.id, names, self._process.clock.due_ms())
        return await self._process.store.read(flags_in, request)

    async def hidden(self, turns: Sequence[Turn]) -> list[tuple[int, ...]]:
        """Of each of these turns, as they were read here, the places among its items that `history` leaves
        out: those hidden by `to_user=False`, and the other half of their pair."""
        return await hidden_in(self._process.store, self.owner, turns, PAGE)

    async def instructions(self) -> tuple[Item, ...]:
        """The instructions that are in force for the next turn, unless it brings its own."""
        request = InfoRequest(self.owner, self.id, self._process.clock.due_ms())
        return await self._process.store.read(in_force, request)

    async def attempts(self, *, limit: int = 50, most_bytes: int | None = None) -> list[SetAside]:
        """The attempts that are not in the history: running, failed, discarded; newest first. With
        `most_bytes` they end before they are larger, but never without one."""
        page = replace(self._page(None, limit), most_bytes=most_bytes)
        return await self._process.store.read(attempts_page, page)

    def _page(self, before: int | None, limit: int) -> TurnPageRequest:
        return TurnPageRequest(self.owner, self.id, before, check_limit(limit), self._process.clock.due_ms())

    async def stop(self, turn: str | None = None, *, policy: OnStop | str | None = None) -> Ended | None:
        """Stop the running turn, or the named one, running or queued, in whatever process it is.

        Returns when it is final, with the outcome that won; None if there was nothing to stop.
        """
        name = TurnId(turn) if turn else None
        chosen = choice(OnStop, "policy", policy) if policy else None
        process = self._process
        if process.is_inside(self.id, name):
            raise InvalidInput("Inside the block of the turn itself, use turn.stop().")
        now, due = process.clock.now_ms(), process.clock.due_ms()
        request = StopRequest(self.owner, self.id, name, chosen, now, due)
        return await stop_turn(process, request)

    async def outcome(self, turn: str) -> Ended:
        """Wait until a turn has ended, in whatever process it waits or runs, and tell how: its state, the
        turn it left, if any, and its failure. If its process is dead, it is ended by its policies.

        Raises TurnNotFound, also for one that was withdrawn from the queue, ConversationDeleted,
        ConversationExpired and, when the ledger is closed, LedgerClosed.
        """
        name = TurnId(turn)
        if self._process.is_inside(self.id, name):
            raise InvalidInput("Inside the block of the turn itself, leave it to learn its outcome.")
        return await outcome_in(self._process, self.owner, self.id, name)

    async def standing(self, turn: str) -> Standing:
        """Where a turn stands, committed or not, and this conversation at the same moment; `outcome` waits
        for its end. Raises what that raises."""
        request = SoughtRequest(self.owner, self.id, TurnId(turn), self._process.clock.due_ms())
        return await self._process.store.read(standing, request)

    def events(self, turn: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Read the events of a turn: `async for event in chat.events(turn.id, after=7)`.

        Yields every event numbered above `after`, in order, and ends behind TurnFinished, which comes in any
        case: also if `after` lies beyond it, as it may for who heard more from a process that died before
        writing it down. The turn may be running, in this process or another, have ended, or be queued:
        then this waits until it begins, and ends without an event if it is withdrawn. Raises TurnNotFound,
        ConversationDeleted, ConversationExpired, TooManyReaders and, when the ledger is closed, LedgerClosed.
        """
        if after < 0:
            raise InvalidInput("after is the number of an event, or 0 for all of them.")
        return read_events(self._process, self.owner, self.id, TurnId(turn), after)

    async def info(self) -> Conversation:
        """The conversation as it is: title, metadata, revision, times."""
        request = InfoRequest(self.owner, self.id, self._process.clock.due_ms())
        return await self._process.store.read(info, request)

    async def summary(self) -> Listed:
        """The conversation as a list shows it: with its number of turns, its preview, and whether a turn
        runs."""
        request = InfoRequest(self.owner, self.id, self._process.clock.due_ms())
        return await self._process.store.read(summary, request)

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
        """Set what is given, in one step; with the revision that was read, only if nobody did so since, or to
        the very same. Never disturbs a running turn. Raises RevisionConflict.

        A title given here is never replaced by an automatic one; an empty one takes the name back, and the
        conversation is called by its first words again. Pinned ones are never removed by retention; archived
        ones are listed apart.
        """
        check_details(title, metadata)
        request = UpdateRequest(
            owner=self.owner,
            id=self.id,
            title=title,
            metadata=metadata,
            tags=None if tags is None else tags_of(tags),
            pinned=pinned,
            archived=archived,
            revision=revision,
            now=self._process.clock.now_ms(),
            due=self._process.clock.due_ms(),
            room=self._process.limits.room,
        )
        return await self._process.persist(update, request)

    async def delete(self, *, purge: bool = False) -> Conversation:
        """Delete the conversation, and return it as it is then; a running turn ends with it. The
        conversation_key is free again.

        It can be restored until its `purge_at`, see Ledger.restore, or not at all with `purge`: then its
        turns are removed soon, but for those that forks of it show. Deleting it once more changes nothing,
        unless it is to be purged now.
        """
        return await delete_for(self._process, self.owner, self.id, self._target.within, purge=purge)
