"""For programs that serve turns to others: callers and their tokens, deliveries, and how this process is
doing.

host = Host(ledger)
found = await host.tokens.find(digest)
caller = ledger.for_owner(
    found.token.owner, within=found.token.within, authorization=Authorization(found.version)
)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from sys import maxsize
from typing import Unpack

from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.engine.access.tokens import Admission
from turnledger.engine.admission import Authorization
from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.clock import TrustedClock
from turnledger.engine.conversations.catalogue import ListChats, PositionRequest, list_page, position_of
from turnledger.engine.conversations.details import check_details, details_of
from turnledger.engine.conversations.flags import DeleteResponseRequest, delete_response
from turnledger.engine.conversations.title import NameRequest, name_by_model
from turnledger.engine.feed import ChangeReader
from turnledger.engine.lifecycle.create import KeyRequest, find_by_key
from turnledger.engine.probe import Probe
from turnledger.engine.process import AtWork
from turnledger.engine.turn.block import TurnBlock, append_items
from turnledger.engine.turn.preview import UnwrittenTurn, unwritten
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.engine.turn.validation import (
    Input,
    JobOptions,
    MoveOptions,
    TurnOptions,
    append_request,
    check_limit,
    job_request,
    preview_request,
)
from turnledger.engine.turn.worker import JobRunner, JobWorker, OnEnd, enqueue
from turnledger.engine.usage import CountUsage, UsagePage, count_usage
from turnledger.ledger import OWNER, Ledger
from turnledger.model.access.share import Share, ShareKind
from turnledger.model.access.token import Token, TokenScope
from turnledger.model.catalogue import ChatFilter, ListPosition, Page
from turnledger.model.conversation import EVERYWHERE, Conversation, Within
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.reset_policy import ResetPolicy
from turnledger.shares import Shares, Visit
from turnledger.tokens import Tokens

__all__ = [
    "EVERYWHERE",
    "OWNER",
    "Admission",
    "AtWork",
    "Authorization",
    "ChangeReader",
    "Host",
    "Retry",
    "Share",
    "ShareKind",
    "Shares",
    "Token",
    "TokenScope",
    "Tokens",
    "Visit",
    "Within",
]


class Host:
    """What a server needs of a ledger besides its chats."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._process = ledger._process
        self._probe = Probe(self._process.store, self._process.lease)
        self.tokens = Tokens(self._process, ledger._secret_bits, OWNER)
        """The tokens that authorize callers."""
        self.shares = Shares(self._process, ledger._secret_bits, OWNER)
        """The links that admit visitors."""

    def __repr__(self) -> str:
        return f"<Host of {type(self._process.store).__name__}>"

    @property
    def clock(self) -> TrustedClock:
        """The clock that decides about leases, expiry and tokens."""
        return self._process.clock

    def at_work(self) -> AtWork:
        """Count the turns that run and wait in this process, and the readers of its events."""
        return self._process.at_work()

    async def enqueue(
        self,
        chats: Chats,
        input: Input,
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        create: bool = True,
        reset: ResetPolicy | None = None,
        **options: Unpack[JobOptions],
    ) -> tuple[TurnId, bool]:
        """Store a turn as durable work as Chats.enqueue does; return its id, and whether it is new: False if
        an earlier call with the same idempotency_key has stored it."""
        target = chats._new_turn(conversation, conversation_key, create, reset)
        request = job_request(self._process, target, chats._authorization, input, **options)
        return await enqueue(self._process, request)

    async def create_with_items(
        self,
        chats: Chats,
        items: Input,
        *,
        metadata: Mapping[str, str] | None,
        **options: Unpack[MoveOptions],
    ) -> Chat:
        """Create a chat whose first turn has these items, in one transaction; see Chat.append."""
        details = details_of(None, metadata, internal=False, expires_after=None)
        target = chats._target(None, None, **details)
        request = append_request(self._process, target, chats._authorization, items, **options)
        return await chats.of_turn((await append_items(self._process, request)).id)

    async def least_recent(self, chats: Chats, *, cursor: str | None = None, limit: int = 50) -> Page:
        """Return a page of chats as Chats.list does, archived or not, the longest unused first. A chat that
        is used meanwhile moves to the end."""
        after = None if cursor is None else ListPosition.of(cursor)
        wanted = ChatFilter(scope=chats._scope, archived=None)
        now, limit = self.clock.due_ms(), check_limit(limit)
        request = ListChats(wanted, after, limit, now, chats._within, is_ascending=True)
        return await self._process.store.read(list_page, request, chats.owner)

    async def cursor_after(self, chats: Chats, id: str) -> str:
        """Return the cursor of a page that begins after a chat, also after a deleted one. Raises
        ConversationNotFound."""
        request = PositionRequest(ConversationId(id), chats._within)
        return (await self._process.store.read(position_of, request, chats.owner)).cursor

    async def delete_response(self, chat: Chat, turn: str) -> None:
        """Delete a committed turn as a response: it stays in the history. Raises TurnNotFound."""
        request = DeleteResponseRequest(chat.id, TurnId(turn), self.clock.due_ms())
        await self._process.persist(delete_response, request, chat.owner)

    async def temporary_ledger(self, history_bytes: int) -> Ledger:
        """Open a ledger in memory, for one turn that is not to be stored; the caller closes it. Its input may
        begin with a whole history, of this size."""
        limits = self._process.limits
        most_bytes = limits.turn_bytes + history_bytes
        return await Ledger.open(
            "memory:", limits=replace(limits, input_items=maxsize, turn_bytes=most_bytes)
        )

    async def unwritten(self, chat: Chat, input: Input, **options: Unpack[TurnOptions]) -> UnwrittenTurn:
        """Return what a turn of a chat would run on if it began now. Raises what Chat.snapshot raises."""
        return await unwritten(self._process, preview_request(self._process, chat._target, input, **options))

    def show_unwritten(self, running: RunningTurn, unwritten: UnwrittenTurn) -> None:
        """Show the model of a turn in a temporary ledger, whose input are the `unwritten.items`, what the
        unwritten turn would show: a history of turns, of which it may show less."""
        running.conversation, running.input = unwritten.conversation, unwritten.input
        running.history = unwritten.snapshot.history
        running._snapshot = unwritten.snapshot

    async def work(
        self,
        runner: JobRunner,
        *,
        at_once: int,
        on_end: OnEnd = lambda *_: None,
    ) -> None:
        """Run durable work as Ledger.work does, with a runner that is also given the token that requested it;
        None if it was requested without one. `on_end` is called for each turn that this process ended, with
        its outcome, and with the turn if it ran here; not for one that is left to be resumed."""
        await JobWorker(self._process, runner, at_once, on_end).run()

    async def recover(self) -> int:
        """End the turns of dead processes now, and return how many. A timer does it anyway, as does a turn
        that needs the lane; call this after a process has died."""
        return await self.ledger._recovery.take_over_dead()

    @property
    def taken_over(self) -> Mapping[str, int]:
        """How many turns of dead processes this one has ended: failed, or stopped."""
        return self._process.taken_over

    async def usage(self, *, after: str | None = None, within: Within = EVERYWHERE) -> UsagePage:
        """Count what the next stored turns used, by owner and model: up to 1,000 turns, or 8 MiB of them.
        `after` is the `next` of the page before, which is None when all turns are counted. Add up the
        pages."""
        cursor = None if after is None else TurnId(after)
        return await self._process.store.read_whole(count_usage, CountUsage(cursor, within))

    async def probe(self) -> None:
        """Check that turns can run: write a sign of life of this process to disk, and read a few chats,
        others each time. Raises a StoreError that says why not, and LedgerClosed."""
        await self._probe.run()

    def delivered(self, block: TurnBlock) -> None:
        """Record that the client which asked for this turn with a `retry` received the whole answer.

        From then on the same words are a second message, whatever try they claim to be. Recorded soon, in the
        background; does nothing for a turn without `retry`.
        """
        block.note_delivery(is_delivered=True)

    def lost(self, block: TurnBlock) -> None:
        """Record that the client which asked for this turn with a `retry` did not receive the whole answer:
        the connection broke, or the client received an error instead.

        A later try attaches to the turn while it runs, receives its answer once it is committed and still the
        last one, or resumes it after a failure. Call this only when it is certain: while neither this nor
        `delivered` is recorded for a committed turn, a later try runs again.
        """
        block.note_delivery(is_delivered=False)

    def unread(self, block: TurnBlock) -> None:
        """Say that the client which asked for this turn has left. A turn with `gives_way` goes on, and others
        can read it; once another request waits for its lane and nobody does, it is stopped and kept."""
        block.note_unread()

    def follow(self, chats: Chats, *, after: str | None = None) -> ChangeReader:
        """Follow the `changes` of an owner in batches, with the position in between."""
        return ChangeReader(self._process, chats.owner, chats._within, after)

    async def is_named(self, conversation_key: str, *, owner: str = OWNER, scope: str = "") -> bool:
        """Return whether a conversation_key names an existing chat; creates none."""
        request = KeyRequest(scope, conversation_key)
        return await self._process.store.read(find_by_key, request, owner) is not None

    async def name_by_model(self, id: str, title: str, *, owner: str = OWNER) -> Conversation | None:
        """Give a chat a title that a model made, if it has none or only its first words: never over a title
        that a person gave, also if both come at once. Return it as named, or None. Does not raise its
        revision."""
        check_details(title, None)
        clock = self._process.clock
        request = NameRequest(ConversationId(id), title, clock.now_ms(), clock.due_ms())
        return await self._process.persist(name_by_model, request, owner) if title else None
