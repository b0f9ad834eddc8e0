"""The front door: open a ledger, name a conversation, run turns on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from turnledger.engine.begin import BeginRequest
from turnledger.engine.branching import Divergence
from turnledger.engine.check import CheckRequest, check
from turnledger.engine.conversations import (
    DeleteRequest,
    ListRequest,
    ResolveRequest,
    Target,
    UpdateRequest,
    delete,
    list_page,
    new_conversation,
    resolve_now,
    resolve_settled,
    update,
)
from turnledger.engine.ending import Ended
from turnledger.engine.entering import enter, outcome_of, relocate
from turnledger.engine.idempotency import Key, fingerprint
from turnledger.engine.leaving import abandon_block, leave
from turnledger.engine.limits import Limits
from turnledger.engine.moving import (
    ForkRequest,
    Move,
    Sibling,
    SiblingsRequest,
    Switch,
    Undo,
    fork,
    siblings,
)
from turnledger.engine.outcome import committed
from turnledger.engine.ports import Clock, Runner, Store, Sync
from turnledger.engine.process import Process
from turnledger.engine.reading import InfoRequest, PageRequest, SetAside, attempts_page, info, turns_page
from turnledger.engine.stops import StopRequest, request_stop
from turnledger.engine.system_clock import SystemClock
from turnledger.engine.tending import Tending
from turnledger.engine.transaction import EventSink, RunningTurn
from turnledger.errors import (
    InvalidInput,
    LedgerClosed,
    MalformedItems,
    TurnledgerError,
    TurnReplayed,
)
from turnledger.model.attempt import OnBusy, OnFailure, OnStop
from turnledger.model.conversation import Conversation
from turnledger.model.finding import Finding
from turnledger.model.ids import BranchId, ConversationId, SystemEntropy, TurnId
from turnledger.model.item import Item, ItemLike, is_unicode, items_of
from turnledger.model.pairing import check_input
from turnledger.model.turn import Turn
from turnledger.stores.opening import open_store

Input: TypeAlias = "ItemLike | Iterable[ItemLike]"

OWNER = "local"
"""Who conversations belong to when nobody is named."""
KEY_LENGTH = 512
TEXT_LENGTH = 512
METADATA_PAIRS = 16
PAGE = 1_000
LONGEST = 1e9


class Ledger:
    """Keeps conversations in one store. Share one per process; close it, or use it as a context manager."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._tending = Tending(process)
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, url: str = "memory:", *, limits: Limits | None = None) -> Ledger:
        """Open the store that `url` names: `memory:` or `sqlite:///path`."""
        return await cls.over(await open_store(url), limits=limits)

    @classmethod
    async def over(
        cls,
        store: Store,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> Ledger:
        """Open a ledger over a store of one's own making; clock and randomness can be given for tests."""
        bits = random.getrandbits if random else SystemEntropy()
        process = Process(store, clock or SystemClock(), bits, limits or Limits())
        ledger = cls(process)
        try:
            await store.keep_lease(process.lease, process.limits.lease_time / 3)
        except BaseException:
            await store.close()
            raise
        ledger._tending.start()
        return ledger

    async def close(self) -> None:
        """End the turns that still run here as failed, and release the store. Cancelled, it goes on by
        itself; closing twice waits for the first."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        process = self._process
        process.is_closed = True
        process.bells.wake_everyone()
        try:
            for running in list(process.running.values()):
                with suppress(TurnledgerError):  # what could not be recorded is found through the lease
                    await abandon_block(process, running)
            await process.drained()
        finally:
            await self._tending.close()
            await process.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def conversation(
        self,
        id: str | None = None,
        *,
        conversation_key: str | None = None,
        owner: str = OWNER,
        create: bool = True,
        internal: bool = False,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        expires_after: float | None = None,
    ) -> Chat:
        """Open a conversation by its id, or by a key of your own, or start a new one.

        Concurrent first calls with one conversation_key converge on one conversation. `create=False` refuses
        to start one; an id never does. The details are for a conversation that is created here. An internal
        one never shows in a listing; `expires_after` is in seconds without interaction. Raises
        ConversationNotFound, ConversationDeleted or ConversationExpired.
        """
        _check_details(title, metadata)
        if expires_after is not None and not 0 < expires_after <= LONGEST:
            raise InvalidInput(f"expires_after must be above 0 and at most {LONGEST:g} seconds.")
        target = self._target(
            id,
            conversation_key,
            owner,
            create=create,
            internal=internal,
            title=title,
            metadata=dict(metadata or {}),
            expires_after=None if expires_after is None else round(expires_after * 1000),
        )
        process = self._process
        request = ResolveRequest(target, process.clock.now_ms())
        found = None
        if id is not None or conversation_key is not None:
            found = await process.store.read(resolve_settled, request)
        if found is None:
            found = await process.persist(resolve_now, request, Sync.DISK)
        return Chat(self._process, found)

    def _target(
        self, id: str | None, conversation_key: str | None, owner: str, *, create: bool, **details: Any
    ) -> Target:
        process = self._process
        if process.is_closed:
            raise LedgerClosed
        _check_name("owner", owner)
        if id is not None and conversation_key is not None:
            raise InvalidInput("Give an id or a conversation_key, not both.")
        if id is not None:
            return Target(owner, ConversationId(id))
        if conversation_key is not None:
            _check_name("conversation_key", conversation_key)
        fresh = new_conversation(
            owner,
            process.ids.new(ConversationId),
            process.ids.new(BranchId),
            process.clock.now_ms(),
            conversation_key=conversation_key,
            **details,
        )
        return Target(owner, None, conversation_key, fresh if create else None)

    async def conversations(
        self, *, owner: str = OWNER, before: str | None = None, limit: int = 50
    ) -> list[Conversation]:
        """List the owner's conversations, the last used first; `before` is the last id of the page before."""
        cursor = ConversationId(before) if before else None
        request = ListRequest(owner, cursor, _check_limit(limit), self._process.clock.now_ms())
        return await self._process.store.read(list_page, request)

    async def run(
        self,
        runner: Runner,
        input: Input,
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        owner: str = OWNER,
        idempotency_key: str | None = None,
        on_busy: OnBusy | str = OnBusy.QUEUE,
        on_stop: OnStop | str = OnStop.KEEP,
        on_failure: OnFailure | str = OnFailure.SETTLE,
        on_event: EventSink | None = None,
    ) -> Turn:
        """Run one turn with a runner, on a conversation that is named or new, and return it as committed.

        With an idempotency_key the same call yields one committed turn and the same answer, however often
        it is made: a finished one is replayed, a running one waited for, a failed one resumed. Raises what
        the runner raises, and TurnStopped or TurnFailed if another caller's attempt answers and ended so.
        """
        target = self._target(conversation, conversation_key, owner, create=True)
        request = begin_request(self._process, target, input, idempotency_key, on_busy, on_stop, on_failure)
        return await run_turn(self._process, request, runner, on_event)

    async def check(self, *, at_rest: bool = False, limit: int = 1_000) -> list[Finding]:
        """Look whether everything stored keeps the promises, of all owners; return what is wrong.

        `at_rest` says that nobody should be at work: then what still runs or waits is reported as well,
        though not as damage. Changes nothing. It is one long read on one view of the store: on SQLite,
        commits go on beside it, and other reads of this ledger wait.
        """
        request = CheckRequest(at_rest=at_rest, limit=_check_limit(limit))
        return (await self._process.store.read(check, request)).findings


class Chat:
    """One conversation, as one owner sees it."""

    def __init__(self, process: Process, found: Conversation) -> None:
        self._process = process
        self._found = found

    @property
    def id(self) -> ConversationId:
        return self._found.id

    @property
    def owner(self) -> str:
        return self._found.owner

    @property
    def conversation_key(self) -> str | None:
        return self._found.conversation_key

    def turn(
        self,
        input: Input,
        *,
        idempotency_key: str | None = None,
        on_busy: OnBusy | str = OnBusy.QUEUE,
        on_stop: OnStop | str = OnStop.KEEP,
        on_failure: OnFailure | str = OnFailure.SETTLE,
        on_event: EventSink | None = None,
    ) -> TurnBlock:
        """Run one turn as a block: `async with chat.turn("Hello") as turn: …`.

        Left normally, it is committed when the block has ended. Left by an exception or a cancellation,
        nothing happened. `turn.stop()` keeps it as interrupted. An idempotency_key that stands for a
        committed turn raises TurnReplayed with that turn, instead of running the block.
        """
        request = begin_request(
            self._process, self._target(), input, idempotency_key, on_busy, on_stop, on_failure
        )
        return TurnBlock(self._process, request, on_event)

    async def run(
        self,
        runner: Runner,
        input: Input,
        *,
        idempotency_key: str | None = None,
        on_busy: OnBusy | str = OnBusy.QUEUE,
        on_stop: OnStop | str = OnStop.KEEP,
        on_failure: OnFailure | str = OnFailure.SETTLE,
        on_event: EventSink | None = None,
    ) -> Turn:
        """Run one turn with a runner and return it as committed; see Ledger.run."""
        request = begin_request(
            self._process, self._target(), input, idempotency_key, on_busy, on_stop, on_failure
        )
        return await run_turn(self._process, request, runner, on_event)

    def edit(
        self,
        turn: str,
        input: Input,
        *,
        idempotency_key: str | None = None,
        on_busy: OnBusy | str = OnBusy.QUEUE,
        on_stop: OnStop | str = OnStop.KEEP,
        on_failure: OnFailure | str = OnFailure.SETTLE,
        on_event: EventSink | None = None,
    ) -> TurnBlock:
        """Run a turn in the place of an earlier one, as a block.

        It sees the history before that turn, and commits on a new branch, which the conversation shows from
        then on; the old branch stays, see `siblings` and `switch`. Until then, and if it fails, nothing has
        changed. Raises TurnNotFound if the turn is not on the branch that the conversation shows.
        """
        place = Divergence(branch=self._process.ids.new(BranchId), replaces=TurnId(turn))
        request = begin_request(
            self._process, self._target(), input, idempotency_key, on_busy, on_stop, on_failure, place
        )
        return TurnBlock(self._process, request, on_event)

    def regenerate(
        self,
        turn: str | None = None,
        *,
        idempotency_key: str | None = None,
        on_busy: OnBusy | str = OnBusy.QUEUE,
        on_stop: OnStop | str = OnStop.KEEP,
        on_failure: OnFailure | str = OnFailure.SETTLE,
        on_event: EventSink | None = None,
    ) -> TurnBlock:
        """Run the last turn again, or the one named, with the same input, as a block; see `edit`."""
        place = Divergence(
            branch=self._process.ids.new(BranchId),
            replaces=TurnId(turn) if turn else None,
            regenerates=True,
        )
        request = begin_request(
            self._process, self._target(), (), idempotency_key, on_busy, on_stop, on_failure, place
        )
        return TurnBlock(self._process, request, on_event)

    async def fork(
        self,
        turn: str | None = None,
        *,
        conversation_key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Chat:
        """Start a new conversation that begins as this one does, up to a turn, or to its end. It copies
        nothing; deleting this one leaves it whole."""
        _check_details(title, metadata)
        process = self._process
        if conversation_key is not None:
            _check_name("conversation_key", conversation_key)
        now = process.clock.now_ms()
        fresh = new_conversation(
            self.owner,
            process.ids.new(ConversationId),
            process.ids.new(BranchId),
            now,
            conversation_key=conversation_key,
            title=title,
            metadata=dict(metadata or {}),
        )
        request = ForkRequest(self.owner, self.id, TurnId(turn) if turn else None, fresh, now)
        return Chat(process, await process.persist(fork, request))

    async def undo(self, *, forget: bool = False, on_busy: OnBusy | str = OnBusy.QUEUE) -> None:
        """Take back the last turn: the conversation shows a branch without it.

        Settled turns tell the model what tools did: they are not taken back, nor left behind, unless
        `forget` says so. Raises TurnNotFound if there is no turn to take back.
        """
        await self._move(Undo(self._process.ids.new(BranchId), forget), on_busy)

    async def switch(self, branch: str, *, on_busy: OnBusy | str = OnBusy.QUEUE) -> None:
        """Show another branch of the conversation, and go on there. Raises BranchNotFound."""
        await self._move(Switch(BranchId(branch)), on_busy)

    async def _move(self, move: Move, on_busy: OnBusy | str) -> None:
        request = move_request(self._process, self._target(), move, _choice(OnBusy, "on_busy", on_busy))
        await relocate(self._process, request)

    async def siblings(self, turn: str, *, limit: int = 50) -> list[Sibling]:
        """The turns that were made in the place of this one, itself included, each with the branch that
        shows it."""
        now = self._process.clock.now_ms()
        request = SiblingsRequest(self.owner, self.id, TurnId(turn), _check_limit(limit), now)
        return await self._process.store.read(siblings, request)

    def _target(self) -> Target:
        return Target(self.owner, self.id, self.conversation_key)

    async def turns(self, *, before: int | None = None, limit: int = 50) -> list[Turn]:
        """A page of committed turns in order: the last ones, or those before a turn's number."""
        return await self._process.store.read(turns_page, self._page(before, limit))

    async def history(self) -> list[Item]:
        """All items of all committed turns, in order."""
        items: list[Item] = []
        page = await self.turns(limit=PAGE)
        pages = [page]
        while page and page[0].number > 1:
            page = await self.turns(before=page[0].number, limit=PAGE)
            pages.append(page)
        for turns in reversed(pages):
            for turn in turns:
                items.extend(turn.items)
        return items

    async def attempts(self, *, limit: int = 50) -> list[SetAside]:
        """The attempts that are not in the history: running, failed, discarded; newest first."""
        return await self._process.store.read(attempts_page, self._page(None, limit))

    def _page(self, before: int | None, limit: int) -> PageRequest:
        return PageRequest(self.owner, self.id, before, _check_limit(limit), self._process.clock.now_ms())

    async def stop(self, turn: str | None = None, *, policy: OnStop | str | None = None) -> Ended | None:
        """Stop the running turn, or the named one, running or queued, in whatever process it is.

        Returns when it is final, with the outcome that won; None if there was nothing to stop.
        """
        name = TurnId(turn) if turn else None
        chosen = _choice(OnStop, "policy", policy) if policy else None
        process = self._process
        if process.is_inside(self.id, name):
            raise InvalidInput("Inside the block of the turn itself, use turn.stop().")
        request = StopRequest(self.owner, self.id, name, chosen, process.clock.now_ms())
        found = await process.persist(request_stop, request)
        if found is None or isinstance(found, Ended):
            process.bells.ring(self.id)
            return found
        process.interrupt_here(found.id, found.stop)
        return await outcome_of(process, self.owner, found.id)

    async def info(self) -> Conversation:
        """The conversation as it is: title, metadata, revision, times."""
        request = InfoRequest(self.owner, self.id, self._process.clock.now_ms())
        return await self._process.store.read(info, request)

    async def update(
        self,
        *,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        revision: int | None = None,
    ) -> Conversation:
        """Set title or metadata; with the revision that was read, only if nobody did so since. Never
        disturbs a running turn."""
        _check_details(title, metadata)
        now = self._process.clock.now_ms()
        request = UpdateRequest(self.owner, self.id, title, metadata, revision, now)
        return await self._process.store.transact(update, request)

    async def delete(self) -> None:
        """Delete the conversation; a running turn ends with it. The conversation_key is free again."""
        process = self._process
        request = DeleteRequest(self.owner, self.id, process.clock.now_ms())
        branch = await process.persist(delete, request)
        process.cache.forget(branch)
        process.lose_lanes(self.id)
        process.bells.ring_all()


class TurnBlock:
    """The context manager of one turn; used once."""

    def __init__(self, process: Process, request: BeginRequest, on_event: EventSink | None) -> None:
        self._process = process
        self._request = request
        self._on_event = on_event
        self._running: RunningTurn | None = None
        self._is_used = False

    @property
    def id(self) -> TurnId:
        """The id that the turn will have; `chat.stop(id)` stops it while it waits, too."""
        return self._request.attempt

    async def __aenter__(self) -> RunningTurn:
        if self._is_used:
            raise InvalidInput("A turn runs once. Call chat.turn() again for another one.")
        self._is_used = True
        entered = await enter(self._process, self._request, self._on_event)
        if isinstance(entered, Ended):
            raise TurnReplayed(committed(entered))
        self._running = entered
        return entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._running is not None  # noqa: S101 - the block was entered
        await leave(self._process, self._running, problem)


async def run_turn(
    process: Process, request: BeginRequest, runner: Runner, on_event: EventSink | None
) -> Turn:
    """Run a turn with a runner; return it as committed, by this attempt or by an earlier one."""
    try:
        async with TurnBlock(process, request, on_event) as running:
            await runner(running)
    except TurnReplayed as replay:
        return replay.turn
    return committed(Ended(running.state, running.turn))


def begin_request(
    process: Process,
    target: Target,
    input: Input,
    idempotency_key: str | None,
    on_busy: OnBusy | str,
    on_stop: OnStop | str,
    on_failure: OnFailure | str,
    place: Divergence | None = None,
) -> BeginRequest:
    """Check what a caller asks for, and make it a request to begin."""
    items = items_of(input)
    limits = process.limits
    if len(items) > limits.input_items or sum(len(item.raw) for item in items) > limits.turn_bytes:
        raise MalformedItems(
            f"The input is too large: at most {limits.input_items} items and {limits.turn_bytes} bytes."
        )
    if place is None or not place.regenerates:
        check_input(items)
    if idempotency_key is not None:
        _check_name("idempotency_key", idempotency_key)
    now = process.clock.now_ms()
    return BeginRequest(
        target=target,
        attempt=process.ids.new(TurnId),
        lease=process.lease,
        input=items,
        now=now,
        wait_until=now + round(limits.queue_wait * 1000),
        queue_limit=limits.queue_length,
        on_busy=_choice(OnBusy, "on_busy", on_busy),
        on_stop=_choice(OnStop, "on_stop", on_stop),
        on_failure=_choice(OnFailure, "on_failure", on_failure),
        diverge=place,
        key=Key(idempotency_key, _fingerprint(items, place)) if idempotency_key else None,
    )


def _fingerprint(items: tuple[Item, ...], place: Divergence | None) -> bytes:
    return fingerprint(items) if place is None else fingerprint(items, place.after, place.replaces)


def move_request(process: Process, target: Target, move: Move, on_busy: OnBusy) -> BeginRequest:
    """A request that takes the lane as a turn does, and runs none."""
    now, limits = process.clock.now_ms(), process.limits
    return BeginRequest(
        target=target,
        attempt=process.ids.new(TurnId),
        lease=process.lease,
        input=(),
        now=now,
        wait_until=now + round(limits.queue_wait * 1000),
        queue_limit=limits.queue_length,
        on_busy=on_busy,
        move=move,
    )


Policy = TypeVar("Policy", OnBusy, OnStop, OnFailure)


def _choice(kind: type[Policy], name: str, value: Policy | str) -> Policy:
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise InvalidInput(f"{name} is {value!r}; it must be one of {known}.") from None


def _check_name(name: str, value: str) -> None:
    if not value or len(value) > KEY_LENGTH:
        raise InvalidInput(f"{name} must have 1 to {KEY_LENGTH} characters.")
    if not is_unicode(value):
        raise InvalidInput(f"{name} must be Unicode text.")


def _check_details(title: str | None, metadata: Mapping[str, str] | None) -> None:
    texts = [title or "", *(metadata or {}), *(metadata or {}).values()]
    if not all(map(is_unicode, texts)):
        raise InvalidInput("A title and metadata are Unicode text.")
    if title is not None and len(title) > TEXT_LENGTH:
        raise InvalidInput(f"A title has at most {TEXT_LENGTH} characters.")
    pairs = (metadata or {}).items()
    if len(pairs) > METADATA_PAIRS or any(
        len(name) > 64 or len(value) > TEXT_LENGTH for name, value in pairs
    ):
        raise InvalidInput(
            f"Metadata has at most {METADATA_PAIRS} pairs; names have 64 characters, values {TEXT_LENGTH}."
        )


def _check_limit(limit: int) -> int:
    if not 1 <= limit <= PAGE:
        raise InvalidInput(f"limit must be 1 to {PAGE}.")
    return limit
