"""A running turn: the draft under one person's hands, and the fenced writes that make it durable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from turnledger.engine.begin import Begun
from turnledger.engine.commit import CommitRequest
from turnledger.engine.ending import EndRequest
from turnledger.engine.history import History
from turnledger.engine.recording import RecordRequest, record
from turnledger.engine.uninterrupted import uninterrupted
from turnledger.errors import EmptyTurn, MalformedItems, TurnEnded
from turnledger.model import event as events
from turnledger.model import journal as journals
from turnledger.model.attempt import Attempt, AttemptState, Failure, OnStop
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.event import Event
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, ItemLike, message, result_of
from turnledger.model.messages import Message, messages_of
from turnledger.model.pairing import check_turn, open_calls, without_open_reasoning
from turnledger.model.turn import Turn, TurnKind

if TYPE_CHECKING:
    from turnledger.engine.process import Process

log = logging.getLogger("turnledger")

EventSink: TypeAlias = Callable[[Event], None]


class RunningTurn:
    """What the block of `async with chat.turn(…)`, or a runner, works with.

    The history it shows is the committed one at its begin, and never changes. What it emits and adds is a
    draft until the block is left; what it adds is journaled at once, so that a retry need not redo it.
    """

    def __init__(self, process: Process, begun: Begun, history: History, on_event: EventSink | None) -> None:
        self._process = process
        self.branch: Branch = begun.branch
        """The branch as it was begun on."""
        self._attempt: Attempt = begun.attempt
        self._journal = begun.journal
        self._journaled = begun.attempt.journaled
        self._recording = asyncio.Lock()
        self._text: list[str] = []
        self.stop_requested: OnStop | None = None
        self.was_stopped_elsewhere = False
        self.task = asyncio.current_task()
        self._is_cancelling = False
        self._on_event = on_event
        self._events = 0
        self.conversation: Conversation = begun.conversation
        self.history = history
        """The committed turns that this one runs on."""
        self.is_resumed = bool(begun.journal.items)
        """Whether an earlier attempt of this idempotency_key failed and left finished steps to go on from."""
        self.state = AttemptState.RUNNING
        self.turn: Turn | None = None
        """The turn as committed, once it is."""
        if on_event is not None:
            self._tell(events.TurnStarted(number=1))

    @property
    def id(self) -> TurnId:
        """The id of this attempt, and of the turn it becomes."""
        return self._attempt.id

    @property
    def number(self) -> int:
        """The number that the turn will have."""
        return len(self.history) + 1

    @property
    def input(self) -> tuple[Item, ...]:
        return self._attempt.input

    @property
    def steps(self) -> tuple[Item, ...]:
        """The finished items of the draft so far, those of a resumed attempt included."""
        return tuple(self._journal.items)

    @property
    def text(self) -> str:
        """The text emitted since the last finished item."""
        return "".join(self._text)

    @property
    def items(self) -> tuple[Item, ...]:
        """What a model is to answer, in Responses shape: history, input, and the finished steps."""
        past = tuple(item for turn in self.history for item in turn.items)
        assembled = (*past, *self.input, *without_open_reasoning(self._journal.items))
        open_calls(assembled)
        return assembled

    @property
    def messages(self) -> list[Message]:
        """What a model is to answer, as chat messages."""
        return messages_of(self.items)

    @property
    def open_calls(self) -> tuple[Item, ...]:
        """The calls of the draft that have no result yet."""
        return tuple(self._journal.items[place] for place in self._journal.unanswered())

    def emit(self, text: str) -> None:
        """Add text to the answer. Durable with the commit, or with the next `add`."""
        self._check_running()
        if text:
            self._text.append(text)
            if self._on_event is not None:
                self._tell(events.TextDelta(number=self._events + 1, text=text))

    async def add(self, *likes: ItemLike) -> None:
        """Add finished items to the answer, and journal them with the text emitted before.

        All or none of them. Raises MalformedItems for what would break the history, Superseded if the
        lane is lost. When it returns, a crash cannot lose them.
        """
        self._check_running()
        items = [Item.of(like) for like in likes]
        async with self._recording:
            text = self._text
            if text:
                items.insert(0, message("assistant", "".join(text), status="completed"))
            self._check_draft([*self._journal.items, *items])
            self._text = []
            try:
                await self._record([journals.finished(item) for item in items])
            except BaseException:
                self._text = [*text, *self._text]
                raise
            self._journal.items.extend(items)
            for item in items:
                self._tell(events.ItemDone(number=self._events + 1, item=msgspec.Raw(item.raw)))

    async def call(
        self, call: ItemLike, tool: Callable[[], Awaitable[str]], *, read_only: bool = False
    ) -> Item:
        """Run a tool for a call and add its result; the call is added first if the draft lacks it.

        That the tool starts is on disk before it acts. In a resumed turn, run `open_calls` only: what an
        earlier attempt started has its result, or a stated one, among the `steps`. An exception of the
        tool fails the turn, unless the caller catches it and adds a result of its own.
        """
        item = Item.of(call)
        if self._waiting_place(item) is None:
            await self.add(item)
        await self.start(item, read_only=read_only)
        result = result_of(item, await tool())
        await self.add(result)
        return result

    async def start(self, call: ItemLike, *, read_only: bool = False) -> None:
        """Record that the tool for this call is about to act. Act only after this has returned; add the
        result when it is there. `read_only` says that the tool changes nothing in the world."""
        self._check_running()
        async with self._recording:
            place = self._waiting_place(Item.of(call))
            if place is None:
                raise MalformedItems("Add the call before starting it, and start it once.")
            await self._record([journals.started(place, read_only=read_only)])
            self._journal.started[place] = read_only

    def stop(self, policy: OnStop | str | None = None) -> None:
        """End the turn here: leaving the block keeps it as interrupted, or discards it, by policy."""
        self._check_running()
        self.stop_requested = OnStop(policy) if policy else self._attempt.on_stop

    def _waiting_place(self, call: Item) -> int | None:
        """The place of this call in the draft, if it is there and neither started nor answered."""
        for place in self._journal.unanswered():
            if self._journal.items[place] == call and place not in self._journal.started:
                return place
        return None

    def _check_running(self) -> None:
        if self.state is not AttemptState.RUNNING:
            raise TurnEnded(f"The turn is {self.state} already.")

    def _check_draft(self, steps: Sequence[Item]) -> None:
        self._check_size(sum(len(item.raw) for item in steps))
        check_turn(self.branch.pending, (*self.input, *without_open_reasoning(steps)))

    def _check_size(self, size: int) -> None:
        if size > self._process.limits.turn_bytes:
            raise MalformedItems(f"The turn has grown past {self._process.limits.turn_bytes} bytes.")

    async def _record(self, records: list[bytes]) -> None:
        attempt = self._attempt
        request = RecordRequest(
            attempt.owner, attempt.branch, attempt.id, self.branch.fence, self._journaled, records
        )
        await uninterrupted(self._process.persist(record, request))
        self._journaled += len(records)

    # What the engine does with it when the block is left.

    def to_commit(self) -> CommitRequest:
        """The commit of the whole turn; raises EmptyTurn or MalformedItems if it is not whole."""
        output = (*self._journal.items, *([message("assistant", self.text)] if self._text else ()))
        if not output:
            raise EmptyTurn
        if any(place in self._journal.started for place in self._journal.unanswered()):
            raise MalformedItems("A call was started, but no result was added for it.")
        pending = check_turn(self.branch.pending, (*self.input, *output))
        now = self._process.clock.now_ms()
        turn = Turn.of(
            id=self.id,
            branch=self.branch.id,
            number=self.branch.length + 1,
            parent=self.branch.head,
            kind=TurnKind.COMPLETED,
            created_at=self._attempt.created_at,
            committed_at=now,
            input=self.input,
            output=output,
        )
        self._check_size(len(turn.body))
        return CommitRequest(
            owner=self._attempt.owner,
            conversation=self.conversation.id,
            turn=turn,
            fence=self.branch.fence,
            pending=pending,
            idempotency_key=self._attempt.idempotency_key,
            journaled=self._journaled,
            now=now,
        )

    def to_end(self, failure: Failure | None, on_stop: OnStop | None) -> EndRequest:
        """The end of the turn other than by commit."""
        return EndRequest(
            owner=self._attempt.owner,
            branch=self.branch.id,
            attempt=self.id,
            fence=self.branch.fence,
            failure=failure,
            on_stop=on_stop,
            partial=self.text,
            now=self._process.clock.now_ms(),
        )

    def interrupt(self, policy: OnStop | None) -> None:
        """Deliver a stop that was recorded elsewhere: the block is left at its next await."""
        if self.stop_requested is not None or self.state is not AttemptState.RUNNING:
            return
        self.stop_requested = policy or self._attempt.on_stop
        self.was_stopped_elsewhere = True
        if self.task is not None and self.task is not asyncio.current_task():
            self._is_cancelling = self.task.cancel()

    def take_back_cancellation(self) -> bool:
        """Undo the cancellation by which a stop left the block; whether there was one, and no other."""
        if self._is_cancelling and self.task is not None:
            self._is_cancelling = False
            return self.task.uncancel() == 0
        return False

    def finish(self, state: AttemptState, turn: Turn | None, failure: Failure | None) -> None:
        """Tell readers how it ended; called when the store has decided."""
        self.state = state
        self.turn = turn
        try:
            self._tell(events.TurnFinished(number=self._events + 1, state=state, failure=failure))
        except Exception:
            # The store has decided: a reader that breaks now must not make it look otherwise.
            log.exception("a reader of %s failed at its last event", self.id)

    def _tell(self, event: Event) -> None:
        self._events = event.number
        if self._on_event is not None:
            self._on_event(event)
