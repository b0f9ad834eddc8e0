"""The front door: open a ledger, name a conversation, run turns on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fsdecode
from random import Random
from typing import Self, Unpack

from turnledger.catalogue import Catalogue
from turnledger.chat import Chat
from turnledger.engine.admission import Readmit, persist_admitted
from turnledger.engine.check.check import CheckRequest, check
from turnledger.engine.clock import SystemClock, TrustedClock
from turnledger.engine.conversations.read import HomeRequest, home_of
from turnledger.engine.conversations.resolve import ResolveRequest, Target, resolve_now, resolve_settled
from turnledger.engine.conversations.search import SearchPage, SearchRequest, place_of, search_all
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.feed import ChangeReader, newest_position
from turnledger.engine.lane.lease import Probe
from turnledger.engine.lifecycle.create import NamedRequest, ResetRequest, make, named_by
from turnledger.engine.lifecycle.create import reset as reset_key
from turnledger.engine.lifecycle.delete import delete_for, restore_for
from turnledger.engine.limits import Limits, usage
from turnledger.engine.ports import Clock, Runner, Store, Sync
from turnledger.engine.process import AtWork, Process
from turnledger.engine.recovery import Tending
from turnledger.engine.resend.match import Sent
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.commit import abandon_block
from turnledger.engine.turn.resend import ChatMessage, OnDivergence
from turnledger.engine.turn.validation import (
    Input,
    TurnOptions,
    check_limit,
    check_may_make,
    check_name,
    details_of,
    divergence_of,
    make_request,
    resent_request,
    scope_in,
    target_of,
    turn_request,
)
from turnledger.errors import LedgerClosed, TurnledgerError
from turnledger.model.change import LiveChange
from turnledger.model.check import Finding
from turnledger.model.conversation import EVERYWHERE, LOCAL, Conversation, Usage, Within
from turnledger.model.ids import ConversationId, RandomBits, SystemEntropy, TurnId
from turnledger.model.retention import ResetPolicy, Retained
from turnledger.model.text.search import sought_in
from turnledger.model.turn import Turn
from turnledger.shares import Shares
from turnledger.stores.url import back_up_store, open_store
from turnledger.tokens import Tokens
from turnledger.transfer import Transfer

OWNER = LOCAL
"""The owner of conversations for which none is given."""


class Ledger:
    """Keeps conversations in one store. Share one per process; close it, or use it as a context manager."""

    def __init__(self, process: Process, secret_bits: RandomBits | None = None) -> None:
        self._process = process
        # Secrets do not come from bytes fetched in bulk, which would stay in memory.
        secrets = secret_bits or SystemEntropy(bulk=0)
        self._tokens = Tokens(process, secrets, OWNER)
        self._shares = Shares(process, secrets, OWNER)
        self._catalogue = Catalogue(process, OWNER)
        self._transfer = Transfer(process, OWNER)
        self._tending = Tending(process)
        self._probe = Probe(process.store, process.lease)
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, url: str = "memory:", *, limits: Limits | None = None) -> Ledger:
        """Open the store that `url` names: `memory:` or `sqlite:///path`."""
        limits = limits or Limits()
        return await cls.over(await open_store(url, page_bytes=limits.page_bytes), limits=limits)

    @staticmethod
    async def backup(
        url: str, file: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Copy the store that `url` names into a new file, as it is at one moment; others may keep using it.

        The copy is whole and on disk, or does not exist. `progress` is called from another thread with the
        bytes copied so far and the total. Raises InvalidInput if the file exists or cannot be written, and
        StoreErrors. Cancelling the caller does not stop the copy.
        """
        await asyncio.to_thread(back_up_store, url, fsdecode(file), progress or (lambda *_: None))

    @classmethod
    async def over(
        cls,
        store: Store,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> Ledger:
        """Open a ledger over a store of your own; tests may pass a clock and randomness."""
        bits = random.getrandbits if random else SystemEntropy()
        process = Process(store, clock or SystemClock(), bits, limits or Limits())
        ledger = cls(process, random.getrandbits if random else None)
        try:
            await store.keep_lease(process.lease, process.limits.lease_time / 3)
            await ledger._tending.compare_clocks()
            # Attempts that killed processes left behind must not make this one refuse its first turns.
            await ledger._tending.bury_dead()
        except BaseException:
            await store.close()
            raise
        ledger._tending.start()
        return ledger

    async def close(self) -> None:
        """End the turns that still run here as failed, and release the store. Cancelling the caller does not
        stop it; a second call waits for the first. Raises LedgerElsewhere, as all methods do, in a forked
        process or on another event loop."""
        self._process.home.check()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        process = self._process
        process.is_closed = True
        process.wake_everyone()
        try:
            for running in list(process.running.values()):
                with suppress(TurnledgerError):  # the lease reveals attempts that could not be ended
                    await abandon_block(process, running, LedgerClosed())
            await process.drained()
        finally:
            await self._tending.close()
            await process.feed.close()
            await process.flushing.close()
            await process.deliveries.close()
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
        scope: str = "",
        within: Within = EVERYWHERE,
        create: bool = True,
        internal: bool = False,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Iterable[str] = (),
        expires_after: float | None = None,
        reset: ResetPolicy | None = None,
        idempotency_key: str | None = None,
    ) -> Chat:
        """Open a conversation by its id or a key of your own, or start a new one.

        Concurrent first calls with one conversation_key converge on one conversation. `create=False` raises
        ConversationNotFound instead of starting one, as an unknown id always does. The details apply only if
        this call creates the conversation. An internal one is never listed; `expires_after` is in seconds
        without interaction. `reset` becomes the policy of the key: once it ends the conversation, and no turn
        runs there, the key moves to a fresh one in the same transaction; the old one can still be opened by
        its id. The same call with the same idempotency_key returns the same conversation. Raises
        ConversationNotFound, ConversationDeleted, ConversationExpired or IdempotencyMismatch.

        `scope` names the application of a conversation. Each scope has its own conversation_keys, and a
        conversation never leaves its scope. `within` is for callers who may see one scope or one conversation
        only: they create conversations there, and no other exists for them or for their Chat. All methods of
        a ledger take both.
        """
        process = self._process
        details = details_of(title, metadata, internal=internal, expires_after=expires_after, tags=tags)
        target = target_of(
            process,
            id,
            conversation_key,
            owner,
            scope=scope,
            within=within,
            create=create,
            reset=reset,
            **details,
        )
        request, found = ResolveRequest(target, process.clock.due_ms(), process.limits.room), None
        if idempotency_key is not None:
            found = await process.persist(make, make_request(process, target, idempotency_key), Sync.DISK)
        elif id is not None or conversation_key is not None:
            found = await process.store.read(resolve_settled, request)
        if found is None:
            found = await process.persist(resolve_now, request, Sync.DISK)
        is_new = target.fresh is not None and found.id == target.fresh.id
        return Chat(process, found, is_new=is_new, within=within)

    async def chat_of(self, turn: str, *, owner: str = OWNER, within: Within = EVERYWHERE) -> Chat:
        """Open the conversation of a turn, whether committed, running, waiting or failed. Raises
        TurnNotFound, ConversationDeleted or ConversationExpired."""
        process = self._process
        request = HomeRequest(owner, TurnId(turn), process.clock.due_ms(), within)
        return Chat(process, await process.store.read(home_of, request), within=within)

    async def is_named(self, conversation_key: str, *, owner: str = OWNER, scope: str = "") -> bool:
        """Report whether a conversation_key names an existing conversation; creates none."""
        request = NamedRequest(owner, scope, conversation_key)
        return await self._process.store.read(named_by, request) is not None

    async def reset(
        self,
        conversation_key: str,
        *,
        owner: str = OWNER,
        scope: str = "",
        within: Within = EVERYWHERE,
        replaces: str | None = None,
        admitted: int | None = None,
        readmit: Readmit | None = None,
    ) -> Chat:
        """Give the key to a fresh conversation with the same settings, even if it names none yet or an
        expired one. Running and waiting turns stay on the old one, as does its history.

        With `replaces`, the id of a conversation, only if the key still names that one. Concurrent resets,
        and retries after a lost response, converge on one conversation: `is_new` reports whether this call
        created it. Raises ConversationNotFound, InvalidInput if the one to replace never had the key, and
        AdmissionMoved as a turn with `admitted` does.
        """
        check_may_make(within)
        process = self._process
        target = target_of(process, None, conversation_key, owner, scope=scope, within=within)
        fresh, scope = target.fresh, target.scope
        assert fresh is not None  # noqa: S101 - for the type checker
        seen = ConversationId(replaces) if replaces is not None else None
        if seen is None:
            seen = await process.store.read(named_by, NamedRequest(owner, scope, conversation_key))
        now = process.clock.due_ms()
        request = ResetRequest(
            owner, scope, conversation_key, seen, fresh, now, within, process.limits.room, admitted
        )
        found = await persist_admitted(process, reset_key, request, readmit)
        return Chat(process, found, is_new=found.id == fresh.id, within=within)

    async def delete(
        self, id: str, *, owner: str = OWNER, within: Within = EVERYWHERE, purge: bool = False
    ) -> Conversation:
        """Delete a conversation, or purge a deleted one; see Chat.delete. Raises ConversationNotFound."""
        return await delete_for(self._process, owner, ConversationId(id), within, purge=purge)

    async def restore(self, id: str, *, owner: str = OWNER, within: Within = EVERYWHERE) -> Chat:
        """Restore a deleted conversation with all of its contents and details.

        It gets its conversation_key back if that is still free; otherwise it has none, and
        `former_conversation_key` holds it. Restoring one that is not deleted changes nothing. Raises
        ConversationNotFound, ConversationDeleted if it was purged, and ConversationExpired.
        """
        found = await restore_for(self._process, owner, ConversationId(id), within)
        return Chat(self._process, found, within=within)

    async def retain(self) -> Retained:
        """Apply the retention limits of each owner, and report what was removed; a timer does so, too.

        Conversations older than Limits.retain_for are deleted and can be restored. Beyond
        Limits.retain_bytes, the oldest are purged. Never removes a pinned conversation, or one with a running
        turn.
        """
        return await self._tending.retaining.retain()

    async def search(
        self,
        text: str,
        *,
        owner: str = OWNER,
        scope: str | None = None,
        within: Within = EVERYWHERE,
        cursor: str | None = None,
        limit: int = 20,
    ) -> SearchPage:
        """Find the owner's chats with all words of a text in the title or in one message, of one scope or of
        all. Title matches come first, then the newest messages; one hit per chat and page.

        Any text is valid: quoted words and those without a space between match as written, the last word may
        be a prefix, and a text without words finds nothing. `cursor` is `next` of the previous page. Turns
        committed before the call are found; see SearchPage.is_complete.
        """
        check_name("owner", owner)
        if scope is not None or within.scope is not None:
            scope = scope_in(scope or "", within)
        now, before = self._process.clock.due_ms(), place_of(cursor)
        request = SearchRequest(owner, scope, sought_in(text), before, check_limit(limit), now, within)
        return await search_all(self._process.store, request)

    def turn(
        self,
        input: Input,
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        owner: str = OWNER,
        scope: str = "",
        within: Within = EVERYWHERE,
        create: bool = True,
        reset: ResetPolicy | None = None,
        replaces: str | None = None,
        regenerates: str | bool = False,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run one turn on a named or new conversation, as a block or with a runner; see Chat.turn.

        The transaction that begins the turn also finds or creates the conversation: a refused request creates
        none, and it costs no more than a turn of a Chat. `create=False` raises ConversationNotFound instead.
        `turn.began` says what happened; `reset` is the policy of the conversation_key, see `conversation`.
        With `replaces`, the id of a turn, it takes the place of that turn, see Chat.edit. With `regenerates`,
        such an id or True for the last one, and no input, see Chat.regenerate. Neither creates a
        conversation.
        """
        place = divergence_of(self._process, replaces, regenerates)
        creates = create and place is None
        target = self._target(conversation, conversation_key, owner, scope, within, creates, reset)
        request = turn_request(self._process, target, input, place, **options)
        return TurnBlock(self._process, request, on_event)

    def _target(
        self,
        id: str | None,
        key: str | None,
        owner: str,
        scope: str,
        within: Within,
        create: bool,
        reset: ResetPolicy | None,
    ) -> Target:
        """Return the conversation of a turn. One created for it is listed from its first commit on."""
        where = (self._process, id, key, owner)
        return target_of(*where, scope=scope, within=within, create=create, reset=reset, is_listed=False)

    def resent(
        self,
        messages: Sequence[ChatMessage],
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        owner: str = OWNER,
        scope: str = "",
        within: Within = EVERYWHERE,
        create: bool = True,
        reset: ResetPolicy | None = None,
        sent: Sent | str | None = None,
        on_divergence: OnDivergence | str = OnDivergence.BRANCH,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run the turn that a list of chat messages asks for, on a named or new conversation; see `turn` and
        Chat.resent."""
        target = self._target(conversation, conversation_key, owner, scope, within, create, reset)
        request = resent_request(self._process, target, messages, sent, on_divergence, options)
        return TurnBlock(self._process, request, on_event)

    async def run(
        self,
        runner: Runner,
        input: Input,
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        owner: str = OWNER,
        scope: str = "",
        within: Within = EVERYWHERE,
        create: bool = True,
        reset: ResetPolicy | None = None,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Run one turn with a runner on a named or new conversation, and return the committed turn:
        `ledger.turn(…).run(runner)`.

        With an idempotency_key, repeated calls yield one committed turn and the same answer: a finished turn
        is replayed, a running one awaited, a failed one resumed. Raises what the runner raises, and
        TurnStopped or TurnFailed if another caller's attempt ended so. `interaction=False` marks automatic
        work: it postpones neither the expiry nor the reset of a conversation, and triggers no reset.
        """
        target = self._target(conversation, conversation_key, owner, scope, within, create, reset)
        request = turn_request(self._process, target, input, **options)
        return await TurnBlock(self._process, request, on_event).run(runner)

    async def changes(
        self, *, owner: str = OWNER, within: Within = EVERYWHERE, after: str | None = None
    ) -> AsyncIterator[LiveChange]:
        """Follow the changes to an owner's chats, made by any process, in order and without polling.

        The first change is `start`; all later changes behind its position follow. With `after`, the text of a
        position, it continues behind that. If those changes are no longer kept, it reports a `gap` and
        continues from now. A slow reader catches up from the store and delays nobody. Raises LedgerClosed and
        TooManyReaders.
        """
        with self.follow(owner=owner, within=within, after=after) as following:
            while True:
                for change in await following.next_batch():
                    yield change

    def follow(
        self, *, owner: str = OWNER, within: Within = EVERYWHERE, after: str | None = None
    ) -> ChangeReader:
        """Like `changes`, in batches and with the position in between: for servers."""

        return ChangeReader(self._process, owner, within, after)

    async def position(self, *, owner: str = OWNER) -> str:
        """Return the position from which `changes` reports everything that happens from now on."""
        return str(await self._process.store.read(newest_position, owner))

    async def usage(self, *, owner: str = OWNER) -> Usage:
        """Return how much is stored for an owner; see Limits.owner_bytes."""
        return await self._process.store.read(usage, owner)

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue

    @property
    def tokens(self) -> Tokens:
        """Authentication tokens, for servers: create, find, list and revoke them."""
        return self._tokens

    @property
    def transfer(self) -> Transfer:
        """Export and import of chats as lines of JSON."""
        return self._transfer

    @property
    def shares(self) -> Shares:
        """Share links: create, list and revoke them, and exchange them for tokens."""
        return self._shares

    @property
    def clock(self) -> TrustedClock:
        """The clock for leases, conversations and tokens."""
        return self._process.clock

    def at_work(self) -> AtWork:
        """Return how many turns run and wait in this process, and how many readers its events have."""
        return self._process.at_work()

    async def recover(self) -> None:
        """End what dead processes have left running, now, for a host that saw a process die. A timer and
        every process that needs a lane do so, too."""
        await self._tending.bury_dead()

    def delivered(self, asked: TurnBlock) -> None:
        """Record that the client that requested this turn, with a `retry`, received the whole answer.

        From then on the same input is a second message, not a retry. Written soon, without waiting; does
        nothing for a turn without `retry`.
        """
        asked.note_delivery(is_delivered=True)

    def lost(self, asked: TurnBlock) -> None:
        """Record that the client that requested this turn, with a `retry`, did not receive the whole answer:
        the connection broke, or it received an error, such as an unknown outcome.

        A later try attaches to the running turn, receives the answer of a committed one, unless others have
        built on it, or resumes a failed one. Call this only if the loss is certain: while neither this nor
        `delivered` was called for a committed turn, a later try runs again.
        """
        asked.note_delivery(is_delivered=False)

    async def probe(self) -> None:
        """Check whether turns can run: write this process's heartbeat to disk, and read a few chats,
        different ones each time. Raises a StoreError with the reason, or LedgerClosed."""
        await self._probe.run()

    async def check(self, *, at_rest: bool = False, limit: int = 1_000) -> list[Finding]:
        """Check that the stored data of all owners keeps the promises, and return what is wrong.

        `at_rest` expects no activity: it also reports attempts that run or wait, though not as damage.
        Changes nothing. On SQLite, commits continue meanwhile; other reads of this ledger wait.
        """
        request = CheckRequest(at_rest=at_rest, limit=check_limit(limit))
        return (await self._process.store.read(check, request)).findings
