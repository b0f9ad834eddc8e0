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
"""Who conversations belong to when nobody is named."""


class Ledger:
    """Keeps conversations in one store. Share one per process; close it, or use it as a context manager."""

    def __init__(self, process: Process, secret_bits: RandomBits | None = None) -> None:
        self._process = process
        # Secrets are not made of bytes that were fetched in bulk: those would lie about in memory.
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
        """Copy the store that `url` names into a new file, as it is at one moment; others may go on using it.
        The copy is whole and on disk, or not there. `progress` is called from another thread with the bytes
        copied so far and those in all.

        Raises InvalidInput if the file exists or cannot be written, and StoreErrors. Cancelled, it goes on by
        itself.
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
        """Open a ledger over a store of one's own making; clock and randomness can be given for tests."""
        bits = random.getrandbits if random else SystemEntropy()
        process = Process(store, clock or SystemClock(), bits, limits or Limits())
        ledger = cls(process, random.getrandbits if random else None)
        try:
            await store.keep_lease(process.lease, process.limits.lease_time / 3)
            await ledger._tending.compare_clocks()
            # What the processes before this one left when they were killed must not refuse its first turns.
            await ledger._tending.bury_dead()
        except BaseException:
            await store.close()
            raise
        ledger._tending.start()
        return ledger

    async def close(self) -> None:
        """End the turns that still run here as failed, and release the store. Cancelled, it goes on by
        itself; closing twice waits for the first. Raises LedgerElsewhere, as all methods do, in a forked
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
                with suppress(TurnledgerError):  # what could not be recorded is found through the lease
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
        """Open a conversation by its id, or by a key of your own, or start a new one.

        Concurrent first calls with one conversation_key converge on one conversation. `create=False` refuses
        to start one; an id never does. The details are for a conversation that is created here. An internal
        one never shows in a listing; `expires_after` is in seconds without interaction. `reset` is the
        policy of the key from now on: once its conversation is over by it, and no turn runs there, the key
        is given to a fresh one in the same step; the old one can still be opened by its id. The same call
        with the same idempotency_key returns the same one. Raises ConversationNotFound, ConversationDeleted,
        ConversationExpired or IdempotencyMismatch.

        `scope` names the application that a conversation is for: each has conversation_keys of its own, and
        a conversation stays in the one it was made in. `within` is for callers who may see one scope or one
        conversation only: what they make is made there, and what is elsewhere does not exist for them, nor
        for the Chat that they get. All methods of a ledger take both.
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
        """Open the conversation of a turn, whether it is committed, runs, waits or failed. Raises
        TurnNotFound, ConversationDeleted or ConversationExpired."""
        process = self._process
        request = HomeRequest(owner, TurnId(turn), process.clock.due_ms(), within)
        return Chat(process, await process.store.read(home_of, request), within=within)

    async def is_named(self, conversation_key: str, *, owner: str = OWNER, scope: str = "") -> bool:
        """Look whether a conversation_key names a conversation that is there; changes nothing, and makes
        none."""
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
        """Give the key to a fresh conversation with the same settings, also where it names none yet, or one
        that has expired. What runs or waits on the old one stays there, as does its history.

        With `replaces`, the id of a conversation, only if the key still names that one. Resets that come at
        once, or again after a lost answer, converge on one conversation: `is_new` says whether this call
        made it. Raises ConversationNotFound or InvalidInput for one to replace that never had the key, and
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
        """Delete a conversation, also one that is deleted already and shall be purged; see Chat.delete.
        Raises ConversationNotFound."""
        return await delete_for(self._process, owner, ConversationId(id), within, purge=purge)

    async def restore(self, id: str, *, owner: str = OWNER, within: Within = EVERYWHERE) -> Chat:
        """Bring a deleted conversation back, with all that was said in it and about it.

        It has its conversation_key again if nobody took that meanwhile; if somebody did, it has none, and
        its `former_conversation_key` says which it was. Restoring one that is not deleted changes nothing.
        Raises ConversationNotFound, ConversationDeleted if it is gone for good, and ConversationExpired.
        """
        found = await restore_for(self._process, owner, ConversationId(id), within)
        return Chat(self._process, found, within=within)

    async def retain(self) -> Retained:
        """Remove what is older, or more, than each owner may keep, and report it: see Limits.retain_for and
        Limits.retain_bytes. What is old is deleted, and can be restored; what is too much is purged, the
        oldest first. Never what is pinned, or has a turn that runs. It is done on a timer anyway."""
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
        """Find the owner's chats whose title, or a message in which, has all words of a text, of one scope or
        of all. Titles come first, then the newest message; one hit for each chat of a page.

        Whatever is typed is a search: what is quoted or written without a space is found as it stands, the
        last word may be the beginning of one, and a text without words finds nothing. `cursor` is the `next`
        of the page before. Turns that were committed before the call are found; see SearchPage.is_complete.
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
        """Run one turn on a conversation that is named or new, as a block or with a runner; see Chat.turn.

        The conversation is found, or made, in the step that begins the turn: a request that is refused makes
        none, and it costs no more than a turn of a Chat. `create=False` refuses to make one, with
        ConversationNotFound. `turn.began` says what happened; `reset` is the policy of the conversation_key,
        see `conversation`. With `replaces`, the id of a turn, it takes the place of that one, see Chat.edit;
        with `regenerates`, such an id or True for the last one, and no input, see Chat.regenerate. Neither
        makes a conversation.
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
        """The conversation that a turn goes to. One that is made for it is listed with its first commit."""
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
        """Run the turn that a list of chat messages asks for, on a conversation that is named or new; see
        `turn` and Chat.resent."""
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
        """Run one turn with a runner, on a conversation that is named or new, and return it as committed:
        `ledger.turn(…).run(runner)`.

        With an idempotency_key the same call yields one committed turn and the same answer, however often
        it is made: a finished one is replayed, a running one waited for, a failed one resumed. Raises what
        the runner raises, and TurnStopped or TurnFailed if another caller's attempt answers and ended so.
        `interaction=False` marks what a program does by itself: it keeps no conversation from expiring or
        from being reset, and resets none.
        """
        target = self._target(conversation, conversation_key, owner, scope, within, create, reset)
        request = turn_request(self._process, target, input, **options)
        return await TurnBlock(self._process, request, on_event).run(runner)

    async def changes(
        self, *, owner: str = OWNER, within: Within = EVERYWHERE, after: str | None = None
    ) -> AsyncIterator[LiveChange]:
        """Follow what happens to the chats of an owner, in whichever process, in order and without polling.

        The first one told is `start`: everything that happens behind its position is told. With `after`, the
        text of a position, it goes on behind that; if what came since is not kept any more, a `gap` says so,
        and it goes on from now. Who falls behind is told from the store; nobody is waited for. It ends when
        nobody asks for more. Raises LedgerClosed, and TooManyReaders.
        """
        with self.follow(owner=owner, within=within, after=after) as following:
            while True:
                for change in await following.next_batch():
                    yield change

    def follow(
        self, *, owner: str = OWNER, within: Within = EVERYWHERE, after: str | None = None
    ) -> ChangeReader:
        """As `changes`, in batches, and with the position in between: for servers."""

        return ChangeReader(self._process, owner, within, after)

    async def position(self, *, owner: str = OWNER) -> str:
        """Where `changes` has to go on from, so that nothing is missed that happens from now on."""
        return str(await self._process.store.read(newest_position, owner))

    async def usage(self, *, owner: str = OWNER) -> Usage:
        """Tell how much is stored for an owner; see Limits.owner_bytes."""
        return await self._process.store.read(usage, owner)

    @property
    def catalogue(self) -> Catalogue:
        """The lists of an owner's conversations."""
        return self._catalogue

    @property
    def tokens(self) -> Tokens:
        """The tokens that let callers in, for servers: made, found, listed and revoked here."""
        return self._tokens

    @property
    def transfer(self) -> Transfer:
        """Chats as lines of JSON: exported and imported here."""
        return self._transfer

    @property
    def shares(self) -> Shares:
        """The links that let visitors in: made, exchanged for tokens, listed and revoked here."""
        return self._shares

    @property
    def clock(self) -> TrustedClock:
        """The time that its leases, conversations and tokens go by."""
        return self._process.clock

    def at_work(self) -> AtWork:
        """Tell how many turns run and wait in this process, and how many read its events."""
        return self._process.at_work()

    async def recover(self) -> None:
        """End what dead processes have left running, now. It is done on a timer anyway, and by whoever needs
        a lane: this is for who has just seen a process die."""
        await self._tending.bury_dead()

    def delivered(self, asked: TurnBlock) -> None:
        """Say that the whole answer was handed to the client that asked for this turn, with a `retry`.

        From then on the same words are a second message, whichever try of it they are. Noted soon, without
        being waited for; does nothing for a turn that was asked for without `retry`.
        """
        asked.note_delivery(is_delivered=True)

    def lost(self, asked: TurnBlock) -> None:
        """Say that the client that asked for this turn, with a `retry`, was not given its whole answer: the
        connection broke, or it got an error instead, such as that the outcome is not known.

        A later try takes up what there is by then: it attaches to the turn that runs, is given the answer of
        one that is committed, unless others have built on it, or goes on from where one failed. Say it only
        if that is certain: as long as neither this nor `delivered` is said of a committed turn, a later try
        runs again.
        """
        asked.note_delivery(is_delivered=False)

    async def probe(self) -> None:
        """Find out whether turns can run: write a sign of life of this process to disk, and read a few chats,
        other ones each time. Raises a StoreError that says why not, and LedgerClosed."""
        await self._probe.run()

    async def check(self, *, at_rest: bool = False, limit: int = 1_000) -> list[Finding]:
        """Look whether everything stored keeps the promises, of all owners; return what is wrong.

        `at_rest`: nobody should be at work, so what still runs or waits is reported, too, though not as
        damage. Changes nothing. On SQLite, commits go on beside it, and other reads of this ledger wait.
        """
        request = CheckRequest(at_rest=at_rest, limit=check_limit(limit))
        return (await self._process.store.read(check, request)).findings
