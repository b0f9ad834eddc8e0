"""Chats on a server; its client retries and reconnects."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from turnledger.cli.backend.backend import allows_http
from turnledger.cli.chat.backend import (
    AnswerRestarted,
    ChatHandle,
    ChatState,
    NewTurn,
    TurnUpdate,
    Version,
)
from turnledger.client import (
    AsyncChat,
    AsyncClient,
    AsyncTurnStream,
    Branch,
    ChatInfo,
    Retries,
    TurnRestarted,
)
from turnledger.errors import ModelError, ServerUnavailable, TurnledgerError
from turnledger.model.ids import ConversationId
from turnledger.model.turn import OnStop

PATIENCE = 2.0
"""Seconds for the clean-up at the end."""


def open_server(url: str, api_key: str | None, scope: str | None) -> ServerChatBackend:
    """Open the chats of a token on a server; sends nothing yet."""
    allow_http = allows_http()
    reader = AsyncClient(url, api_key, retries=Retries(times=1), allow_http=allow_http)
    return ServerChatBackend(AsyncClient(url, api_key, allow_http=allow_http), reader, url, scope)


class ServerChatBackend:
    """The chats of a caller, of one scope or of all. `reader` is a client that gives up soon, for reads that
    the user waits for and nothing depends on."""

    is_demo = False
    """The server's operator chose the models."""

    def __init__(self, client: AsyncClient, reader: AsyncClient, name: str, scope: str | None = None) -> None:
        self.client = client
        self._reader = reader
        self.scope = scope
        self.name = name
        self._new_chats: set[AsyncChat] = set()

    async def models(self) -> list[str]:
        names = [each.id for each in await self._reader.models()]
        if not names:
            raise ModelError("The server lists no models. Choose one with --model.")
        return names

    def new(self) -> ServerChat:
        return ServerChat(self, None)

    async def open(self, name: str) -> ServerChat:
        if name.startswith(ConversationId.prefix):
            return ServerChat(self, self.client.chats.open(name))
        chat = self.client.chats.open(conversation_key=name, scope=self.scope)
        return ServerChat(self, self.client.chats.open((await chat.info()).id))

    async def chats(self, words: str = "", *, limit: int = 20) -> Sequence[ChatInfo]:
        found = self._reader.chats.list(q=words.strip() or None, scope=self.scope, limit=limit)
        return [chat async for chat in found]

    async def changes(self) -> AsyncIterator[str]:
        async with await self.client.events() as changes:
            async for change in changes:
                if change.chat is not None:
                    yield change.chat

    async def create_chat(self) -> AsyncChat:
        chat = await self.client.chats.create(scope=self.scope)
        self._new_chats.add(chat)
        return chat

    @asynccontextmanager
    async def run_in(self, chat: AsyncChat) -> AsyncIterator[None]:
        """Run a turn in the chat. From then on the chat stays, whatever happens to this program, unless its
        first turn is known to have failed."""
        is_first = chat in self._new_chats
        self._new_chats.discard(chat)
        try:
            yield
        except ServerUnavailable:
            raise  # it may be answered nevertheless
        except TurnledgerError:
            if is_first:
                self._new_chats.add(chat)
            raise

    async def close(self) -> None:
        with suppress(TurnledgerError, TimeoutError):  # it is only a clean-up
            async with asyncio.timeout(PATIENCE):
                for chat in self._new_chats:
                    info = await chat.info()
                    if not info.turn_count and not info.is_running:  # and nobody else has used it
                        await chat.delete(purge=True)
        await self._reader.close()
        await self.client.close()


class ServerChat(ChatHandle[AsyncChat]):
    def __init__(self, backend: ServerChatBackend, chat: AsyncChat | None) -> None:
        super().__init__(chat)
        self.backend = backend

    def start(self, new_turn: NewTurn) -> RequestedTurn:
        return RequestedTurn(self, new_turn)

    def follow(self, turn: str) -> ServerTurn:
        return ServerTurn(self.existing, turn)

    async def get_or_create(self) -> AsyncChat:
        """Return the chat, created for its first turn if needed."""
        if self._chat is None:
            self._chat = await self.backend.create_chat()
        return self._chat

    async def read(self, *, before: int | None = None, limit: int = 50) -> ChatState:
        page = await self.existing.read(before=before, limit=limit)
        return ChatState(page.chat, page.turns, page.attempts if before is None else ())

    async def versions(self, turn: str) -> list[Version]:
        return [Version(each.turn, each.branch) for each in await self.existing.siblings(turn)]

    async def branches(self) -> list[Branch]:
        return [branch async for branch in self.existing.branches()]

    async def fork(self, turn: str | None, title: str) -> ServerChat:
        return ServerChat(self.backend, await self.existing.fork(turn, title))

    async def export(self, *, is_markdown: bool) -> AsyncIterator[bytes]:
        async with await self.existing.export("markdown" if is_markdown else "jsonl") as pieces:
            async for piece in pieces:
                yield piece


class _StreamedTurn(ABC):
    def __init__(self) -> None:
        self._events: AsyncTurnStream | None = None
        self.is_requested = False
        self._is_withdrawn = False

    @property
    def turn(self) -> str | None:
        return None if self._events is None else self._events.turn_id

    @abstractmethod
    async def _open_events(self) -> AsyncTurnStream:
        """Open its events, from the first."""

    async def __aiter__(self) -> AsyncIterator[TurnUpdate]:
        # This does not return while the turn waits for others.
        async with await self._open_events() as self._events:
            async for event in self._events:
                if self._is_withdrawn:
                    self._is_withdrawn = False
                    with suppress(TurnledgerError):  # then it continues, and can be stopped again
                        await self._events.stop(OnStop.DISCARD.value)
                yield AnswerRestarted() if isinstance(event, TurnRestarted) else event

    async def stop(self) -> None:
        if self._events is None or self._events.turn_id is None:
            self._is_withdrawn = True  # it waits for others, and has no id yet
        else:
            await self._events.stop(OnStop.KEEP.value)

    async def leave(self) -> bool:
        if self._events is not None:
            await self._events.close()
        return True


class RequestedTurn(_StreamedTurn):
    """A turn that is requested here."""

    def __init__(self, handle: ServerChat, new_turn: NewTurn) -> None:
        super().__init__()
        self._handle = handle
        self._new_turn = new_turn

    async def __aiter__(self) -> AsyncIterator[TurnUpdate]:
        async with self._handle.backend.run_in(await self._handle.get_or_create()):
            async for event in super().__aiter__():
                yield event

    async def _open_events(self) -> AsyncTurnStream:
        chat, new_turn = await self._handle.get_or_create(), self._new_turn
        self.is_requested = True
        model, key = new_turn.model, new_turn.idempotency_key
        if new_turn.regenerates is not None:
            return await chat.regenerate(new_turn.regenerates, stream=True, model=model, idempotency_key=key)
        if new_turn.replaces is not None:
            return await chat.edit(
                new_turn.replaces, new_turn.text, stream=True, model=model, idempotency_key=key
            )
        return await chat.send(new_turn.text, stream=True, model=model, idempotency_key=key)


class ServerTurn(_StreamedTurn):
    """A turn that was requested elsewhere."""

    def __init__(self, chat: AsyncChat, turn: str) -> None:
        super().__init__()
        self.is_requested = True
        self._chat = chat
        self._turn = turn

    @property
    def turn(self) -> str:
        return self._turn

    async def _open_events(self) -> AsyncTurnStream:
        return await self._chat.events(self._turn)

    async def stop(self) -> None:
        await self._chat.stop(self._turn, policy=OnStop.KEEP.value)
