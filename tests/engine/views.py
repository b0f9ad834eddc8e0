"""What engine tests share: events as a reader receives them, tool results, the ways a turn ends, and broken
engines with the tests that catch them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pytest

from turnledger.chat import Chat
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Tables
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import TurnledgerError
from turnledger.model import codec
from turnledger.model.conversation import LOCAL
from turnledger.model.event import Event, TextDelta, TurnFinished, TurnStarted
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState, Turn
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Think, Tool
from turnledger.testing.store_contract.stage import Holder, Stage, StageProcess, soon


async def shown(chat: Chat) -> BranchId:
    return (await chat.info()).branch


def results(turn: Turn) -> dict[str | None, str]:
    return {item.call_id: item.fields["output"] for item in turn.items if item.is_result}


Replacement = TypeVar("Replacement", bound=Callable[..., Any])
Test: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


class BrokenEngine(NamedTuple):
    where: Any
    what: str
    how: Callable[..., Any]
    test: Test
    arguments: tuple[object, ...]


class BrokenEngines(list[BrokenEngine]):
    """Engines with one rule left out, and for each a test that fails then."""

    def caught_by(
        self, test: Test, where: Any, what: str, *arguments: object
    ) -> Callable[[Replacement], Replacement]:
        """Decorate what replaces `what`. The test gets these arguments after its fixtures."""

        def add(how: Replacement) -> Replacement:
            self.append(BrokenEngine(where, what, how, test, arguments))
            return how

        return add

    @property
    def each(self) -> pytest.MarkDecorator:
        return pytest.mark.parametrize("engine", self, ids=lambda each: each.how.__name__, indirect=True)


async def check_fails(engine: BrokenEngine, fixtures: dict[str, Any]) -> None:
    given = [fixtures[name] for name in signature(engine.test).parameters if name in fixtures]
    # In a task of its own: a broken engine may cancel the task that requests a stop.
    task = asyncio.create_task(engine.test(None, *given, *engine.arguments))
    await asyncio.wait((task,))
    failures = AssertionError | TimeoutError | TurnledgerError | pytest.fail.Exception
    assert task.cancelled() or isinstance(task.exception(), failures)


Act: TypeAlias = Callable[[Stage, Chat, EventSink], Coroutine[Any, Any, None]]
Block: TypeAlias = Callable[[RunningTurn], Coroutine[Any, Any, None]]


class Ends(list[tuple[Act, AttemptState]]):
    """Acts by which a turn ends, each with the state it ends in."""

    def act(self, state: AttemptState) -> Callable[[Act], Act]:
        def add(act: Act) -> Act:
            self.append((act, state))
            return act

        return add

    def block(
        self, state: AttemptState, output: Sequence[Item | str] | None = None
    ) -> Callable[[Block], Act]:
        """Decorate the block of a turn: its output, if given, are these items, or items of these types."""

        def add(block: Block) -> Act:
            @wraps(block)
            async def act(stage: Stage, chat: Chat, sink: EventSink) -> None:
                async with chat.turn("q", on_event=sink) as turn:
                    await block(turn)
                if output is not None:
                    assert turn.turn is not None
                    pairs = zip(turn.turn.output, output, strict=True)
                    assert [item.type if isinstance(want, str) else item for item, want in pairs] == output

            return self.act(state)(act)

        return add

    @property
    def each(self) -> pytest.MarkDecorator:
        return pytest.mark.parametrize(("act", "state"), self, ids=[act.__name__ for act, _ in self])


BOOM = RuntimeError("the model broke")
SCRIPT: list[Step] = ["Let ", "me see.", Think(), Tool("look", "found"), "So", " ", "it is: \U0001f600"]
SMALL = Limits(lease_time=600.0, queue_wait=6_000.0, flush_every=6_000.0, reader_events=4, readers=2)


class Reading:
    """Reads a turn in a task, and collects its events."""

    def __init__(self, stage: Stage, chat: Chat, turn: TurnId, after: int = 0) -> None:
        self.events: list[Event] = []
        self._arrived = asyncio.Event()
        self.task = stage.start(self._read(chat, turn, after))

    async def _read(self, chat: Chat, turn: TurnId, after: int) -> list[Event]:
        async for event in chat.events(turn, after=after):
            self.events.append(event)
            self._arrived.set()
        return self.events

    async def until(self, number: int) -> list[Event]:
        while not self.events or self.events[-1].number < number:
            self._arrived.clear()
            arrival = asyncio.ensure_future(self._arrived.wait())
            await soon(asyncio.wait((arrival, self.task), return_when=asyncio.FIRST_COMPLETED))
            if not arrival.done():
                arrival.cancel()
                self.task.result()
                assert self.events[-1].number >= number, f"it ended at {self.events[-1:]}"
        return self.events


async def running(chat: Chat) -> TurnId:
    attempts = [each.attempt for each in await chat.attempts()]
    return next(each.id for each in attempts if each.state is AttemptState.RUNNING)


async def read_all(chat: Chat, turn: TurnId, after: int = 0) -> list[Event]:
    async def read() -> list[Event]:
        return [event async for event in chat.events(turn, after=after)]

    return await soon(read())


async def resumed_at_every_number(stage: Stage, chat: Chat, turn: TurnId, whole: Sequence[Event]) -> None:
    """Check that reading from any number returns the rest, and always the end."""
    for after in range(len(whole) + 3):
        assert wire(await read_all(chat, turn, after)) == wire(whole[after:] or whole[-1:])


def wire(events: Sequence[Event]) -> list[bytes]:
    return [codec.encode(event) for event in events]


def spoken(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def check_shape(events: Sequence[Event]) -> None:
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert isinstance(events[0], TurnStarted)
    ends = [place for place, event in enumerate(events, 1) if isinstance(event, TurnFinished)]
    assert ends == [len(events)]


async def check_read_back(stage: Stage, act: Any, state: AttemptState) -> list[Event]:
    """Check that the events of a turn are read after its end as they were sent live; return them."""
    here, there = await stage.processes()
    chat = await here.chat()
    events: list[Event] = []
    turns: list[TurnId] = []

    def sink(event: Event) -> None:
        events.append(event)
        turns[:] = turns or list(here.ledger._process.attempts)

    await soon(act(stage, chat, sink))
    check_shape(events)
    assert isinstance(events[-1], TurnFinished)
    assert events[-1].state is state
    for process in (here, there):
        assert wire(await read_all(await process.chat(chat), turns[0])) == wire(events)
    await resumed_at_every_number(stage, await there.chat(chat), turns[0], events)
    return events


async def chunks_of(tables: Tables, turn: TurnId) -> list[bytes]:
    return await tables.log_chunks(turn, 0, 1_000)


async def flushed_chunks(process: StageProcess, turn: TurnId) -> int:
    return len(await process.store.read(chunks_of, turn, LOCAL))


async def hold(stage: Stage, chat: Chat, script: Sequence[Step] = SCRIPT, **options: Any) -> Holder:
    return await stage.hold_lane(chat, "q", script, **options)


async def leave_pending(chat: Chat, *call_ids: str) -> None:
    """Run a turn that leaves these calls for the client."""
    calls = [Ask("ask", call_id=call_id) for call_id in call_ids]
    await soon(chat.run(ScriptedModel(["I ask.", *calls]), "q0"))


def outputs(items: list[Item]) -> list[tuple[str | None, Any]]:
    return [(item.call_id, item.fields["output"]) for item in items if item.is_result]
