"""The drivers of the Python client, sync and async."""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.clients.drivers import replies
from tests.clients.drivers.driver import ClientError, Command, Driver, OnEvent
from turnledger.client import AsyncClient, Client, Retries, Timeouts
from turnledger.errors import TurnledgerError

TURN_HEADER_NAMES = frozenset({"chat.send", "chat.edit", "chat.regenerate"})
MAKERS = frozenset({"chats.create", "chats.open", "chats.reset", "chat.fork"})
NO_REQUEST = frozenset({"chats.open"})
GROUPS = frozenset({"chats", "tokens", "shares"})


class PythonDriver(Driver):
    """Everything but how a method is called."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._clients: list[Any] = []
        self._running: dict[int, Callable[[], None]] = {}
        self._cancelled: set[int] = set()

    @abstractmethod
    def _new_client(self, **options: Any) -> Any: ...

    @abstractmethod
    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a client method that sends a request."""

    @abstractmethod
    async def _each(self, iterable: Any, take: Callable[[Any], bool | None]) -> None:
        """Pass each element to `take` until it returns True."""

    @abstractmethod
    def _canceller(self, command: Command) -> Callable[[], None]: ...

    async def do(self, command: Command, on_event: OnEvent) -> Any:
        events: list[Any] = []
        self._running[command.id] = self._canceller(command)
        try:
            return replies.plain(await self._do(command, on_event, events))
        except TurnledgerError as problem:
            raise self._refused(command, problem, events) from problem
        except asyncio.CancelledError:
            if command.id not in self._cancelled:
                raise
            raise replies.failure("cancelled", "it was cancelled", events) from None
        except Exception as problem:
            if command.id in self._cancelled:
                raise replies.failure("cancelled", repr(problem), events) from None
            raise replies.driver_failure(problem) from problem
        finally:
            del self._running[command.id]

    def _refused(self, command: Command, problem: TurnledgerError, events: list[Any]) -> ClientError:
        if command.id in self._cancelled:
            return replies.failure("cancelled", str(problem), events)
        return replies.refusal(problem, events if command.arguments.get("stream") else None)

    async def _do(self, command: Command, on_event: OnEvent, events: list[Any]) -> Any:
        verb, on, given = command.do, self._named.get(command.on), dict(command.arguments)
        if verb == "client":
            await self._make_client(command.named or "client", given)
            return None
        if verb == "cancel":
            self._cancelled.add(given["command"])
            self._running[given["command"]]()
            return None
        if verb in TURN_HEADER_NAMES:
            return await self._turn(command, on, given, on_event, events)
        if verb == "client.events":
            return await self._changes(command, on, on_event, **given)
        if verb in MAKERS:
            group = on.chats if verb.startswith("chats.") else on
            method = getattr(group, verb.partition(".")[2])
            made = method(**given) if verb in NO_REQUEST else await self._call(method, **given)
            self._named[command.named or ""] = made
            return {"id": made.id}
        return await self._other(verb, on, given)

    async def _make_client(self, name: str, given: dict[str, Any]) -> None:
        if name in self._named:
            await self._close_client(self._named[name])
        for option, kind in (("timeouts", Timeouts), ("retries", Retries)):
            if option in given:
                given[option] = kind(**given[option])
        self._named[name] = self._new_client(**given)
        self._clients.append(self._named[name])

    async def _close_client(self, client: Any) -> None:
        if client in self._clients:
            self._clients.remove(client)
            await self._call(client.close)

    async def _turn(
        self, command: Command, chat: Any, given: dict[str, Any], on_event: OnEvent, events: list[Any]
    ) -> Any:
        method = getattr(chat, command.do.partition(".")[2])
        if not given.get("stream"):
            return answer(await self._call(method, **given))
        stream = await self._open(method, given)
        if command.named:
            self._named[command.named] = stream
        self._running[command.id] = self._stream_canceller(command, stream)

        def take(event: Any) -> None:
            events.append(replies.event(event))
            on_event(events[-1])

        await self._each(stream, take)
        return {"events": events, "answer": answer(await self._call(stream.answer))}

    @abstractmethod
    async def _open(self, method: Callable[..., Any], given: dict[str, Any]) -> Any: ...

    @abstractmethod
    def _stream_canceller(self, command: Command, stream: Any) -> Callable[[], None]: ...

    async def _changes(
        self, command: Command, client: Any, on_event: OnEvent, *, count: int, after: str | None = None
    ) -> list[Any]:
        changes: list[Any] = []

        def take(change: Any) -> bool:
            shown = {name: getattr(change, name) for name in ("type", "position", "chat", "turn")}
            changes.append(replies.plain(shown))
            on_event(changes[-1])
            return len(changes) < count

        stream = await self._call(client.events, after=after)
        self._running[command.id] = self._stream_canceller(command, stream)
        await self._each(stream, take)
        return changes

    async def _other(self, verb: str, on: Any, given: dict[str, Any]) -> Any:
        kind, _, name = verb.partition(".")
        if verb == "chat.id":
            return {"id": on.id}
        if verb == "client.models":
            return [model if isinstance(model, str) else model.id for model in await self._call(on.models)]
        if verb == "client.import":
            lines = [line.encode() + b"\n" for line in given.pop("lines")]
            return await self._call(on.import_chats, lines, **given)
        method = getattr(getattr(on, kind) if kind in GROUPS else on, name)
        if name in ("list", "search", "turns", "export", "branches", "events", "jobs"):
            found: list[Any] = []
            is_awaited = name in ("events", "export")
            opened = await self._call(method, **given) if is_awaited else method(**given)
            await self._each(opened, found.append)
            shown = [SHOWN.get(verb, replies.plain)(each) for each in found]
            return {"events": shown} if name == "events" else shown
        result = await self._call(method, **given)
        if name == "siblings":
            return [SHOWN[verb](each) for each in result]
        return SHOWN.get(verb, replies.plain)(result)

    async def close(self) -> None:
        for client in list(self._clients):
            await self._close_client(client)


class SyncDriver(PythonDriver):
    """The synchronous client: each command in a thread."""

    name = "python"

    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(64)

    def _new_client(self, **options: Any) -> Any:
        return Client(**options)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await self._in_thread(lambda: method(*arguments, **named))

    async def _open(self, method: Callable[..., Any], given: dict[str, Any]) -> Any:
        return await self._call(method, **given)

    async def _each(self, iterable: Any, take: Callable[[Any], bool | None]) -> None:
        loop = asyncio.get_running_loop()
        enough = threading.Event()

        def taken(each: Any) -> None:
            if take(each) is False:
                enough.set()

        def work() -> None:
            for each in iterable:
                if loop.is_closed():
                    return
                asyncio.run_coroutine_threadsafe(_later(taken, each), loop).result()
                if enough.is_set():
                    break
            if hasattr(iterable, "close"):
                iterable.close()

        await self._in_thread(work)

    def _canceller(self, command: Command) -> Callable[[], None]:
        def refuse() -> None:
            raise AssertionError(f"{command.do} in a thread cannot be cancelled, unless it streams")

        return refuse

    def _stream_canceller(self, command: Command, stream: Any) -> Callable[[], None]:
        return lambda: stream.close()

    async def close(self) -> None:
        await super().close()
        self._threads.shutdown(wait=False)


class AsyncDriver(PythonDriver):
    """The asynchronous client: each command in a task."""

    name = "async"

    def _new_client(self, **options: Any) -> Any:
        return AsyncClient(**options)

    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await method(*arguments, **named)

    async def _open(self, method: Callable[..., Any], given: dict[str, Any]) -> Any:
        return await method(**given)

    async def _each(self, iterable: Any, take: Callable[[Any], bool | None]) -> None:
        async for each in iterable:
            if take(each) is False:
                break
        if hasattr(iterable, "close"):
            await iterable.close()

    def _canceller(self, command: Command) -> Callable[[], None]:
        task = asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            task.cancel()

        return cancel

    def _stream_canceller(self, command: Command, stream: Any) -> Callable[[], None]:
        return self._canceller(command)


async def _later(take: Callable[[Any], Any], each: Any) -> None:
    take(each)


def answer(value: Any) -> dict[str, Any]:
    return {
        "turn": replies.turn(value.turn),
        "chat": str(value.chat.id),
        "branch": str(value.branch),
        "state": value.state,
        "is_replayed": value.is_replayed,
        "text": value.text,
    }


def hit(value: Any) -> dict[str, Any]:
    shown = {"chat": value.chat.id, "turn": value.turn, "snippet": value.snippet, "marks": value.marks}
    return dict(replies.plain(shown))


def sibling(value: Any) -> dict[str, Any]:
    return {"turn": replies.turn(value.turn), "branch": str(value.branch), "is_current": value.is_current}


def line(value: Any) -> str:
    return str(value.decode() if isinstance(value, bytes) else value).rstrip("\n")


SHOWN: dict[str, Callable[[Any], Any]] = {
    "chat.read": lambda page: replies.page(page.chat, page.turns, page.before, page.attempts),
    "chat.turns": replies.turn,
    "chat.append": replies.turn,
    "chat.events": replies.event,
    "chat.context": replies.context,
    "chat.siblings": sibling,
    "chat.export": line,
    "chats.search": hit,
    "client.export": line,
    "chat.delete": lambda _: None,
    "tokens.revoke": lambda _: None,
    "shares.revoke": lambda _: None,
}
