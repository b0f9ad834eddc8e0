"""The driver of a ledger in the test process, with the demo model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.clients.drivers import replies
from tests.clients.drivers.driver import Command, Driver, OnEvent
from turnledger import Ledger
from turnledger.api.chats import ChatInfo
from turnledger.api.views import show_chat, show_flags, show_listed
from turnledger.chat import Chat
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.outcome import committed_turn
from turnledger.engine.history.context import context_of
from turnledger.engine.turn.block import TurnBlock
from turnledger.errors import TurnAttached, TurnledgerError, TurnReplayed, TurnStopped
from turnledger.hosting import OWNER
from turnledger.model.event import (
    Event,
)
from turnledger.model.ids import ConversationId
from turnledger.model.reset_policy import policy_of
from turnledger.model.turn import Turn
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.demo import DemoModel

TURN_HEADER_NAMES = (
    "instructions",
    "idempotency_key",
    "on_busy",
    "on_stop",
    "on_failure",
    "interaction",
    "after",
)


@dataclass
class NamedChat:
    """A chat that a scenario named, by id or by conversation_key."""

    ledger: Ledger
    id: str | None = None
    conversation_key: str | None = None
    scope: str = ""

    async def opened(self) -> Chat:
        if self.id is not None:
            return await self.ledger.conversation(self.id)
        return await self.ledger.for_owner("local", scope=self.scope).conversation(
            conversation_key=self.conversation_key, create=False
        )


@dataclass
class Stream:
    chat: NamedChat
    turn: str


@dataclass
class Run:
    on_event: OnEvent
    named: str | None
    events: list[Any] = field(default_factory=list)
    state: str = "continued"
    is_replayed: bool = False

    def add(self, event: Event) -> None:
        self.events.append(replies.event(event))
        self.on_event(self.events[-1])


class EmbeddedDriver(Driver):
    name = "embedded"
    is_embedded = True

    def __init__(self, ledger: Ledger, model: DemoModel) -> None:
        self._ledger = ledger
        self._model = model
        self._named: dict[str, Any] = {}
        self._running: dict[int, asyncio.Task[Any]] = {}

    async def do(self, command: Command, on_event: OnEvent) -> Any:
        return replies.plain(await self._do(command, on_event))

    async def _do(self, command: Command, on_event: OnEvent) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._running[command.id] = task
        verb = getattr(self, "_" + command.do.replace(".", "_"), None)
        try:
            assert verb is not None, f"there is no verb {command.do}"
            on = self._named.get(command.on)
            if command.do in ("chat.send", "chat.edit", "chat.regenerate"):
                return await verb(on, Run(on_event, command.named), **command.arguments)
            if command.do == "client.events":
                return await verb(on_event, **command.arguments)
            if command.do.startswith(("chat.", "stream.")):
                return self._keep(command, await verb(on, **command.arguments))
            return self._keep(command, await verb(**command.arguments))
        except TurnledgerError as problem:
            raise replies.refusal(problem) from problem
        except (AssertionError, TypeError, AttributeError) as problem:
            raise replies.driver_failure(problem) from problem
        finally:
            del self._running[command.id]

    def _keep(self, command: Command, result: Any) -> Any:
        if not isinstance(result, NamedChat):
            return result
        assert command.named is not None, f"{command.do} makes a chat: name it"
        self._named[command.named] = result
        return {"id": result.id}

    async def close(self) -> None:
        pass

    async def _client(self, **_: Any) -> None:
        pass

    async def _chats_create(self, *, scope: str = "", reset: str | None = None, **details: Any) -> NamedChat:
        chats = self._ledger.for_owner("local", scope=scope)
        chat = await chats.conversation(reset=policy_of(reset), **details)
        return NamedChat(self._ledger, chat.id, chat.conversation_key, scope)

    async def _chats_open(
        self, *, id: str | None = None, conversation_key: str | None = None, scope: str = ""
    ) -> NamedChat:
        checked = ConversationId(id) if id is not None else None
        return NamedChat(self._ledger, checked, conversation_key, scope)

    async def _chats_reset(self, *, conversation_key: str, replaces: str, scope: str = "") -> NamedChat:
        chat = await self._ledger.for_owner("local", scope=scope).reset(conversation_key, replaces=replaces)
        return NamedChat(self._ledger, chat.id, chat.conversation_key, scope)

    async def _chats_list(
        self, *, q: str | None = None, limit: int | None = None, **options: Any
    ) -> list[Any]:
        if q is not None:
            hits = await self._ledger.for_owner("local", scope=options.get("scope")).search(q)
            opened = [await self._ledger.conversation(hit.conversation.id) for hit in hits.hits]
            return [replies.plain(show_listed(await chat.summary())) for chat in opened]
        shown: list[Any] = []
        cursor: str | None = None
        chats = self._ledger.for_owner(OWNER, scope=options.pop("scope", None))
        while True:
            page = await chats.list(cursor=cursor, **options)
            shown += [replies.plain(show_listed(each)) for each in page.chats]
            if page.next is None or (limit is not None and len(shown) >= limit):
                return shown[:limit]
            cursor = page.next

    async def _chats_search(self, *, q: str, **options: Any) -> list[Any]:
        page = await self._ledger.for_owner(OWNER, scope=options.pop("scope", None)).search(q, **options)
        return [
            {
                "chat": hit.conversation.id,
                "turn": hit.turn,
                "snippet": hit.snippet,
                "marks": replies.plain(hit.marks),
            }
            for hit in page.hits
        ]

    async def _chats_stop(self, *, idempotency_key: str, policy: str | None = None) -> Any:
        return stop_shown(await self._ledger.stop(idempotency_key, policy=policy))

    async def _client_events(self, on_event: OnEvent, *, count: int, after: str | None = None) -> list[Any]:
        changes: list[Any] = []
        async for change in self._ledger.changes(after=after):
            changes.append(
                {
                    "type": str(change.kind),
                    "position": str(change.position),
                    "chat": change.conversation,
                    "turn": change.turn,
                }
            )
            on_event(changes[-1])
            if len(changes) == count:
                break
        return changes

    async def _client_export(self, *, scope: str | None = None) -> list[str]:
        lines = self._ledger.for_owner("local", scope=scope).export_all()
        return [line.decode().rstrip("\n") async for line in lines]

    async def _client_import(self, *, lines: list[str], scope: str | None = None) -> list[Any]:
        text = [line.encode() + b"\n" for line in lines]
        reports = self._ledger.for_owner("local", scope=scope).import_lines(text)
        return [replies.plain(report) async for report in reports]

    async def _client_models(self) -> list[str]:
        return [each["id"] for each in await self._model.models()]

    async def _cancel(self, *, command: int) -> None:
        self._running[command].cancel()

    # Turns.

    async def _chat_send(self, chat: NamedChat, run: Run, *, input: Any, **options: Any) -> Any:
        return await self._turn(chat, run, input, **options)

    async def _chat_edit(self, chat: NamedChat, run: Run, *, turn: str, input: Any, **options: Any) -> Any:
        return await self._turn(chat, run, input, replaces=turn, **options)

    async def _chat_regenerate(
        self, chat: NamedChat, run: Run, *, turn: str | None = None, **options: Any
    ) -> Any:
        return await self._turn(chat, run, (), regenerates=True if turn is None else turn, **options)

    async def _turn(
        self,
        chat: NamedChat,
        run: Run,
        input: Any,
        *,
        replaces: str | None = None,
        regenerates: str | bool = False,
        stream: bool = False,
        model: str = "demo",
        settings: dict[str, Any] | None = None,
        primer: Any = (),
        context: dict[str, int] | None = None,
        must_exist: bool = False,
        on_disconnect: str | None = None,
        reset: str | None = None,
        **options: Any,
    ) -> Any:
        assert options.keys() <= set(TURN_HEADER_NAMES), options
        named: dict[str, Any] = (
            {"conversation": chat.id} if chat.id is not None else {"conversation_key": chat.conversation_key}
        )
        chats = self._ledger.for_owner(OWNER, scope=None if chat.id is not None else chat.scope)
        try:
            block = chats.turn(
                input,
                **named,
                create=not must_exist,
                reset=policy_of(reset),
                replaces=replaces,
                regenerates=regenerates,
                primer=primer,
                context=context_of(**{"last": None, "budget": None, **(context or {})}),
                attach=True,
                on_event=run.add,
                **options,
            )
            runner = ChatRunner(self._model, {"model": model, **(settings or {})})
            turn = await self._run(chat, run, block, runner)
        except TurnledgerError as problem:
            raise replies.refusal(problem, run.events if stream else None) from problem
        answer = {
            "turn": replies.turn(turn),
            "chat": chat.id,
            "branch": turn.branch,
            "state": run.state,
            "is_replayed": run.is_replayed,
            "text": turn.text,
        }
        return {"events": run.events, "answer": answer} if stream else answer

    async def _run(self, chat: NamedChat, run: Run, block: TurnBlock, runner: ChatRunner) -> Turn:
        try:
            async with block as running:
                run.state = str(running.began)
                self._begun(chat, run, running.conversation.id, running.id)
                await runner(running)
            return committed_turn(Outcome(running.state, running.turn))
        except TurnStopped as stopped:
            if stopped.turn is None:
                raise
            return stopped.turn
        except TurnReplayed as replay:
            run.is_replayed = True
            self._begun(chat, run, replay.conversation, replay.turn.id)
            await self._follow(chat, run, replay.turn.id)
            return replay.turn
        except TurnAttached as attached:
            self._begun(chat, run, attached.conversation, attached.turn)
            await self._follow(chat, run, attached.turn)
            return committed_turn(await (await chat.opened()).outcome(attached.turn))

    def _begun(self, chat: NamedChat, run: Run, conversation: str, turn: str) -> None:
        chat.id = conversation
        if run.named is not None:
            self._named[run.named] = Stream(chat, turn)

    async def _follow(self, chat: NamedChat, run: Run, turn: str) -> None:
        async for event in (await chat.opened()).events(turn):
            run.add(event)

    async def _chat_append(self, chat: NamedChat, *, items: Any, **options: Any) -> Any:
        return replies.turn(await (await chat.opened()).append(items, **options))

    async def _stream_stop(self, stream: Stream, *, policy: str | None = None) -> Any:
        return await self._chat_stop(stream.chat, turn=stream.turn, policy=policy)

    async def _chat_stop(self, chat: NamedChat, *, turn: str | None = None, policy: str | None = None) -> Any:
        return stop_shown(await (await chat.opened()).stop(turn, policy=policy))

    async def _chat_events(self, chat: NamedChat, *, turn: str, after: int = 0) -> Any:
        events = (await chat.opened()).events(turn, after=after)
        return {"events": [replies.event(event) async for event in events]}

    async def _chat_id(self, chat: NamedChat) -> Any:
        return {"id": chat.id}

    async def _chat_info(self, chat: NamedChat) -> Any:
        return await info(await chat.opened())

    async def _chat_read(
        self, chat: NamedChat, *, before: int | None = None, limit: int = 50, branch: str | None = None
    ) -> Any:
        opened = await chat.opened()
        page = await opened.read(before=before, limit=limit, branch=branch)
        attempts = [each.attempt for each in page.attempts]
        return replies.page(await info(opened), page.turns, page.before, attempts)

    async def _chat_turns(self, chat: NamedChat) -> Any:
        turns = await (await chat.opened()).turns(limit=1000)  # no scenario has more
        return [replies.turn(turn) for turn in reversed(turns)]

    async def _chat_update(self, chat: NamedChat, **changes: Any) -> Any:
        opened = await chat.opened()
        await opened.update(**changes)
        return await info(opened)

    async def _chat_rename(self, chat: NamedChat, *, title: str) -> Any:
        return await self._chat_update(chat, title=title)

    async def _chat_pin(self, chat: NamedChat, *, on: bool = True) -> Any:
        return await self._chat_update(chat, pinned=on)

    async def _chat_archive(self, chat: NamedChat, *, on: bool = True) -> Any:
        return await self._chat_update(chat, archived=on)

    async def _chat_flag(
        self, chat: NamedChat, *, turn: str, items: list[int] | None = None, **flags: bool
    ) -> Any:
        return replies.plain(show_flags(turn, await (await chat.opened()).flag(turn, items, **flags)))

    async def _chat_fork(self, chat: NamedChat, *, at: str | None = None, **details: Any) -> NamedChat:
        made = await (await chat.opened()).fork(at, **details)
        return NamedChat(self._ledger, made.id, None, made.scope)

    async def _chat_switch(self, chat: NamedChat, *, branch: str) -> Any:
        opened = await chat.opened()
        await opened.switch(branch)
        return await info(opened)

    async def _chat_undo(self, chat: NamedChat, *, turn: str | None = None, forget: bool = False) -> Any:
        opened = await chat.opened()
        await opened.undo(turn, forget=forget)
        return await info(opened)

    async def _chat_branches(self, chat: NamedChat) -> Any:
        return [
            {
                "id": line.branch.id,
                "is_current": line.is_current,
                "turns": line.branch.length,
                "shared": line.branch.start,
                "is_side": line.branch.is_side,
            }
            for line in await (await chat.opened()).branches()
        ]

    async def _chat_context(
        self, chat: NamedChat, *, last: int | None = None, budget: int | None = None, after: str | None = None
    ) -> Any:
        selected = context_of(last, budget)
        return replies.context(await (await chat.opened()).snapshot(context=selected, after=after))

    async def _chat_siblings(self, chat: NamedChat, *, turn: str) -> Any:
        return [
            {"turn": replies.turn(each.turn), "branch": each.branch, "is_current": each.turn.id == turn}
            for each in await (await chat.opened()).siblings(turn)
        ]

    async def _chat_delete(self, chat: NamedChat, *, purge: bool = False) -> None:
        assert chat.id is not None
        await self._ledger.delete(chat.id, purge=purge)

    async def _chat_restore(self, chat: NamedChat) -> Any:
        assert chat.id is not None
        return replies.plain(show_chat(ChatInfo, (await self._ledger.restore(chat.id)).as_opened))

    async def _chat_export(self, chat: NamedChat, *, format: str = "jsonl") -> list[str]:
        assert chat.id is not None
        if format == "markdown":
            return [line async for line in self._ledger.markdown(chat.id)]
        return [line.decode().rstrip("\n") async for line in self._ledger.export(chat.id)]


async def info(chat: Chat) -> Any:
    return replies.plain(show_listed(await chat.summary()))


def stop_shown(ended: Outcome | None) -> Any:
    return None if ended is None else {"state": str(ended.state), "committed": ended.turn is not None}
