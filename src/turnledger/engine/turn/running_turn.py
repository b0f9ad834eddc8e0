"""A running turn: its draft in memory, its journal, and the task that holds it.

Every write is fenced: it raises Superseded once another process has taken the lane. A coroutine stays in its
task, but an async generator does not: one task may pull its first item and another the rest. So the holder of
a block inside a generator is looked up when a stop arrives; otherwise the stop would cancel a task that has
left the turn.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from turnledger.engine.attempt.end import EndRequest
from turnledger.engine.attempt.sent_log import SentLog, unsent_items
from turnledger.engine.events.live_log import EmittedText, EventSink, LiveLog
from turnledger.engine.history.history import LONG, History, encode_messages, join_json
from turnledger.engine.lane.shield import uninterrupted
from turnledger.engine.ports import Tables
from turnledger.engine.process import FlushRequest
from turnledger.engine.turn.begin import Begun
from turnledger.engine.turn.commit import CommitRequest
from turnledger.engine.turn.open_parts import (
    GIVEN,
    OF_TEXT,
    Addition,
    OpenCall,
    OpenParts,
    whole_characters,
)
from turnledger.engine.turn.snapshot import ReducedContext, Snapshot
from turnledger.errors import (
    EmptyTurn,
    InvalidInput,
    MalformedItems,
    OutcomeUnknown,
    Superseded,
    TurnEnded,
    TurnledgerError,
    TurnStopped,
)
from turnledger.model import codec, event_log
from turnledger.model import journal as journals
from turnledger.model.conversation import Branch, Conversation, holds_lane, turn_behind
from turnledger.model.event_log import ITEM, MADE_OF, REASONING, REFUSAL, TEXT
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import (
    Item,
    ItemLike,
    call_of,
    message,
    open_calls,
    result_of,
    without_open_reasoning,
)
from turnledger.model.journal import Journal
from turnledger.model.messages.messages import Message, messages_of
from turnledger.model.text.plain import plain
from turnledger.model.turn import (
    Attempt,
    AttemptState,
    BeginKind,
    Failure,
    OnFailure,
    OnStop,
    Turn,
    TurnKind,
    instructed_after,
)

if TYPE_CHECKING:
    from turnledger.engine.process import Process


class Draft:
    """Finished items, the calls that were started, and what was emitted since. `pending` are the calls that
    the head left open, `input` is that of the turn."""

    def __init__(
        self, pending: tuple[Item, ...], input: tuple[Item, ...], journal: Journal, max_bytes: int
    ) -> None:
        self._pending = pending
        self._input = input
        self._journal = journal
        self._not_redone = [place for place, item in enumerate(journal.items) if item.is_call]
        """Places of calls of earlier attempts that this one has not reached again."""
        self._max_bytes = self._max_text = max_bytes
        """Of everything, and of text beside what else was emitted."""
        self.emitted = EmittedText()
        """All text, including that of finished items."""
        self._parts: OpenParts | None = None
        """What was emitted besides text, if anything was."""
        self._taken = self._prefilled = 0
        self._half = ""
        self.last: tuple[Item, ...] = ()
        """The items that end the answer, if it has ended."""

    @property
    def text(self) -> str:
        return self.emitted.between(self._taken, self.emitted.length)

    @property
    def steps(self) -> tuple[Item, ...]:
        return tuple(self._journal.items)

    @property
    def open_calls(self) -> tuple[Item, ...]:
        return tuple(self._journal.items[place] for place in self._journal.unanswered_calls())

    def emit(self, text: str) -> str:
        """Add text; return what can be shown of it now."""
        if self.last:
            self.check_unended()
        if self._half or not text.isascii():
            text, self._half = whole_characters(self._half, text)
        if text:
            length = self.emitted.length + len(text)
            if length > self._max_text:
                self._check_size(length + self._max_bytes - self._max_text)
            self.emitted.append(text)
        return text

    def prefill(self, text: str) -> str:
        """Begin with text that the client has already; without more, the turn is empty."""
        self._prefilled = len(text)
        return self.emit(text)

    def parts(self, growth: int) -> OpenParts:
        """Return what was emitted besides text, to be added to. Raises MalformedItems if the turn would grow
        too long."""
        self.check_unended()
        if self._parts is None:
            self._parts = OpenParts()
        size = self._parts.size + growth
        self._check_size(self.emitted.length + size)
        self._max_text = self._max_bytes - size
        return self._parts

    def next_items(self, items: Sequence[Item]) -> Addition:
        """Return what adding these items means: what was emitted before as items, then they. Raises
        MalformedItems if they would break the history."""
        self.check_unended()
        addition = self._ended_by(items, status="completed")
        steps = [*self._journal.items, *addition.items]
        self._check_size(sum(len(item.raw) for item in steps))
        open_calls((*self._pending, *self._input, *without_open_reasoning(steps)))
        return addition

    def _ended_by(
        self, items: Sequence[Item], *, status: str | None = None, ends_turn: bool = False
    ) -> Addition:
        reaches = self.emitted.length
        text = message("assistant", self.text, status=status) if reaches > self._taken else None
        if self._parts is not None:
            return self._parts.ended_by(items, text, reaches, status, ends_turn=ends_turn)
        made = [GIVEN] * len(items)
        if text is None:
            return Addition([*items], made, reaches)
        return Addition([text, *items], [OF_TEXT, *made], reaches)

    def close_calls(self, addition: Addition) -> dict[str, OpenCall]:
        """Take no more arguments of the calls that these items end; return them, to reopen them."""
        return {call_id: self._parts.calls.pop(call_id) for call_id in addition.calls} if self._parts else {}

    def reopen_calls(self, calls: dict[str, OpenCall]) -> None:
        if self._parts is not None:
            self._parts.calls.update(calls)

    def drop_call(self, call_id: str | None) -> None:
        """Forget an open call: an earlier attempt has recorded it."""
        if self._parts is not None and call_id is not None:
            self._parts.calls.pop(call_id, None)

    def take(self, addition: Addition) -> None:
        """Add recorded items to the steps, with the text they took."""
        self._journal.items.extend(addition.items)
        self._taken = addition.reaches
        if self._parts is not None:
            self._parts.take(addition)

    def skip(self, taken: int) -> None:
        """Leave so much of the emitted text to the items that were made of it."""
        self._taken = taken

    def retake(self, text: str) -> None:
        """Note the text of a finished item that this attempt did not emit."""
        self.emitted.append(text)
        self._taken = self.emitted.length

    def void(self) -> str:
        """Forget everything emitted since the last item; return the text."""
        text, self._taken, self._half, self._parts = self.text, self.emitted.length, "", None
        return text

    def end_with(self, items: tuple[Item, ...]) -> None:
        """Add the items that end the answer, after all text and steps. Raises MalformedItems if it is not
        complete with them; then it goes on."""
        self.check_unended()
        self.last = items
        try:
            self.whole()
        except BaseException:
            self.last = ()
            raise

    def check_unended(self) -> None:
        """Raise InvalidInput if the answer was ended by put()."""
        if self.last:
            raise InvalidInput("put() ended the answer. Pass all final items to one put() call.")

    def start(self, place: int, *, read_only: bool) -> None:
        """Mark the call at this place as started."""
        self._journal.started[place] = read_only

    def taken_up(self, call: Item) -> tuple[Item, Item | None]:
        """Return a call as an earlier attempt recorded it, and its result if any: a runner may start over. A
        repeated call stands for its next occurrence; one taken from the steps is that very one."""
        items = self._journal.items
        is_step = any(item is call for item in items)
        for place in self._not_redone:
            if items[place] is call if is_step else _is_same(items[place], call):
                self._not_redone.remove(place)
                return items[place], self._journal.answers().get(place)
        return call, None

    def waiting_place(self, call: Item) -> int | None:
        """Return the place of this call among the steps, if it is neither started nor answered."""
        for place in self._journal.unanswered_calls():
            if self._journal.items[place] == call and place not in self._journal.started:
                return place
        return None

    def whole(self) -> tuple[tuple[Item, ...], tuple[Item, ...], Addition]:
        """Return the output of the complete turn, the calls it leaves to its client, and the items that end
        it. Raises EmptyTurn or MalformedItems if it is not complete."""
        ending = self._ended_by(self.last, ends_turn=True)
        output = (*self._journal.items, *ending.items)
        is_prefill = 0 < self._prefilled == self.emitted.length and len(output) == 1 and not self.last
        if not output or is_prefill:
            raise EmptyTurn
        started = self._journal.started
        open_places = self._journal.unanswered_calls() if started else ()
        place = next((each for each in open_places if each in started), None)
        if place is not None:
            shown = plain(self._journal.items[place].call_id or "")[:80]
            raise MalformedItems(f"The call {shown} was started, but has no result. Add one with add().")
        self._check_size(sum(len(item.raw) for item in output))
        return output, open_calls((*self._pending, *self._input, *output)), ending

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise MalformedItems(f"The turn has grown past {self._max_bytes} bytes. Emit less in one turn.")


def _is_same(recorded: Item, call: Item) -> bool:
    return recorded.call_id == call.call_id and _essence(recorded) == _essence(call)


def _essence(call: Item) -> dict[str, Any]:
    """Return the call without the id and the status of its item, which may differ."""
    return {name: value for name, value in call.fields.items() if name not in ("id", "status")}


@dataclass(frozen=True)
class RecordRequest:
    """Records numbered from `first`. Repeating it changes nothing."""

    branch: BranchId
    attempt: TurnId
    fence: int
    first: int
    records: Sequence[bytes]


async def record(tables: Tables, request: RecordRequest) -> None:
    """Append to the journal, if the lane is still held; raise Superseded if not. A call recorded as started
    may act only after this has returned."""
    branch = await tables.branch(request.branch)
    attempt = await tables.attempt(request.attempt)
    if attempt is None or not holds_lane(branch, request.attempt, request.fence):
        raise Superseded
    await tables.add_records(request.attempt, request.first, request.records)
    journaled = max(attempt.journaled, request.first + len(request.records))
    await tables.save_attempt(replace(attempt, journaled=journaled))


_SUSPENDABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_OPAQUE = frozenset(
    {"anext_awaitable", "async_generator_asend", "async_generator_athrow", "coroutine_wrapper"}
)
"""Awaitables of the interpreter that drive another one, without an attribute for it."""


def generator_around(frame: FrameType | None) -> FrameType | None:
    """Return the innermost async generator in this stack; None if the code cannot leave its task. A generator
    driven by contextlib is a context manager: its code runs where it was entered."""
    while frame is not None and frame.f_code.co_flags & _SUSPENDABLE:
        outer = frame.f_back
        is_manager = outer is not None and outer.f_globals.get("__name__") == "contextlib"
        if frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR and not is_manager:
            return frame
        frame = outer
    return None


def task_inside(generator: FrameType, likely: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
    """Return the task that runs or awaits this generator now; None while it is suspended between items."""
    if is_running(generator):
        return asyncio.current_task()
    if likely is not None and generator in _frames(likely):
        return likely
    return next((task for task in asyncio.all_tasks() if generator in _frames(task)), None)


def is_running(generator: FrameType) -> bool:
    """Return whether this generator called the caller, directly or not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not generator:
        frame = frame.f_back
    return frame is not None


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType | None]:
    """Yield the frames that a suspended task is inside of, outermost first."""
    link: Any = task.get_coro()
    while link is not None:
        match link:
            case CoroutineType():
                yield link.cr_frame
                link = link.cr_await
            case AsyncGeneratorType():
                yield link.ag_frame
                link = link.ag_await
            case GeneratorType():
                yield link.gi_frame
                link = link.gi_yieldfrom
            case _:
                link = _driven_by(link) if type(link).__name__ in _OPAQUE else None


def _driven_by(awaitable: Any) -> Any:
    for each in gc.get_referents(awaitable):
        if isinstance(each, CoroutineType | AsyncGeneratorType | GeneratorType):
            return each
        if type(each).__name__ in _OPAQUE:
            return each
    return None


inside: ContextVar[frozenset[TurnId]] = ContextVar("turnledger_inside", default=frozenset())
"""The turns of turnledger.sync whose block the calling thread is in."""


class OpenTurn:
    """A running turn as the engine holds it: its draft and journal, the task inside its block, and how it is
    committed or ended. Users hold a RunningTurn instead."""

    def __init__(
        self,
        process: Process,
        begun: Begun,
        snapshot: Snapshot,
        on_event: EventSink | None,
        *,
        has_created: bool,
        is_resent: bool,
        prefill: tuple[Item, ...] = (),
    ) -> None:
        self.process = process
        self.attempt: Attempt = begun.attempt
        self.id: TurnId = begun.attempt.id
        self._place = begun.place
        self._end = begun.place.end(begun.branch) if begun.place else begun.branch
        """A branch that ends where this turn begins."""
        limit = process.limits.turn_bytes
        self.draft = Draft(self._end.pending, begun.attempt.input, begun.journal, limit)
        self.details: dict[str, Any] = begun.attempt.details if begun.attempt.raw_details else {}
        self._journaled = begun.attempt.journaled
        self._is_in_doubt = False
        self._flushes = 0
        self._flushing: FlushRequest | None = None
        self.recording = asyncio.Lock()
        """Held while the journal is written, and while the turn is ended."""
        self.branch: Branch = begun.branch
        """The branch as of its begin."""
        self.is_leaving = False
        """Whether the block was left, or its ledger was closed: no item is accepted, and no stop that would
        cancel what ends the turn."""
        self._task = asyncio.current_task()
        self._cancelling_before = self._task.cancelling() if self._task else 0
        self.is_cancelling = False
        """Whether a stop has cancelled the task, and that was not withdrawn yet."""
        self.generator: FrameType | None = None
        """The async generator that the block is in, if any: other tasks may continue it."""
        self.unheld_since: float | None = None
        """When no living task was first found to work on it; None while one does."""
        self.ended_by: TurnledgerError | None = None
        """Why the turn was ended before its block was left."""
        self.ending: asyncio.Task[None] | None = None
        """The task that ends it."""
        self.stop_requested: OnStop | None = None
        self.was_stopped_elsewhere = False
        self.has_lost_lane = False
        self.is_resent = is_resent
        """Whether its client sends its whole history each time."""
        self.undelivered: str | None = None
        """The name of its request, if that has no idempotency_key and its client has left."""
        self.flag_version = begun.flag_version
        self.conversation: Conversation = begun.conversation
        self.snapshot = snapshot
        self.is_resumed = bool(begun.journal.items)
        branches = begun.place is not None or (begun.branch.fence == 1 and begun.branch.is_side)
        self.began = (
            BeginKind.CREATED if has_created else BeginKind.BRANCHED if branches else BeginKind.CONTINUED
        )
        self.number = self._end.length + 1
        self.state = AttemptState.RUNNING
        self.turn: Turn | None = None
        self.failure: Failure | None = None
        self.live = LiveLog(self.draft.emitted, process.limits, on_event)
        """The events for its readers."""
        if begun.chunks is not None:
            self._continue_log([codec.decode(event_log.LogChunk, raw) for raw in begun.chunks])
        if self.is_resumed:
            for item in begun.journal.items[len(self.live.items) :]:
                self._report_taken_over(item)
            prefill = ()  # it is in the journal
        self.prefill = prefill
        """Messages that the answer begins with, and that its model continues."""
        if prefill:
            self.live.record_text(self.draft.prefill("".join(item.text for item in prefill)))

    def _continue_log(self, chunks: Sequence[event_log.LogChunk]) -> None:
        """Go on with the events that the process before has stored; what it emitted since its last item is
        void."""
        self.live.restore(chunks, self.draft.steps)
        self._flushes = len(chunks)
        self.draft.skip(len(event_log.emitted_text(bytes(self.live.packed), self.live.items)))
        self.void_since_last_item()
        self.details[event_log.VOIDED] = event_log.voided(bytes(self.live.packed))

    def _report_taken_over(self, item: Item) -> None:
        """Report an item of an earlier attempt, and before it its text in one piece, for readers that add up
        the pieces."""
        live, kind, text = self.live, event_log.kind_of(item), item.body
        if kind == TEXT and text and item.role == "assistant":
            self.draft.retake(text)
            live.record_text(text)
        elif kind in (REASONING, REFUSAL) and text:
            live.record_part(kind, text)
        else:
            live.record_item(item)
            return
        live.record_item(item, code=MADE_OF[kind])

    @property
    def is_kept_on_failure(self) -> bool:
        return self.attempt.on_failure is OnFailure.KEEP

    @property
    def task(self) -> asyncio.Task[Any] | None:
        return self._task

    @task.setter
    def task(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._cancelling_before = task.cancelling()

    def check_open(self) -> None:
        if (self._task is None or self._task.done()) and (task := asyncio.current_task()) is not None:
            self.task = task
        if self._is_in_doubt:
            raise TurnEnded("A write of this turn failed. Leave the block and retry the turn.")
        if self.ended_by is not None:
            is_stop = isinstance(self.ended_by, TurnStopped)
            raise TurnStopped(self.turn) if is_stop else TurnEnded(str(self.ended_by))
        if self.state is not AttemptState.RUNNING:
            raise TurnEnded(f"The turn is already {self.state}. Start a new one.")
        if self.is_leaving:
            raise TurnEnded("The block of this turn has already been left. Start a new turn.")

    async def add(self, addition: Addition) -> None:
        items, made = addition.items, addition.made
        if not items:
            return  # nothing was emitted since the last item
        closed = self.draft.close_calls(addition)
        try:
            await self._record(
                [
                    journals.item_record(item, emitted=each.code != ITEM)
                    for item, each in zip(items, made, strict=True)
                ]
            )
        except BaseException:
            self.draft.reopen_calls(closed)
            raise
        self.draft.take(addition)
        for item, each in zip(items, made, strict=True):
            if each.spare is not None:
                self.live.record_spare(*each.spare)
            self.live.record_item(item, code=each.code, call=each.call)

    def void_since_last_item(self) -> None:
        """Drop what was emitted since the last item, and report that to readers."""
        self.live.record_resumed(self.draft.void())

    async def start(self, place: int, *, read_only: bool) -> None:
        await self._record([journals.start_record(place, read_only=read_only)])
        self.draft.start(place, read_only=read_only)

    async def _record(self, records: list[bytes]) -> None:
        """Write to the journal. The caller updates the draft before anything else can happen, so that both
        agree even if a task is cancelled."""
        attempt = self.attempt
        request = RecordRequest(attempt.branch, attempt.id, self.branch.fence, self._journaled, records)
        try:
            await self.process.persist(record, request, attempt.owner)
        except OutcomeUnknown:
            self._is_in_doubt = True
            raise
        self._journaled += len(records)

    def to_commit(self) -> CommitRequest:
        """Return the commit of the turn. Raises EmptyTurn or MalformedItems if it is not complete, and
        InvalidInput for details that cannot be kept."""
        if self._is_in_doubt:
            raise OutcomeUnknown
        output, pending, ending = self.draft.whole()
        now = self.process.clock.now_ms()
        attempt, place, lane = self.attempt, self._place, self.branch
        details = self.process.limits.pack_details(self.details) if self.details else b""
        turn = turn_behind(self._end, attempt, TurnKind.COMPLETED, output, now, details=details)
        return CommitRequest(
            attempt=attempt,
            lane=lane.id,
            head=lane.head,
            turn=turn,
            fence=lane.fence,
            fork=place.fork if place else None,
            pending=pending,
            instructed=instructed_after(attempt.instructions, self._end.instructed, turn.number),
            journaled=self._journaled,
            now=now,
            log=self._log_of(output, ending),
            is_flushed=self._flushes > 0,
            home=self.conversation,
            undelivered=self.undelivered,
        )

    def _log_of(self, output: tuple[Item, ...], ending: Addition) -> bytes:
        """Return the event log of the complete turn; empty for a single delta, as it is stored."""
        live = self.live
        if live.more is None and live.count == 2 and not live.items and not self.draft.last:
            return b""
        log = bytearray(live.packed)
        for each in ending.made:
            event_log.pack_made(log, each.code, each.call)
            if each.spare is not None:
                event_log.pack_spare(log, event_log.spare_source(each.spare[0]), each.spare[1])
        if live.more is not None:
            log += event_log.spare_entries(bytes(log), output, live.more.between(0, live.more.length))
        return event_log.encode_log(bytes(log), output)

    def to_end(self, failure: Failure | None, on_stop: OnStop | None) -> EndRequest:
        """Return the request that ends the turn other than by commit."""
        live = self.live
        more = live.more.between(0, live.more.length) if live.more is not None else ""
        return EndRequest(
            owner=self.attempt.owner,
            conversation=self.conversation.id,
            branch=self.branch.id,
            attempt=self.id,
            fence=self.branch.fence,
            failure=failure,
            on_stop=on_stop,
            sent=SentLog(bytes(live.packed), len(live.items), self.draft.text, more),
            now=self.process.clock.now_ms(),
        )

    def to_flush(self) -> FlushRequest | None:
        """Return the events since the last flush; the same again until they are known to be stored."""
        if self.is_leaving:
            return None
        if self._flushing is None:
            chunk = self.live.next_chunk()
            if chunk is not None:
                number, self._flushes = self._flushes, self._flushes + 1
                self._flushing = FlushRequest(
                    self.attempt.branch, self.id, self.branch.fence, number, codec.encode(chunk)
                )
        return self._flushing

    def was_flushed(self, request: FlushRequest) -> None:
        """Record that this chunk is stored."""
        if self._flushing is request:
            self._flushing = None

    def interrupt(self, policy: OnStop | None) -> None:
        """Deliver a stop that was recorded elsewhere: the block is left at its next await. If no task is
        inside the block, the turn is ended at once, and the block raises TurnStopped when it continues."""
        if self.stop_requested is not None or self.is_leaving:
            return
        self.stop_requested = policy or self.attempt.on_stop
        self.was_stopped_elsewhere = True
        if not self._cancel():
            self.process.end_unheld(self, TurnStopped())

    def lose_lane(self) -> None:
        """Deliver that another process ended the attempt: the block is left at its next await."""
        if not self.is_leaving:
            self.has_lost_lane = True
            if not self._cancel():
                self.process.end_unheld(self, Superseded())

    def _cancel(self) -> bool:
        """Cancel the task that is inside the block; return whether there is one."""
        if not self.is_cancelling:
            task = self._task
            if self.generator is not None:
                task = task_inside(self.generator, task)
                if task is not None and task is not self._task:
                    self.task = task
            self.is_cancelling = task is not None and task.cancel()
        return self.is_cancelling

    def take_back_cancellation(self) -> bool:
        """Undo the cancellation by which a stop left the block; return whether it was the only one."""
        was_cancelled, self.is_cancelling = self.is_cancelling, False
        if not was_cancelled or self._task is None or self._task is not asyncio.current_task():
            return False
        return self._task.uncancel() == self._cancelling_before

    def is_held(self) -> bool:
        """Return whether a living task works on it."""
        if self._task is not None and not self._task.done():
            return True
        return self.generator is not None and task_inside(self.generator, None) is not None

    def is_inside(self) -> bool:
        """Return whether the block called the caller, directly or not."""
        if self.generator is not None:
            return is_running(self.generator)
        return self._task is asyncio.current_task() or self.id in inside.get()

    def finish(self, state: AttemptState, turn: Turn | None, failure: Failure | None) -> None:
        """Send readers the end; called after the store has decided."""
        self.state = state
        self.turn = turn
        self.failure = failure
        if not self.live.has_listeners:
            return
        if state in (AttemptState.SETTLED, AttemptState.RESUMED):
            # Settling and resuming come later; the attempt failed, or was stopped and discarded.
            state, turn = AttemptState.DISCARDED if failure is None else AttemptState.FAILED, None
        items = unsent_items(self.live.items, turn.output) if turn is not None else ()
        self.live.finish(items, state, failure)


class RunningTurn:
    """A running turn, as used in the block of `async with chat.turn(…)`, or by a runner.

    Its history is the committed one at its begin, and never changes. Text and items are a draft until the
    block is left; added items are journaled at once, so that a retry need not redo them. Several tasks
    may work on one turn; all must be done when the block is left.
    """

    def __init__(self, open: OpenTurn) -> None:
        self._open = open
        self._draft = open.draft
        self._snapshot = open.snapshot
        self.id: TurnId = open.id
        """The id of this attempt, and of the turn it becomes."""
        self.conversation: Conversation = open.conversation
        self.number: int = open.number
        """The future number of the turn."""
        self.began: BeginKind = open.began
        """Where it began: in a conversation that its begin `created`, or in one that it `continued` after the
        last turn or `branched` from an earlier one. Not known for a replayed turn."""
        self.is_resumed: bool = open.is_resumed
        """Whether an earlier attempt with this idempotency_key left finished steps to continue from."""
        self.history: Sequence[Turn] = open.snapshot.history
        """The committed turns that this one runs on, or as many of the last ones as its context can show."""
        self.instructions: tuple[Item, ...] = open.snapshot.instructions
        """The instructions in force for this turn, its own or those of an earlier one."""
        self.input: tuple[Item, ...] = open.attempt.input
        self.most_bytes: int = open.process.limits.turn_bytes
        """The most bytes of the answer."""

    def __repr__(self) -> str:
        return f"<RunningTurn {self.id}, number {self.number}, {self.state}>"

    @property
    def state(self) -> AttemptState:
        return self._open.state

    @property
    def turn(self) -> Turn | None:
        """The committed turn, once there is one."""
        return self._open.turn

    @property
    def details(self) -> dict[str, Any]:
        """JSON values to keep with the turn besides its items, such as the model and its token usage. Begins
        with those of `chat.turn(details=…)`. Durable with the commit; a turn that is stopped or fails keeps
        those it began with. See Turn.details."""
        return self._open.details

    @details.setter
    def details(self, details: dict[str, Any]) -> None:
        self._open.details = details

    @property
    def task(self) -> asyncio.Task[Any] | None:
        """The task that runs the block: a stop cancels it. Assign it when another task takes over the turn;
        not needed if the block is in an async generator, whose task is found."""
        return self._open.task

    @task.setter
    def task(self, task: asyncio.Task[Any]) -> None:
        self._open.task = task

    @property
    def steps(self) -> tuple[Item, ...]:
        """The finished items of the draft so far, including those of a resumed attempt."""
        return self._draft.steps

    @property
    def text(self) -> str:
        """The text emitted since the last finished item."""
        return self._draft.text

    @property
    def items(self) -> tuple[Item, ...]:
        """The input for the model, in Responses shape: the instructions in force, the primer, the history as
        its context shows it, the input, and the finished steps, or the prefill of a resent history."""
        return self._snapshot.shown(self.input, self._shown_steps)

    @property
    def _shown_steps(self) -> tuple[Item, ...]:
        """The finished steps; before the first, the answer that a client wants to be continued."""
        return self.steps or self._open.prefill

    @property
    def messages(self) -> list[Message]:
        """The input for the model, as chat messages."""
        return messages_of(self.items)

    @property
    def messages_json(self) -> bytes:
        """The messages as a JSON list: for a long history much cheaper than `messages`."""
        snapshot, history = self._snapshot, self._snapshot.history
        if not isinstance(history, History) or not snapshot.shows_all(self.input, self._shown_steps):
            return snapshot.limited_json(self.input, self._shown_steps)
        return self._after(*self._open.process.cache.chat_json_through(history))

    async def read_messages_json(self) -> bytes:
        """Return `messages_json`; decode a long history in a thread, off the event loop."""
        snapshot, history = self._snapshot, self._snapshot.history
        if isinstance(history, History) and snapshot.shows_all(self.input, self._shown_steps):
            cache = self._open.process.cache
            if len(history) < LONG:
                return self._after(*cache.chat_json_through(history))
            return self._after(*await cache.load_chat_json_through(history))
        quick = snapshot.quick_json(self.input, self._shown_steps)
        if quick is not None:
            return quick
        return await asyncio.to_thread(snapshot.limited_json, self.input, self._shown_steps)

    async def show_less(self, tokens: int | Callable[[int], int]) -> ReducedContext | None:
        """Leave out the oldest turns, for a model that refuses the length of what it is shown: show at most
        so many tokens. A function is called with the tokens shown, and returns how many may be left. Return
        what is left; None, and change nothing, if no turn can be left out. See Context for what is counted
        and always shown."""
        less, arguments = self._snapshot.reduced, (self.input, self._shown_steps, tokens)
        is_long = len(self._snapshot.history) >= LONG
        found = await asyncio.to_thread(less, *arguments) if is_long else less(*arguments)
        if found is None:
            return None
        self._snapshot, reduced = found
        return reduced

    def _after(self, said: bytes, rest: Sequence[Turn]) -> bytes:
        """Return a JSON list of `said` and all messages after it."""
        snapshot = self._snapshot
        behind = [item for turn in rest for item in turn.items]
        latest = (*behind, *self.input, *without_open_reasoning(self._shown_steps))
        open_calls(latest)
        before = (*snapshot.instructions, *snapshot.primer)
        return b"[%b]" % join_json(encode_messages(before) if before else b"", said, encode_messages(latest))

    @property
    def open_calls(self) -> tuple[Item, ...]:
        """The calls of the draft without a result."""
        return self._draft.open_calls

    def emit(self, text: str) -> None:
        """Add text to the answer. Durable with the commit, or with the next `add`; the text of a long turn is
        stored about twice a second. Raises MalformedItems if the turn grows too long."""
        self._open.check_open()
        shown = self._draft.emit(text) if text else ""
        if shown:
            self._open.live.record_text(shown)

    def emit_reasoning(self, text: str) -> None:
        """Add reasoning. It becomes one item before the text emitted since the last item; see `emit`."""
        self._emit_part(REASONING, text)

    def emit_refusal(self, text: str) -> None:
        """Add to the text in which the model declines to answer, a message of its own; see `emit`."""
        self._emit_part(REFUSAL, text)

    def _emit_part(self, kind: int, text: str) -> None:
        self._open.check_open()
        if text and (shown := self._draft.parts(len(text)).add(kind, text)):
            self._open.live.record_part(kind, shown)

    def begin_call(self, call_id: str, name: str, *, type: str = "function_call") -> None:
        """Open a call whose arguments follow by `emit_arguments`. It ends with its result, with an `add`
        without items, or with the turn; a call with the same id that is added or put takes its place. A turn
        that is stopped or fails keeps no open call. Raises MalformedItems if a call with this id is open."""
        self._open.check_open()
        opening = call_of(type, call_id, name)
        parts = self._draft.parts(len(opening.raw))
        if call_id in parts.calls:
            raise MalformedItems(
                f"The call id {plain(call_id)[:80]} is reused while its call is open. Use a new id."
            )
        parts.open(opening, self._open.live.record_opening(opening))

    def emit_arguments(self, call_id: str, text: str) -> None:
        """Add to the arguments of an open call; see `emit`. Raises MalformedItems if it is not open."""
        self._open.check_open()
        place, shown = self._draft.parts(len(text)).add_arguments(call_id, text)
        if shown:
            self._open.live.record_arguments(place, shown)

    async def add(self, *likes: ItemLike) -> None:
        """Add finished items to the answer, and journal them with what was emitted before; all or none.

        Raises MalformedItems if they would break the history, Superseded if the lane is lost. When it
        returns, a crash cannot lose them; when it is cancelled, they may be added.
        """
        items = [Item.of(like) for like in likes]
        async with self._open.recording:
            self._open.check_open()
            await uninterrupted(self._open.add(self._draft.next_items(items)))

    def put(self, *likes: ItemLike) -> None:
        """End the answer with finished items after all text and steps, such as calls left to the client, or a
        refusal; all or none. Nothing can follow.

        They are durable with the commit, and readers receive them with the end: a turn that is stopped or
        fails keeps none of them. Raises MalformedItems if they would break the history.
        """
        self._open.check_open()
        if likes:
            self._draft.end_with(tuple([Item.of(like) for like in likes]))

    async def call(
        self, call: ItemLike, tool: Callable[[], Awaitable[str]], *, read_only: bool = False
    ) -> Item:
        """Run a tool for a call and add its result; the call is added first if the draft lacks it.

        The start of the tool is on disk before it acts. In a resumed turn, a call that an earlier attempt
        started is not run again: its recorded result is returned, which may state that the outcome is
        unknown. The same call made again counts as its next occurrence. An exception of the tool fails the
        turn, unless the caller catches it and adds a result of its own.
        """
        self._open.check_open()
        item, recorded = self._draft.taken_up(Item.of(call))
        if recorded is not None:
            self._draft.drop_call(item.call_id)
            return recorded
        if self._draft.waiting_place(item) is None:
            await self.add(item)
        self._draft.drop_call(item.call_id)
        await self.start(item, read_only=read_only)
        result = result_of(item, await tool())
        await self.add(result)
        return result

    async def start(self, call: ItemLike, *, read_only: bool = False) -> None:
        """Record that the tool for this call is about to act. Act only after this has returned, then add the
        result. `read_only` means that the tool has no effects."""
        async with self._open.recording:
            self._open.check_open()
            self._draft.check_unended()
            place = self._draft.waiting_place(Item.of(call))
            if place is None:
                raise MalformedItems("Add the call before starting it, and start it once.")
            await uninterrupted(self._open.start(place, read_only=read_only))

    def stop(self, policy: OnStop | str | None = None) -> None:
        """End the turn here: leaving the block keeps it as interrupted, or discards it, by policy."""
        self._open.check_open()
        if policy is not None and policy not in tuple(OnStop):
            raise InvalidInput(f"policy is {policy!r}; it must be one of {', '.join(OnStop)}.")
        self._open.stop_requested = OnStop(policy) if policy else self._open.attempt.on_stop
