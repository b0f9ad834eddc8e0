"""The chats of one owner: open one, run turns, list, search, export and import them, follow their changes."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Unpack

from turnledger.chat import Chat
from turnledger.engine.admission import Authorization, persist_admitted
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.idempotency import claim_name, find_under_key
from turnledger.engine.attempt.stop import stop_turn
from turnledger.engine.conversations.catalogue import ListChats, chat_by_key, list_page
from turnledger.engine.conversations.details import details_of, tag_of
from turnledger.engine.conversations.read import TurnConversationRequest, conversation_of_turn
from turnledger.engine.conversations.resolve import ResolveRequest, Target, resolve_now, resolve_settled
from turnledger.engine.conversations.search import SearchPage, SearchRequest, place_of, search_all
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.feed import ChangeReader, newest_position
from turnledger.engine.lifecycle.create import KeyRequest, ResetRequest, create_chat, find_by_key
from turnledger.engine.lifecycle.create import reset as reset_key
from turnledger.engine.lifecycle.delete import delete_for, restore_for
from turnledger.engine.limits import usage
from turnledger.engine.ports import Runner
from turnledger.engine.process import Process
from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.jobs import ListJobsRequest, list_jobs
from turnledger.engine.turn.resent_request import ChatMessage, OnDivergence
from turnledger.engine.turn.validation import (
    Input,
    JobOptions,
    TurnOptions,
    check_idempotency_key,
    check_limit,
    check_may_make,
    check_name,
    divergence_of,
    job_request,
    make_request,
    resent_request,
    scope_in,
    stop_request,
    target_of,
    turn_request,
)
from turnledger.engine.turn.worker import enqueue
from turnledger.model.catalogue import ChatFilter, ListPosition, Page
from turnledger.model.change import LiveChange
from turnledger.model.conversation import Conversation, Usage, Within
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.job import ListedJob
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.text.search import parse_query
from turnledger.model.transfer import ImportReport
from turnledger.model.turn import OnStop, Turn
from turnledger.transfer import ImportOptions, Refuses, Transfer


class Chats:
    """The chats of one owner: `ledger.for_owner("ann", scope="shop")`.

    A scope names the application that chats belong to. Each scope has its own conversation_keys, and a chat
    stays in the scope it was created in. The scope given here is that of new chats and of conversation_keys,
    and the one that `list`, `search`, `export_all` and `import_lines` cover. It restricts nothing else: an id
    of another scope still opens its chat, and `changes` and `usage` cover all scopes.

    `within` restricts a caller to one scope or one chat: anything else does not exist for them, here or
    through a Chat that is opened here.
    """

    def __init__(
        self,
        process: Process,
        transfer: Transfer,
        owner: str,
        scope: str | None,
        within: Within,
        authorization: Authorization | None = None,
    ) -> None:
        check_name("owner", owner)
        if scope or within.scope is not None:
            scope = scope_in(scope or "", within)
        self._process = process
        self._transfer = transfer
        self._scope = scope
        self._within = within
        self._authorization = authorization
        self.owner: str = owner

    @property
    def scope(self) -> str:
        """The scope that new chats are created in."""
        return self._scope or ""

    def __repr__(self) -> str:
        scope = f" in {self._scope!r}" if self._scope else ""
        return f"<{type(self).__name__} of {self.owner!r}{scope}>"

    async def conversation(
        self,
        id: str | None = None,
        *,
        conversation_key: str | None = None,
        create: bool = True,
        internal: bool = False,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Iterable[str] = (),
        expires_after: float | None = None,
        reset: ResetPolicy | None = None,
        idempotency_key: str | None = None,
    ) -> Chat:
        """Open a chat by its id or by a conversation_key of your own, or start a new one.

        Concurrent first calls with one conversation_key converge on one chat. `create=False` refuses to start
        one; an id never starts one. The details apply to a chat that is created here. Lists never show an
        internal chat; `expires_after` counts seconds without interaction. `reset` becomes the policy of the
        conversation_key: once its chat is over by that policy and no turn runs there, the key moves to a
        fresh chat in the same step, and the old one can still be opened by its id. The same call with the
        same idempotency_key returns the same chat. Raises ConversationNotFound, ConversationDeleted,
        ConversationExpired or IdempotencyMismatch.
        """
        process = self._process
        details = details_of(title, metadata, internal=internal, expires_after=expires_after, tags=tags)
        target = self._target(id, conversation_key, create, reset, **details)
        request, found = ResolveRequest(target, process.clock.due_ms(), process.limits.quota), None
        if idempotency_key is not None:
            making = make_request(process, target, idempotency_key)
            found = await process.persist(create_chat, making, self.owner)
        elif id is not None or conversation_key is not None:
            found = await process.store.read(resolve_settled, request, self.owner)
        if found is None:
            found = await process.persist(resolve_now, request, self.owner)
        is_new = target.fresh is not None and found.id == target.fresh.id
        return self._chat(found, is_new=is_new)

    async def of_turn(self, turn: str) -> Chat:
        """Open the chat of a turn that is committed, running, waiting or failed. Raises TurnNotFound,
        ConversationDeleted or ConversationExpired."""
        process = self._process
        request = TurnConversationRequest(TurnId(turn), process.clock.due_ms(), self._within)
        return self._chat(await process.store.read(conversation_of_turn, request, self.owner))

    async def stop(self, idempotency_key: str, *, policy: OnStop | str | None = None) -> Outcome | None:
        """Stop the turn that was requested under an idempotency_key, running or queued, in any process and
        any chat; see Chat.stop. For a caller that does not know its id yet.

        Returns once it is final, with the outcome that won and the `id`; None if no request with this key
        has arrived. Raises ConversationDeleted or ConversationExpired.
        """
        check_idempotency_key(idempotency_key)
        process, key = self._process, claim_name(idempotency_key, self._within)
        found = await process.store.read(find_under_key, key, self.owner)
        if found is None:
            return None
        request = stop_request(process, self.owner, found.conversation, found.attempt, policy, key)
        return await stop_turn(process, request)

    async def named(self, conversation_key: str) -> Page:
        """Return a page with the chat that a conversation_key names, or an empty page; creates nothing.

        The page also shows an archived or internal chat, or one whose first turn is not committed. Raises
        ConversationExpired: an expired chat keeps its key.
        """
        process = self._process
        target = self._target(None, conversation_key, create=False)
        request = ResolveRequest(target, process.clock.due_ms())
        return await process.store.read(chat_by_key, request, self.owner)

    async def reset(self, conversation_key: str, *, replaces: str | None = None) -> Chat:
        """Give the key to a fresh chat with the same settings, also where it names none or an expired one.
        Turns that run or wait on the old chat stay there, as does its history.

        With `replaces`, the id of a chat, reset only if the key still names that one. Concurrent resets, or
        one repeated after a lost answer, converge on one chat: `is_new` says whether this call created it.
        Raises ConversationNotFound or InvalidInput if the chat to replace never had the key.
        """
        check_may_make(self._within)
        process, authorization = self._process, self._authorization
        target = self._target(None, conversation_key)
        fresh, scope = target.fresh, target.scope
        assert fresh is not None  # noqa: S101 - for the type checker
        seen = ConversationId(replaces) if replaces is not None else None
        if seen is None:
            seen = await process.store.read(find_by_key, KeyRequest(scope, conversation_key), self.owner)
        now = process.clock.due_ms()
        request = ResetRequest(
            scope,
            conversation_key,
            seen,
            fresh,
            now,
            self._within,
            process.limits.quota,
            authorization.version if authorization else None,
        )
        found = await persist_admitted(process, reset_key, request, self.owner, authorization)
        return self._chat(found, is_new=found.id == fresh.id)

    async def delete(self, id: str, *, purge: bool = False) -> Conversation:
        """Delete a chat, also one that is already deleted and now to be purged; see Chat.delete. Raises
        ConversationNotFound."""
        return await delete_for(self._process, self.owner, ConversationId(id), self._within, purge=purge)

    async def restore(self, id: str) -> Chat:
        """Bring a deleted chat back with its whole history, title and metadata.

        It gets its conversation_key back unless another chat has taken that meanwhile; then its
        `former_conversation_key` keeps the name. Restoring a chat that is not deleted changes nothing. Raises
        ConversationNotFound, ConversationDeleted if it has been purged, and ConversationExpired.
        """
        found = await restore_for(self._process, self.owner, ConversationId(id), self._within)
        return self._chat(found)

    def turn(
        self,
        input: Input,
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        create: bool = True,
        reset: ResetPolicy | None = None,
        replaces: str | None = None,
        regenerates: str | bool = False,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run one turn on a named or new chat, as a block or with a runner; see Chat.turn.

        The step that begins the turn also finds or creates the chat, so a refused request creates none, and
        the turn costs no more than one of a Chat. `create=False` refuses to create one, with
        ConversationNotFound. `turn.began` says what happened; for `reset` see `conversation`. With
        `replaces`, the id of a turn, it takes the place of that turn, see Chat.edit; with `regenerates`, such
        an id or True for the last turn, and no input, see Chat.regenerate. Neither of them creates a chat,
        nor does a turn with `after`.
        """
        place = divergence_of(self._process, replaces, regenerates)
        creates = create and place is None and options.get("after") is None
        target = self._new_turn(conversation, conversation_key, creates, reset)
        request = turn_request(self._process, target, self._authorization, input, place, **options)
        return TurnBlock(self._process, request, on_event)

    def resent(
        self,
        messages: Sequence[ChatMessage],
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        create: bool = True,
        reset: ResetPolicy | None = None,
        sent: SentMessages | str | None = None,
        on_divergence: OnDivergence | str = OnDivergence.BRANCH,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnBlock:
        """Run the turn that a list of chat messages asks for, on a named or new chat; see `turn` and
        Chat.resent."""
        target = self._new_turn(conversation, conversation_key, create, reset)
        request = resent_request(
            self._process, target, self._authorization, messages, sent, on_divergence, options
        )
        return TurnBlock(self._process, request, on_event)

    async def run(
        self,
        runner: Runner,
        input: Input,
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        create: bool = True,
        reset: ResetPolicy | None = None,
        on_event: EventSink | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Run one turn with a runner on a named or new chat, and return it as committed: the same as
        `turn(…).run(runner)`.

        With an idempotency_key, repeated calls yield one committed turn and the same answer: a finished turn
        is replayed, a running one waited for, a failed one resumed. Raises what the runner raises, and
        TurnStopped or TurnFailed if another caller's attempt answers and ended that way. `interaction=False`
        marks turns that a program runs by itself: they neither postpone an expiry or reset, nor cause a
        reset.
        """
        target = self._new_turn(conversation, conversation_key, create, reset)
        request = turn_request(self._process, target, self._authorization, input, **options)
        return await TurnBlock(self._process, request, on_event).run(runner)

    async def enqueue(
        self,
        input: Input,
        *,
        conversation: str | None = None,
        conversation_key: str | None = None,
        create: bool = True,
        reset: ResetPolicy | None = None,
        **options: Unpack[JobOptions],
    ) -> TurnId:
        """Store a turn on a named or new chat as durable work, and return its id; see Chat.enqueue. `of_turn`
        opens its chat."""
        target = self._new_turn(conversation, conversation_key, create, reset)
        request = job_request(self._process, target, self._authorization, input, **options)
        id, _ = await enqueue(self._process, request)
        return id

    async def jobs(
        self, *, conversation: str | None = None, after: str | None = None, limit: int = 50
    ) -> Sequence[ListedJob]:
        """Return durable work that waits or runs, of one conversation or of all, oldest first; `after` is the
        last id of the previous page."""
        request = ListJobsRequest(
            ConversationId(conversation) if conversation is not None else None,
            TurnId(after) if after is not None else None,
            check_limit(limit),
            self._within,
            self._process.clock.due_ms(),
        )
        return await self._process.store.read(list_jobs, request, self.owner)

    async def list(
        self,
        *,
        tag: str | None = None,
        archived: bool | None = False,
        pinned: bool | None = None,
        deleted: bool = False,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return a page of chats, the last used first.

        `tag`, `archived` and `pinned` filter, where None means any; `deleted` lists the chats that can be
        restored instead, archived or not. `cursor` is `next` of the previous page. It names a place, not a
        chat: no chat appears twice, and each one that stays unchanged appears once. A chat that is used
        meanwhile moves to the front. Raises InvalidInput for an invalid cursor.
        """
        process = self._process
        wanted = ChatFilter(
            scope=self._scope,
            tag=None if tag is None else tag_of(tag),
            archived=None if deleted else archived,
            pinned=pinned,
            deleted=deleted,
        )
        after = None if cursor is None else ListPosition.of(cursor)
        request = ListChats(wanted, after, check_limit(limit), process.clock.due_ms(), self._within)
        return await process.store.read(list_page, request, self.owner)

    async def search(self, text: str, *, cursor: str | None = None, limit: int = 20) -> SearchPage:
        """Find chats whose title, or one of whose messages, has all words of a text. Title matches come
        first, then the newest messages; each chat has one hit per page.

        Any text is a valid search: quoted or unspaced words match as they stand, the last word may be a
        prefix, and a text without words finds nothing. `cursor` is `next` of the previous page. The search
        covers every turn committed before the call; see SearchPage.is_complete.
        """
        now, before = self._process.clock.due_ms(), place_of(cursor)
        request = SearchRequest(
            self.owner, self._scope, parse_query(text), before, check_limit(limit), now, self._within
        )
        return await search_all(self._process.store, request)

    def export(self, chat: str) -> AsyncIterator[bytes]:
        """Export one chat as lines of JSON: one for itself, then one for each turn of all branches, parents
        first.

        All lines show the same moment, without turns committed meanwhile. Raises ConversationNotFound,
        ConversationDeleted or ConversationExpired at the first line.
        """
        return self._transfer.export(chat, self.owner, self._within)

    def export_all(self) -> AsyncIterator[bytes]:
        """Export all listed chats, each as `export` does, the longest unused first. A chat that is deleted
        before its turn comes is left out."""
        return self._transfer.export_all(self.owner, self._scope, self._within)

    def markdown(self, chat: str) -> AsyncIterator[str]:
        """Export the visible branch of one chat as Markdown, with all its words escaped. It cannot be
        imported. Raises as `export` does."""
        return self._transfer.markdown(chat, self.owner, self._within)

    def import_lines(
        self,
        source: AsyncIterable[bytes] | Iterable[bytes],
        *,
        refuses: Refuses = lambda _: None,
        keep_ids: bool = True,
    ) -> AsyncIterator[ImportReport]:
        """Import exported chats, and report what was done, line by line.

        `source` is the text of a file in pieces of any size. One transaction creates each chat: it is there
        whole or not at all, also if the process dies. An import never changes an existing chat: the same one
        again is `unchanged`, a different one with its id a `conflict`. Chats keep the scope that the file
        names, unless these are the chats of one scope; `refuses` may return a reason why a scope accepts
        none. Ids stay where they are free; without `keep_ids`, ids that the owner does not have are always
        replaced, so that the reports do not reveal which ids other owners have. Raises no error for the
        content of the file; a StoreError ends the import, and what was reported until then is done.
        """
        into = ImportOptions(self.owner, self._scope, self._within, refuses, keep_ids)
        return self._transfer.import_lines(source, into)

    async def changes(self, *, after: str | None = None) -> AsyncIterator[LiveChange]:
        """Follow the changes of the owner's chats, made by any process, in order and without polling.

        The first one is `start`: every change after its position follows. With `after`, the text of a
        position, it continues from there; if the changes since are no longer kept, a `gap` says so and it
        continues from now. A slow reader is served from the store and delays no one. It ends when the caller
        stops iterating. Raises LedgerClosed and TooManyReaders.
        """
        with ChangeReader(self._process, self.owner, self._within, after) as following:
            while True:
                for change in await following.next_batch():
                    yield change

    async def position(self) -> str:
        """Return the position from which `changes` misses nothing that happens from now on."""
        return await self._process.store.read(newest_position, None, self.owner)

    async def usage(self) -> Usage:
        """Return how much is stored for the owner; see Limits.owner_bytes."""
        return await self._process.store.read(usage, None, self.owner)

    def _chat(self, found: Conversation, *, is_new: bool = False) -> Chat:
        return Chat(
            self._process,
            found,
            is_new=is_new,
            within=self._within,
            authorization=self._authorization,
        )

    def _new_turn(
        self, id: str | None, conversation_key: str | None, create: bool, reset: ResetPolicy | None
    ) -> Target:
        """A chat that is created for a turn is listed with its first commit."""
        return self._target(id, conversation_key, create, reset, is_listed=False)

    def _target(
        self,
        id: str | None,
        conversation_key: str | None,
        create: bool = True,
        reset: ResetPolicy | None = None,
        **details: Any,
    ) -> Target:
        where = (self._process, id, conversation_key, self.owner)
        return target_of(*where, scope=self.scope, within=self._within, create=create, reset=reset, **details)
