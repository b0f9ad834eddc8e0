# Generated from chats.py by `make twins`. Edit that.
"""Chats for blocking programs: the methods of the awaiting one, without `await`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Unpack

from turnledger.chats import Chats as AwaitingChats
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.conversations.search import SearchPage
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.resent_request import ChatMessage, OnDivergence
from turnledger.engine.turn.validation import (
    Input,
    JobOptions,
    TurnOptions,
)
from turnledger.model.catalogue import Page
from turnledger.model.change import LiveChange
from turnledger.model.conversation import Conversation, Usage
from turnledger.model.ids import TurnId
from turnledger.model.job import ListedJob
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.transfer import ImportReport
from turnledger.model.turn import OnStop, Turn
from turnledger.sync.block import AnyRunner, TurnBlock
from turnledger.sync.chat import Chat
from turnledger.sync.loop import Caller, LedgerLoop
from turnledger.transfer import Refuses


class Chats:
    """The chats of one owner: `ledger.for_owner("ann", scope="shop")`.

    A scope names the application that chats belong to. Each scope has its own conversation_keys, and a chat
    stays in the scope it was created in. The scope given here is that of new chats and of conversation_keys,
    and the one that `list`, `search`, `export_all` and `import_lines` cover. It restricts nothing else: an id
    of another scope still opens its chat, and `changes` and `usage` cover all scopes.

    `within` restricts a caller to one scope or one chat: anything else does not exist for them, here or
    through a Chat that is opened here.
    """

    def __init__(self, loop: LedgerLoop, inner: AwaitingChats) -> None:
        self._loop = loop
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def owner(self) -> str:
        return self._inner.owner

    @property
    def scope(self) -> str:
        """The scope that new chats are created in."""
        return self._inner.scope

    def conversation(
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
        return Chat(
            self._loop,
            self._loop.run(
                self._inner.conversation(
                    id,
                    conversation_key=conversation_key,
                    create=create,
                    internal=internal,
                    title=title,
                    metadata=metadata,
                    tags=tags,
                    expires_after=expires_after,
                    reset=reset,
                    idempotency_key=idempotency_key,
                )
            ),
        )

    def of_turn(self, turn: str) -> Chat:
        """Open the chat of a turn that is committed, running, waiting or failed. Raises TurnNotFound,
        ConversationDeleted or ConversationExpired.
        """
        return Chat(self._loop, self._loop.run(self._inner.of_turn(turn)))

    def stop(self, idempotency_key: str, *, policy: OnStop | str | None = None) -> Outcome | None:
        """Stop the turn that was requested under an idempotency_key, running or queued, in any process and
        any chat; see Chat.stop. For a caller that does not know its id yet.

        Returns once it is final, with the outcome that won and the `id`; None if no request with this key
        has arrived. Raises ConversationDeleted or ConversationExpired.
        """
        return self._loop.run(self._inner.stop(idempotency_key, policy=policy))

    def named(self, conversation_key: str) -> Page:
        """Return a page with the chat that a conversation_key names, or an empty page; creates nothing.

        The page also shows an archived or internal chat, or one whose first turn is not committed. Raises
        ConversationExpired: an expired chat keeps its key.
        """
        return self._loop.run(self._inner.named(conversation_key))

    def reset(self, conversation_key: str, *, replaces: str | None = None) -> Chat:
        """Give the key to a fresh chat with the same settings, also where it names none or an expired one.
        Turns that run or wait on the old chat stay there, as does its history.

        With `replaces`, the id of a chat, reset only if the key still names that one. Concurrent resets, or
        one repeated after a lost answer, converge on one chat: `is_new` says whether this call created it.
        Raises ConversationNotFound or InvalidInput if the chat to replace never had the key.
        """
        return Chat(self._loop, self._loop.run(self._inner.reset(conversation_key, replaces=replaces)))

    def delete(self, id: str, *, purge: bool = False) -> Conversation:
        """Delete a chat, also one that is already deleted and now to be purged; see Chat.delete. Raises
        ConversationNotFound.
        """
        return self._loop.run(self._inner.delete(id, purge=purge))

    def restore(self, id: str) -> Chat:
        """Bring a deleted chat back with its whole history, title and metadata.

        It gets its conversation_key back unless another chat has taken that meanwhile; then its
        `former_conversation_key` keeps the name. Restoring a chat that is not deleted changes nothing. Raises
        ConversationNotFound, ConversationDeleted if it has been purged, and ConversationExpired.
        """
        return Chat(self._loop, self._loop.run(self._inner.restore(id)))

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
        return TurnBlock(
            self._loop,
            self._loop.call(
                lambda: self._inner.turn(
                    input,
                    conversation=conversation,
                    conversation_key=conversation_key,
                    create=create,
                    reset=reset,
                    replaces=replaces,
                    regenerates=regenerates,
                    on_event=on_event,
                    **options,
                )
            ),
        )

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
        Chat.resent.
        """
        return TurnBlock(
            self._loop,
            self._loop.call(
                lambda: self._inner.resent(
                    messages,
                    conversation=conversation,
                    conversation_key=conversation_key,
                    create=create,
                    reset=reset,
                    sent=sent,
                    on_divergence=on_divergence,
                    on_event=on_event,
                    **options,
                )
            ),
        )

    def run(
        self,
        runner: AnyRunner,
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
        return TurnBlock(
            self._loop,
            self._loop.call(
                lambda: self._inner.turn(
                    input,
                    conversation=conversation,
                    conversation_key=conversation_key,
                    create=create,
                    reset=reset,
                    on_event=on_event,
                    **options,
                )
            ),
        ).run(runner)

    def enqueue(
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
        opens its chat.
        """
        return self._loop.run(
            self._inner.enqueue(
                input,
                conversation=conversation,
                conversation_key=conversation_key,
                create=create,
                reset=reset,
                **options,
            )
        )

    def jobs(
        self, *, conversation: str | None = None, after: str | None = None, limit: int = 50
    ) -> Sequence[ListedJob]:
        """Return durable work that waits or runs, of one conversation or of all, oldest first; `after` is the
        last id of the previous page.
        """
        return self._loop.run(self._inner.jobs(conversation=conversation, after=after, limit=limit))

    def list(
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
        return self._loop.run(
            self._inner.list(
                tag=tag, archived=archived, pinned=pinned, deleted=deleted, cursor=cursor, limit=limit
            )
        )

    def search(self, text: str, *, cursor: str | None = None, limit: int = 20) -> SearchPage:
        """Find chats whose title, or one of whose messages, has all words of a text. Title matches come
        first, then the newest messages; each chat has one hit per page.

        Any text is a valid search: quoted or unspaced words match as they stand, the last word may be a
        prefix, and a text without words finds nothing. `cursor` is `next` of the previous page. The search
        covers every turn committed before the call; see SearchPage.is_complete.
        """
        return self._loop.run(self._inner.search(text, cursor=cursor, limit=limit))

    def export(self, chat: str) -> Iterator[bytes]:
        """Export one chat as lines of JSON: one for itself, then one for each turn of all branches, parents
        first.

        All lines show the same moment, without turns committed meanwhile. Raises ConversationNotFound,
        ConversationDeleted or ConversationExpired at the first line.
        """
        return self._loop.iterate(self._inner.export(chat))

    def export_all(self) -> Iterator[bytes]:
        """Export all listed chats, each as `export` does, the longest unused first. A chat that is deleted
        before its turn comes is left out.
        """
        return self._loop.iterate(self._inner.export_all())

    def markdown(self, chat: str) -> Iterator[str]:
        """Export the visible branch of one chat as Markdown, with all its words escaped. It cannot be
        imported. Raises as `export` does.
        """
        return self._loop.iterate(self._inner.markdown(chat))

    def import_lines(
        self, source: Iterable[bytes], *, refuses: Refuses = lambda _: None, keep_ids: bool = True
    ) -> Iterator[ImportReport]:
        """Import exported chats, and report what was done, line by line.

        `source` is the text of a file in pieces of any size. One transaction creates each chat: it is there
        whole or not at all, also if the process dies. An import never changes an existing chat: the same one
        again is `unchanged`, a different one with its id a `conflict`. Chats keep the scope that the file
        names, unless these are the chats of one scope; `refuses` may return a reason why a scope accepts
        none. Ids stay where they are free; without `keep_ids`, ids that the owner does not have are always
        replaced, so that the reports do not reveal which ids other owners have. Raises no error for the
        content of the file; a StoreError ends the import, and what was reported until then is done.
        """
        caller = Caller(self._loop)
        return caller.iterate(
            self._inner.import_lines(caller.pull(source), refuses=refuses, keep_ids=keep_ids)
        )

    def changes(self, *, after: str | None = None) -> Iterator[LiveChange]:
        """Follow the changes of the owner's chats, made by any process, in order and without polling.

        The first one is `start`: every change after its position follows. With `after`, the text of a
        position, it continues from there; if the changes since are no longer kept, a `gap` says so and it
        continues from now. A slow reader is served from the store and delays no one. It ends when the caller
        stops iterating. Raises LedgerClosed and TooManyReaders.
        """
        return self._loop.iterate(self._inner.changes(after=after))

    def position(self) -> str:
        """Return the position from which `changes` misses nothing that happens from now on."""
        return self._loop.run(self._inner.position())

    def usage(self) -> Usage:
        """Return how much is stored for the owner; see Limits.owner_bytes."""
        return self._loop.run(self._inner.usage())
