"""Chats on a server; its client retries and reconnects."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from turnledger.cli.backend.backend import allows_http
from turnledger.cli.chat.backend import (
    ChatState,
    NewTurn,
    Restarted,
    SeenBranch,
    SeenChat,
    TurnUpdate,
    Version,
    died_of,
    running_of,
    seen_turn,
)
from turnledger.client import (
    AsyncChat,
    AsyncClient,
    AsyncTurnStream,
    ChatInfo,
    Retries,
    TurnRestarted,
)
from turnledger.errors import ConversationNotFound, ModelError, ServerUnavailable, TurnledgerError
from turnledger.model.ids import ConversationId
from turnledger.model.turn import OnStop

PATIENCE = 2.0
"""Seconds for the clean-up at the end."""


def open_server(url: str, api_key: str | None, scope: str | None) -> OnServer:
    """Open the chats of a token on a server; sends nothing yet."""
    allow_http = allows_http()
    looking = AsyncClient(url, api_key, retries=Retries(times=1), allow_http=allow_http)
    return OnServer(AsyncClient(url, api_key, allow_http=allow_http), looking, url, scope)


class OnServer:
    """The chats of a caller, of one scope or of all. `looking` is a client that gives up soon, for reads that
    the user waits for and nothing depends on."""

    def __init__(
        self, client: AsyncClient, looking: AsyncClient, name: str, scope: str | None = None
    ) -> None:
        self.client = client
        self._looking = looking
        self.scope = scope
        self._name = name
        self._unused: set[AsyncChat] = set()

    @property
    def name(self) -> str:
        return self._name

    async def models(self) -> list[str]:
        names = [each.id for each in await self._looking.models()]
        if not names:
            raise ModelError("The server names no models. Name one with --model.")
        return names

    def new(self) -> ServedTalk:
        return ServedTalk(self, None)

    async def open(self, name: str) -> ServedTalk:
        if name.startswith(ConversationId.prefix):
            return ServedTalk(self, self.client.chats.open(name))
        chat = self.client.chats.open(conversation_key=name, scope=self.scope)
        return ServedTalk(self, self.client.chats.open((await chat.info()).id))

    async def chats(self, words: str = "", *, limit: int = 20) -> list[SeenChat]:
        found = self._looking.chats.list(q=words.strip() or None, scope=self.scope, limit=limit)
        return [seen_chat(each) async for each in found]

    async def changes(self) -> AsyncIterator[str]:
        async with await self.client.events() as changes:
            async for change in changes:
                if change.chat is not None:
                    yield change.chat

    async def make(self) -> AsyncChat:
        chat = await self.client.chats.create(scope=self.scope)
        self._unused.add(chat)
        return chat

    @asynccontextmanager
    async def using(self, chat: AsyncChat) -> AsyncIterator[None]:
        """Run a turn in the chat. From then on the chat stays, whatever happens to this program, unless its
        first turn is known to have failed."""
        is_first = chat in self._unused
        self._unused.discard(chat)
        try:
            yield
        except ServerUnavailable:
            raise  # it may be answered nevertheless
        except TurnledgerError:
            if is_first:
                self._unused.add(chat)
            raise

    async def close(self) -> None:
        with suppress(TurnledgerError, TimeoutError):  # it is only a clean-up
            async with asyncio.timeout(PATIENCE):
                for chat in self._unused:
                    info = await chat.info()
                    if not info.turn_count and not info.is_running:  # and nobody else has used it
                        await chat.delete(purge=True)
        await self._looking.close()
        await self.client.close()


class ServedTalk:
    def __init__(self, place: OnServer, chat: AsyncChat | None) -> None:
        self.place = place
        self._chat = chat

    @property
    def id(self) -> str | None:
        return None if self._chat is None else self._chat.id

    @property
    def _there(self) -> AsyncChat:
        if self._chat is None:
            raise ConversationNotFound("This chat has no turns yet.")
        return self._chat

    def ask(self, wish: NewTurn) -> RequestedTurn:
        return RequestedTurn(self, wish)

    def follow(self, turn: str) -> ServerTurn:
        return ServerTurn(self._there, turn)

    async def begun(self) -> AsyncChat:
        """Return the chat, created for its first turn if needed."""
        if self._chat is None:
            self._chat = await self.place.make()
        return self._chat

    async def look(self, *, before: int | None = None, limit: int = 50) -> ChatState:
        page = await self._there.read(before=before, limit=limit)
        attempts = page.attempts if before is None else ()
        return ChatState(
            seen_chat(page.chat),
            page.chat.branch or "",
            [seen_turn(each) for each in page.turns],
            running_of(attempts),
            died_of(attempts, page.chat.touched_at),
        )

    async def versions(self, turn: str) -> list[Version]:
        found = await self._there.siblings(turn)
        return [Version(seen_turn(each.turn), each.branch) for each in found]

    async def branches(self) -> list[SeenBranch]:
        found = self._there.branches()
        return [SeenBranch(each.id, each.turns, each.preview, each.is_current) async for each in found]

    async def switch(self, branch: str) -> None:
        await self._there.switch(branch)

    async def undo(self, turn: str) -> None:
        await self._there.undo(turn)

    async def fork(self, turn: str | None, title: str) -> ServedTalk:
        return ServedTalk(self.place, await self._there.fork(turn, title))

    async def rename(self, title: str) -> None:
        await self._there.rename(title)

    async def pin(self, on: bool) -> None:
        await self._there.pin(on)

    async def archive(self) -> None:
        await self._there.archive()

    async def delete(self) -> None:
        await self._there.delete()

    async def export(self, *, is_markdown: bool) -> AsyncIterator[bytes]:
        async with await self._there.export("markdown" if is_markdown else "jsonl") as pieces:
            async for piece in pieces:
                yield piece


class _StreamedTurn(ABC):
    def __init__(self) -> None:
        self._events: AsyncTurnStream | None = None
        self.is_asked = False
        self._is_unwanted = False

    @property
    def turn(self) -> str | None:
        return None if self._events is None else self._events.turn_id

    @abstractmethod
    async def _begun(self) -> AsyncTurnStream:
        """Open its events, from the first."""

    async def __aiter__(self) -> AsyncIterator[TurnUpdate]:
        # This does not return while the turn waits for others.
        async with await self._begun() as self._events:
            async for event in self._events:
                if self._is_unwanted:
                    self._is_unwanted = False
                    with suppress(TurnledgerError):  # then it continues, and can be stopped again
                        await self._events.stop(OnStop.DISCARD.value)
                yield Restarted() if isinstance(event, TurnRestarted) else event

    async def stop(self) -> None:
        if self._events is None or self._events.turn_id is None:
            self._is_unwanted = True  # it waits for others, and has no id yet
        else:
            await self._events.stop(OnStop.KEEP.value)

    async def leave(self) -> bool:
        if self._events is not None:
            await self._events.close()
        return True


class RequestedTurn(_StreamedTurn):
    """A turn that is requested here."""

    def __init__(self, talk: ServedTalk, wish: NewTurn) -> None:
        super().__init__()
        self._talk = talk
        self._wish = wish

    async def __aiter__(self) -> AsyncIterator[TurnUpdate]:
        async with self._talk.place.using(await self._talk.begun()):
            async for event in super().__aiter__():
                yield event

    async def _begun(self) -> AsyncTurnStream:
        chat, wish = await self._talk.begun(), self._wish
        self.is_asked = True
        model, key = wish.model, wish.idempotency_key
        if wish.regenerates is not None:
            return await chat.regenerate(wish.regenerates, stream=True, model=model, idempotency_key=key)
        if wish.replaces is not None:
            return await chat.edit(wish.replaces, wish.text, stream=True, model=model, idempotency_key=key)
        return await chat.send(wish.text, stream=True, model=model, idempotency_key=key)


class ServerTurn(_StreamedTurn):
    """A turn that was requested elsewhere."""

    def __init__(self, chat: AsyncChat, turn: str) -> None:
        super().__init__()
        self.is_asked = True
        self._chat = chat
        self._turn = turn

    @property
    def turn(self) -> str:
        return self._turn

    async def _begun(self) -> AsyncTurnStream:
        return await self._chat.events(self._turn)

    async def stop(self) -> None:
        await self._chat.stop(self._turn, policy=OnStop.KEEP.value)


def seen_chat(info: ChatInfo) -> SeenChat:
    return SeenChat(
        id=info.id,
        title=info.title,
        preview=info.preview,
        turns=info.turn_count or 0,
        touched_at=info.touched_at,
        is_running=info.is_running,
        is_pinned=info.pinned,
        found=info.snippet,
        marks=info.marks,
    )
