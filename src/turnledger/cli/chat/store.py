"""Chats of a store, without a server: turns run in this process.

Its models are those of a server with the same settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Protocol

from turnledger.api.chats import ChatInfo
from turnledger.api.turns import Branch
from turnledger.api.views import show_attempt, show_listed, show_listed_as, show_turn
from turnledger.chat import Chat
from turnledger.cli.chat.backend import ChatHandle, ChatState, FoundChat, NewTurn, Version
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import (
    InvalidInput,
    ModelError,
    TurnledgerError,
    TurnNotFound,
    TurnReplayed,
    TurnStopped,
)
from turnledger.hosting import Host
from turnledger.ledger import OWNER, Ledger
from turnledger.model.event import Event
from turnledger.model.ids import ConversationId
from turnledger.model.text.plain import plain
from turnledger.model.turn import OnStop, Turn
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.titles import FirstExchange, write_title


class NamedModel(Protocol):
    @property
    def model(self) -> ChatModel: ...
    @property
    def upstream_name(self) -> str: ...


class ModelRegistry(Protocol):
    """Models by name, as in server.models."""

    @property
    def names(self) -> list[str]: ...
    def get(self, name: str) -> NamedModel | None: ...
    async def close(self) -> None: ...


PATIENCE = 60.0
"""Seconds that a model may take for a title."""


class TitleWriter:
    """Lets a model write titles in the background; if that fails, a chat keeps its first words."""

    def __init__(self, ledger: Ledger, model: NamedModel) -> None:
        self._ledger = ledger
        self._model = model
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, conversation: str, first: Turn) -> None:
        """Request the title of a chat with this first turn."""
        beginning = FirstExchange.of(first)
        task = asyncio.create_task(self._name(conversation, beginning), name="turnledger title")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _name(self, conversation: str, beginning: FirstExchange) -> None:
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                title = await write_title(self._model.model, self._model.upstream_name, beginning)
            if title is not None:
                await Host(self._ledger).name_by_model(conversation, title, owner=OWNER)


class StoreChatBackend:
    """The chats of one owner in a store, of one scope or of all."""

    def __init__(
        self,
        ledger: Ledger,
        registry: ModelRegistry,
        name: str,
        *,
        scope: str | None = None,
        title_writer: TitleWriter | None = None,
        is_demo: bool = False,
    ) -> None:
        self.ledger = ledger
        self.all = ledger.for_owner(OWNER)
        """Its chats of all scopes."""
        self.listed = ledger.for_owner(OWNER, scope=scope)
        self.title_writer = title_writer
        self.is_demo = is_demo
        self.name = name
        self._registry = registry

    async def models(self) -> list[str]:
        """Return the names of all models. Raises ModelError if there is none."""
        names = self._registry.names
        other = self._registry.get("")
        if other is not None:  # the settings do not name the models of an upstream
            try:
                names += [str(each.get("id")) for each in await other.model.models()]
            except ModelError:
                if not names:
                    raise
        if not names:
            raise ModelError("The upstream lists no models. Choose one with --model.")
        return list(dict.fromkeys(names))

    def runner(self, name: str) -> ChatRunner:
        """Return the runner of one turn with this model. Raises InvalidInput if there is none."""
        found = self._registry.get(name)
        if found is None:
            known = ", ".join(self._registry.names)
            raise InvalidInput(plain(f"Unknown model {name!r}. Known: {known}."))
        return ChatRunner(found.model, {"model": found.upstream_name})

    def new(self) -> StoreChat:
        return StoreChat(self, None)

    async def open(self, name: str) -> StoreChat:
        is_id = name.startswith(ConversationId.prefix)
        id, conversation_key = (name, None) if is_id else (None, name)
        chats = self.all if is_id else self.listed
        chat = await chats.conversation(id, conversation_key=conversation_key, create=False)
        return StoreChat(self, chat)

    async def chats(self, words: str = "", *, limit: int = 20) -> Sequence[ChatInfo]:
        if not words.strip():
            page = await self.listed.list(limit=limit)
            return list(map(show_listed, page.chats))
        found = await self.listed.search(words, limit=limit)
        hits = []
        for hit in found.hits:
            with suppress(TurnledgerError):  # deleted since
                chat = await self.all.conversation(hit.conversation.id)
                listed = await chat.summary()
                hits.append(show_listed_as(FoundChat, listed, snippet=hit.snippet, marks=hit.marks))
        return hits

    async def changes(self) -> AsyncIterator[str]:
        async for change in self.all.changes():
            if change.conversation is not None:
                yield change.conversation

    async def close(self) -> None:
        if self.title_writer is not None:
            await self.title_writer.close()
        await self.ledger.close()
        await self._registry.close()


class StoreChat(ChatHandle[Chat]):
    def __init__(self, backend: StoreChatBackend, chat: Chat | None) -> None:
        super().__init__(chat)
        self._backend = backend

    def start(self, new_turn: NewTurn) -> LocalTurn:
        return LocalTurn(self._backend, self, new_turn)

    def follow(self, turn: str) -> StoreTurn:
        return StoreTurn(self.existing, turn)

    async def set_chat(self, conversation: str) -> None:
        if self._chat is None:
            self._chat = await self._backend.all.conversation(conversation)

    async def read(self, *, before: int | None = None, limit: int = 50) -> ChatState:
        page = await self.existing.read(before=before, limit=limit)
        attempts = [each.attempt for each in page.attempts] if before is None else []
        return ChatState(
            show_listed(page.chat),
            list(map(show_turn, page.turns, page.hidden)),
            [show_attempt(each, (), each.failure) for each in attempts],
        )

    async def versions(self, turn: str) -> list[Version]:
        found = await self.existing.siblings(turn)
        hidden = await self.existing.hidden([each.turn for each in found])
        return [
            Version(show_turn(each.turn, of_turn), each.branch)
            for each, of_turn in zip(found, hidden, strict=True)
        ]

    async def branches(self) -> list[Branch]:
        return [
            Branch(
                id=each.id,
                is_current=listed.is_current,
                turns=each.length,
                is_side=each.is_side,
                preview=each.preview,
            )
            for listed in await self.existing.branches()
            for each in (listed.branch,)
        ]

    async def fork(self, turn: str | None, title: str) -> StoreChat:
        return StoreChat(self._backend, await self.existing.fork(turn, title=title))

    async def export(self, *, is_markdown: bool) -> AsyncIterator[bytes]:
        chats = self._backend.all
        if is_markdown:
            async for part in chats.markdown(self.existing.id):
                yield part.encode()
        else:
            async for line in chats.export(self.existing.id):
                yield line


class StoreTurn:
    """A turn that was requested elsewhere."""

    def __init__(self, chat: Chat, turn: str) -> None:
        self._chat = chat
        self._turn = turn

    @property
    def is_requested(self) -> bool:
        return True

    @property
    def turn(self) -> str:
        return self._turn

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for event in self._chat.events(self._turn):
            yield event

    async def stop(self) -> None:
        await self._chat.stop(self._turn, policy=OnStop.KEEP)

    async def leave(self) -> bool:
        return True


class LocalTurn:
    """A turn that runs in this process."""

    def __init__(self, backend: StoreChatBackend, handle: StoreChat, new_turn: NewTurn) -> None:
        self._backend = backend
        self._handle = handle
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._runner = backend.runner(new_turn.model)
        self._block = self._make_block(new_turn)
        self._running: asyncio.Task[None] | None = None
        self._turn: str = self._block.id

    @property
    def is_requested(self) -> bool:
        return self._running is not None

    @property
    def turn(self) -> str:
        return self._turn

    def _make_block(self, new_turn: NewTurn) -> TurnBlock:
        id = self._handle.id
        chats = self._backend.all if id else self._backend.listed
        return chats.turn(
            new_turn.text if new_turn.regenerates is None else (),
            conversation=id,
            replaces=new_turn.replaces,
            regenerates=new_turn.regenerates or False,
            idempotency_key=new_turn.idempotency_key,
            on_event=self._events.put_nowait,
        )

    async def __aiter__(self) -> AsyncIterator[Event]:
        self._running = asyncio.create_task(self._run(), name="turnledger turn")
        # However it ends: a task that is cancelled at once never runs.
        self._running.add_done_callback(lambda _: self._events.put_nowait(None))
        while (event := await self._events.get()) is not None:
            yield event
        if self._running.cancelled():
            raise TurnStopped
        await self._running

    async def _run(self) -> None:
        try:
            async with self._block as turn:
                await self._handle.set_chat(turn.conversation.id)
                await self._runner(turn)
            self._request_title(turn)
        except TurnStopped as stopped:
            if stopped.turn is None:
                raise
        except TurnReplayed as replayed:
            chat = await self._backend.all.of_turn(replayed.turn.id)
            await self._handle.set_chat(chat.id)
            self._turn = replayed.turn.id
            async for event in chat.events(replayed.turn.id):
                self._events.put_nowait(event)

    def _request_title(self, running: RunningTurn) -> None:
        if self._backend.title_writer is not None and running.turn is not None and running.turn.number == 1:
            self._backend.title_writer.begin(running.conversation.id, running.turn)

    async def stop(self) -> None:
        try:
            chat = await self._backend.all.of_turn(self._block.id)
        except TurnNotFound:
            await self.leave()  # it has not begun: nothing of it is kept
        else:
            await chat.stop(self._block.id, policy=OnStop.KEEP)

    async def leave(self) -> bool:
        """End it: it cannot continue without this process. Nothing of it is kept."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        return False
