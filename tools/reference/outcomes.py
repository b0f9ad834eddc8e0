"""The page of outcomes: what each end of a turn leaves. Every cell is observed on an engine over the memory
store, with a fake clock and seeded ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tools.reference.markdown import head, sections, table
from turnledger.chat import Chat
from turnledger.engine.ports import Store
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import TurnledgerError
from turnledger.model.item import Item
from turnledger.model.job import MOST_RESUMES
from turnledger.model.turn import OnBusy, OnFailure, OnStop, Turn, TurnKind
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import ScriptedModel, Step, Tool
from turnledger.testing.store_contract.stage import Stage, StageProcess, exchange, run_block, soon

INTRODUCTION = """\
This page shows what is in the history after a turn has ended, what the next model sees of it, and what a
retry with the same `idempotency_key` does. Every cell shows what the engine did when the page was written.
[Turns](../turns.md#how-a-turn-can-end) explains the policies.

Over HTTP, *raises `TurnStopped`* is 409 `turn_stopped`, and an interrupted turn that a retry returns has the
`finish_reason` `length`. Retries without a key follow [other rules](../retries.md#without-a-key).

The columns are what the turn had done before it ended:

- **nothing**: no text, and no call.
- **text**: the model had sent a part of its answer.
- **read-only tool**: a tool had returned. It was called with `read_only=True`.
- **tool**: a tool had returned. It may have changed something.
- **open call**: a tool was started and raised, so no result was recorded. A turn cannot complete with an open
  call: it fails, even if its runner ends normally.

*Partial text* is marked as incomplete. *Unknown outcome* is a result which says that the call may or may not
have acted. A *note* tells the model that the turn did not finish. A dash means nothing.\
"""
HISTORY = """\
## In the history

The items of the turn that are in the history immediately afterwards, the kind of that turn, and the state of
the attempt. Failed and discarded attempts are stored apart, see `chat.attempts()`. If the process died, its
last half second of text may be missing.\
"""
SEEN = """\
## What the next model sees

The items of the turn in the context of the next turn, and the state of the attempt after that. The begin of
the next turn *settles* calls that may have acted: it adds a turn that reports them.\
"""
RETRY = """\
## A retry with the same key

The same request again, immediately. *Returns it* means that it returns the turn in the history, and runs
nothing.\
"""
LATER = """\
## A retry after another message

The same request again, after another turn was completed.\
"""
BUSY = """\
## A message while the turn runs

The items of the running turn that the model of a second message sees, by the `on_busy` of that message; and
how the attempt of the running turn ended.\
"""
BACKGROUND = """\
## Background turns

The turn was requested with `chat.enqueue`, or with `"background": true`: the items of the turn in the context
of the next turn, the state of the attempt, and what the same request does after that, with the same key. The
process that resumes a turn continues after its last finished step.\
"""
BRANCHES = """\
## After an undo, an edit, a switch or a fork

The items of the turn in the context of the next turn. A turn is *left* by an undo, an edit, a switch to a
branch without it, or a fork before it; one that failed, by an undo or an edit of the turn before. A cell has
an *or* where these ways differ.\
"""
OTHERS = """\
## Appends, edits, deleted chats, and turns in the queue

The chat has *the turn before*. A retry of an undone turn returns that turn, and does not bring it back.\
"""

KEY = "bill-7"
REQUEST, EARLIER, HOLDER, NEXT = "Pay my bill.", "Hello.", "Wait.", "And now?"
"""Inputs: of the turn that is observed, and of those around it."""
NOTHING = "–"
DONE: Mapping[str, Sequence[Step]] = {
    "nothing": (),
    "text": ("Let me see.",),
    "read-only tool": (Tool("look", read_only=True),),
    "tool": (Tool("pay"),),
    "open call": (Tool("pay", error=TimeoutError()),),
}

Send: TypeAlias = Callable[[Chat], Coroutine[Any, Any, Turn]]
Act: TypeAlias = Callable[["Scene"], Awaitable[None]]
Move: TypeAlias = Callable[["Scene"], Awaitable[Chat]]
"""Returns the chat to look at."""
Row: TypeAlias = tuple[str, Sequence[Any]]
"""A label, and its cells."""


class Scene:
    """A chat with one turn, and a request for another, which is sent in one process and observed in a second
    one. Its first run waits at the gate before its end."""

    def __init__(self, stage: Stage, processes: Sequence[StageProcess], chats: Sequence[Chat]) -> None:
        self.stage = stage
        self.sender, self.observer = processes
        self.sent, self.chat = chats
        self.gate = Gate()
        self.failure: Exception | None = None
        self._runs: list[RunningTurn] = []
        self._model = ScriptedModel((), ())
        self._is_resumed = self._is_held = False

    def hold(self) -> None:
        """Let the next run, too, wait at a gate."""
        self.gate, self._is_held = Gate(), True

    def script(self, steps: Sequence[Step]) -> None:
        """Set what the turn does before its gate. Its tools raise only in the first run."""
        mended = [replace(step, error=None) if isinstance(step, Tool) else step for step in steps]
        self._model = ScriptedModel(steps, *[mended] * (MOST_RESUMES + 1))

    async def play(self, turn: RunningTurn) -> None:
        self._runs.append(turn)
        self._is_resumed = bool(turn.steps)
        with suppress(TimeoutError):
            await self._model(turn)
        if len(self._runs) == 1 or self._is_held:
            await self.gate.pass_through()
            if self.failure is not None:
                raise self.failure
        turn.emit("Done.")

    async def end(self, send: Send, event: Act) -> str:
        """Send the request, let this happen to it at its gate, and return its id."""
        task = self.stage.start(send(self.sent))
        await self.stage.reach(self.gate, task)
        await event(self)
        await asyncio.wait([task])
        return self._runs[0].id

    async def state(self, id: str) -> str:
        return (await self.chat.status(id)).state

    async def seen(self, chat: Chat | None = None) -> list[Item]:
        return list((await (chat or self.chat).snapshot(NEXT)).items[:-1])

    async def move_on(self) -> None:
        await exchange(self.chat, NEXT)

    async def retry(self, send: Send) -> str:
        return await tried(self._retry(send))

    async def _retry(self, send: Send) -> str:
        """Send the request again, and describe what it did."""
        runs, calls = len(self._runs), self._model.executed.total()
        turn = await soon(send(self.chat))
        if len(self._runs) == runs:
            return "returns the settled turn" if turn.kind is TurnKind.SETTLED else "returns it"
        if self._is_resumed:
            is_unknown = any(item.is_result and item.has_unknown_outcome for item in turn.output)
            return f"continues after the call{', outcome unknown' if is_unknown else ''}"
        if not runs:
            return "runs"
        return f"runs again{', and the tool' if self._model.executed.total() > calls else ''}"


async def tried(work: Awaitable[str]) -> str:
    try:
        return await work
    except TurnledgerError as error:
        return f"raises `{type(error).__name__}`"


@asynccontextmanager
async def open_scene() -> AsyncIterator[Scene]:
    database = Database()

    async def open_store() -> Store:
        return MemoryStore(database)

    stage = Stage(open_store)
    try:
        processes = await stage.processes()
        chat = await processes[0].chat()
        await exchange(chat, EARLIER)
        yield Scene(stage, processes, (chat, await processes[1].chat(chat)))
    finally:
        await stage.close()


async def complete(scene: Scene) -> None:
    scene.gate.release()


async def fail(scene: Scene) -> None:
    scene.failure = RuntimeError("the model broke")
    scene.gate.release()


async def stop(scene: Scene) -> None:
    await soon(scene.chat.stop())


async def die(scene: Scene) -> None:
    await scene.sender.flush()
    await scene.stage.bury_others(scene.observer)


async def delete_and_restore(scene: Scene) -> None:
    await scene.chat.delete()
    await scene.observer.ledger.restore(scene.chat.id)


class Event(NamedTuple):
    """A way in which the turn ends."""

    label: str
    happen: Act
    policies: Mapping[str, Any]

    def send(self, scene: Scene) -> Send:
        return lambda chat: chat.run(scene.play, REQUEST, idempotency_key=KEY, **self.policies)


EVENTS = (
    Event("completed", complete, {}),
    *(Event(f"stopped with `{policy}`", stop, {"on_stop": policy}) for policy in OnStop),
    *(Event(f"failed with `{policy}`", fail, {"on_failure": policy}) for policy in OnFailure),
    *(Event(f"process died with `{policy}`", die, {"on_failure": policy}) for policy in OnFailure),
    Event("chat deleted and restored", delete_and_restore, {}),
)


@asynccontextmanager
async def ended(event: Event, steps: Sequence[Step]) -> AsyncIterator[tuple[Scene, str]]:
    """Run a turn that does these steps until it has ended in this way; also yield its id."""
    async with open_scene() as scene:
        scene.script(steps)
        yield scene, await scene.end(event.send(scene), event.happen)


class Observed(NamedTuple):
    """What the end of a turn left."""

    history: str
    kind: str
    state: str
    seen: str
    later_state: str
    retry: str
    later_retry: str


async def observe(event: Event, steps: Sequence[Step]) -> Observed:
    async with ended(event, steps) as (scene, id):
        turns = [turn for turn in await scene.chat.turns() if turn.input[0].text == REQUEST]
        history = words(item for turn in turns for item in turn.items)
        kind = "".join(turn.kind for turn in turns)
        state, seen = await scene.state(id), words((await scene.seen())[2:])
        await scene.move_on()
        later_state = await scene.state(id)
    async with ended(event, steps) as (scene, _):
        retry = await scene.retry(event.send(scene))
    async with ended(event, steps) as (scene, _):
        await scene.move_on()
        later_retry = await scene.retry(event.send(scene))
    return Observed(history, kind, state, seen, later_state, retry, later_retry)


def words(items: Iterable[Item]) -> str:
    return ", ".join(map(_word, items)) or NOTHING


def _word(item: Item) -> str:
    if item.is_call:
        return "call"
    if item.is_result:
        return "unknown outcome" if item.has_unknown_outcome else "result"
    if item.role == "assistant":
        return "partial text" if item.fields.get("status") == "incomplete" else "answer"
    return "message" if item.role == "user" else "note"


def merged(rows: Iterable[Row]) -> dict[str, Sequence[Any]]:
    """Join the labels of equal rows."""
    labels: dict[tuple[Any, ...], list[str]] = {}
    for label, row in rows:
        labels.setdefault(tuple(row), []).append(label)
    return {"; ".join(each): row for row, each in labels.items()}


def ends(observed: Mapping[str, Sequence[Observed]], field: str, *further: str) -> str:
    """Return the table of a field; further ones have a column for all of its cells."""
    rows = [
        [label, *(getattr(each, field) for each in row), *(_all(row, name) for name in further)]
        for label, row in observed.items()
    ]
    names = ["kind" if each == "kind" else "attempt" for each in further]
    return table(["the turn", *DONE, *names], rows)


def _all(row: Sequence[Observed], field: str) -> str:
    return " or ".join(dict.fromkeys(filter(None, (getattr(each, field) for each in row)))) or NOTHING


async def busy() -> str:
    rows = []
    for policy in OnBusy:
        found = [await _while_busy(policy, steps) for steps in DONE.values()]
        states = " or ".join(dict.fromkeys(state for _, state in found))
        rows.append([f"`{policy}`", *(seen for seen, _ in found), states])
    return table(["`on_busy`", *DONE, "attempt"], rows)


async def _while_busy(policy: OnBusy, steps: Sequence[Step]) -> tuple[str, str]:
    """Send a message during a turn; return what its model sees of the turn, and the state of the turn."""
    seen: list[str] = []

    async def look(turn: RunningTurn) -> None:
        seen.append(words(turn.items[2:-1]))
        turn.emit("Yes.")

    async def send(scene: Scene) -> None:
        message = scene.chat.run(look, NEXT, on_busy=policy)
        if policy is OnBusy.QUEUE:
            waiting = await scene.stage.line_up(scene.chat, message)
            scene.gate.release()
            await soon(waiting)
        else:
            try:
                await soon(message)
            except TurnledgerError as error:
                seen.append(f"raises `{type(error).__name__}`")
            scene.gate.release()

    async with ended(Event("", send, {}), steps) as (scene, id):
        return seen[0], await scene.state(id)


async def background() -> str:
    deaths = {"its process died": 1, "its process died four times": MOST_RESUMES + 1}
    rows = []
    for label, times in {"completed": 0, **deaths, "stopped in the queue": None}.items():
        found = [await _background(steps, times) for steps in DONE.values()]
        ends = (" or ".join(dict.fromkeys(each[part] for each in found)) for part in (1, 2))
        rows.append([label, *(seen for seen, *_ in found), *ends])
    return table(["the turn", *DONE, "attempt", "a retry"], rows)


async def _background(steps: Sequence[Step], deaths: int | None) -> tuple[str, str, str]:
    """Enqueue a turn, and let so many processes die with it, or stop it before any takes it. Return what the
    next model sees, the state of the turn, and what a retry did."""

    async def enqueue(chat: Chat) -> str:
        again = await chat.enqueue(REQUEST, idempotency_key=KEY)
        return "returns it" if again == id else "runs again"

    async with open_scene() as scene:
        scene.script(steps)
        stage, last = scene.stage, scene.observer
        id = await scene.sent.enqueue(REQUEST, idempotency_key=KEY)
        if deaths is None:
            await scene.chat.stop(id)
        for number in range(deaths or 0):
            process = scene.sender if number == 0 else await stage.process()
            scene.hold()
            await stage.reach(scene.gate, stage.start(process.ledger.work(scene.play)))
            await process.flush()
            process.store.ignores_hints = True
            await stage.bury_others(last)
        scene.gate.release()
        stage.start(last.ledger.work(scene.play))
        await soon(scene.chat.outcome(id))
        seen = words((await scene.seen())[2:])
        await scene.move_on()
        state = await scene.state(id)
        return seen, state, await tried(enqueue(scene.chat))


async def undo(scene: Scene, *, forget: bool = False) -> Chat:
    await scene.chat.undo(forget=forget)
    return scene.chat


async def edit(scene: Scene) -> Chat:
    *_, last = await scene.chat.turns()
    await run_block(scene.chat.edit(last.id, NEXT))
    return scene.chat


async def switch(scene: Scene) -> Chat:
    """Switch to a branch that was made beside the turn."""
    first, *_ = await scene.chat.turns()
    beside = await run_block(scene.chat.turn(NEXT, after=first.id))
    await scene.chat.switch(beside.branch)
    return scene.chat


async def fork_before(scene: Scene) -> Chat:
    first, *_ = await scene.chat.turns()
    return await scene.chat.fork(first.id)


LEAVING = (undo, edit, switch, fork_before)


async def fork(scene: Scene) -> Chat:
    return await scene.chat.fork()


async def branches() -> str:
    completed, kept, failed = EVENTS[0], EVENTS[1], EVENTS[3]
    moves: list[tuple[str, Event, Sequence[Move]]] = [
        *((f"{each.label}, then left", each, LEAVING) for each in (completed, kept, failed)),
        (f"{kept.label}, then undone with `forget`", kept, (partial(undo, forget=True),)),
        *((f"{each.label}, then forked", each, (fork,)) for each in (completed, kept, failed)),
    ]
    rows = []
    for label, event, ways in moves:
        found = [[await _left(event, steps, move) for move in ways] for steps in DONE.values()]
        rows.append([label, *(" or ".join(dict.fromkeys(each)) for each in found)])
    return table(["the turn", *DONE], rows)


async def _left(event: Event, steps: Sequence[Step], move: Move) -> str:
    async with ended(event, steps) as (scene, _):
        around = {EARLIER, NEXT, "Yes."}
        seen = await scene.seen(await move(scene))
        return words(item for item in seen if item.text not in around)


async def others() -> str:
    rows = [await append_row(), await undo_row()]
    rows += [await edit_row("edit completed", complete), await edit_row("edit failed", fail)]
    rows += [await queue_row(f"stopped with `{policy}` in the queue", policy) for policy in OnStop]
    rows += [await queue_row("process died with the turn in the queue"), await delete_row()]
    columns = ["event", "in the history", "the next model sees", "a retry", "attempt"]
    return table(columns, [[label, *row] for label, row in merged(rows).items()])


async def append_row() -> Row:
    def send(chat: Chat) -> Coroutine[Any, Any, Turn]:
        return chat.append([REQUEST, {"role": "assistant", "content": "Paid."}], idempotency_key=KEY)

    async with open_scene() as scene:
        return await _row("appended", scene, send, (await send(scene.sent)).id)


async def undo_row() -> Row:
    async with ended(EVENTS[0], ()) as (scene, id):
        await scene.chat.undo()
        return await _row("completed, then undone", scene, EVENTS[0].send(scene), id)


async def edit_row(label: str, happen: Act) -> Row:
    async with open_scene() as scene:
        [turn] = await scene.chat.turns()

        def send(chat: Chat) -> Coroutine[Any, Any, Turn]:
            return chat.edit(turn.id, REQUEST, idempotency_key=KEY).run(scene.play)

        return await _row(label, scene, send, await scene.end(send, happen))


async def queue_row(label: str, policy: OnStop | None = None) -> Row:
    """Stop a turn in the queue; without a policy, its process dies."""
    async with open_scene() as scene:
        send = Event(label, stop, {} if policy is None else {"on_stop": policy}).send(scene)
        holder = await scene.stage.hold_lane(scene.sent, HOLDER)
        waiting = await scene.stage.line_up(scene.sent, send(scene.sent))
        [ticket] = await scene.stage.tickets(scene.chat)
        if policy is None:
            await die(scene)
        else:
            await scene.chat.stop(ticket.attempt)
            await asyncio.wait([waiting])
            await holder.finish()
        scene.gate.release()
        return await _row(label, scene, send, ticket.attempt)


async def delete_row() -> Row:
    async def delete(scene: Scene) -> None:
        await scene.chat.delete()

    event = Event("chat deleted", delete, {})
    async with ended(event, ()) as (scene, id):
        return await _row(event.label, scene, event.send(scene), id)


async def _row(label: str, scene: Scene, send: Send, id: str) -> Row:
    async def history() -> str:
        return "; ".join(map(_describe, await scene.chat.turns()))

    async def seen() -> str:
        items, turns = await scene.seen(), await scene.chat.turns()
        is_same = items == [item for turn in turns for item in turn.items]
        return "the same" if is_same else words(items)

    state = await tried(scene.state(id))
    return label, (await tried(history()), await tried(seen()), await scene.retry(send), state)


def _describe(turn: Turn) -> str:
    known = {EARLIER: "the turn before", HOLDER: "the turn that ran"}
    return known.get(turn.input[0].text) or f"{turn.kind}: {words(turn.items)}"


def page() -> str:
    return asyncio.run(_page())


async def _page() -> str:
    observed = merged(
        [(event.label, [await observe(event, steps) for steps in DONE.values()]) for event in EVENTS]
    )
    return sections(
        [
            head("Reference: outcomes", INTRODUCTION),
            HISTORY,
            ends(observed, "history", "kind", "state"),
            SEEN,
            ends(observed, "seen", "later_state"),
            RETRY,
            ends(observed, "retry"),
            LATER,
            ends(observed, "later_retry"),
            BUSY,
            await busy(),
            BACKGROUND,
            await background(),
            BRANCHES,
            await branches(),
            OTHERS,
            await others(),
        ]
    )
