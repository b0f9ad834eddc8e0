"""The player: runs a scenario on a driver and checks its expectations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.clients.drivers.driver import ClientError, Command, Driver
from tests.clients.patterns import mismatch, resolve
from tests.clients.places import Place
from tests.clients.scenario import Scenario, Step

PATIENCE = 60.0
"""Seconds after which a waiting step fails."""
CLIENT: dict[str, Any] = {
    "model": "demo",
    "timeouts": {"connect": 5, "silence": 10, "write": 10},
    "retries": {"times": 10, "first_pause": 0.002, "max_pause": 0.05, "patience": 20},
}
"""Default client options of scenarios, with short waits."""
_numbers = count(1)


class ScenarioFailed(AssertionError):
    pass


@dataclass
class PendingCommand:
    command: Command
    events: list[Any] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Any] | None = None

    def receive(self, event: Any) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, is_so: Callable[[list[Any]], bool]) -> None:
        """Wait until the events meet a condition; raise the error of the command if it ends before."""
        assert self.task is not None
        self.task.add_done_callback(lambda _: self.changed.set())
        while not is_so(self.events):
            self.changed.clear()
            if self.task.done():
                raise ScenarioFailed(f"it ended after {self.events!r}: {self.task.exception()}")
            await self.changed.wait()


class Play:
    def __init__(self, scenario: Scenario, driver: Driver, place: Place) -> None:
        self._scenario = scenario
        self._driver = driver
        self._place = place
        unique = f"{driver.name}-{next(_numbers)}"
        self.remembered: dict[str, Any] = {
            "scope": f"scope-{unique}",
            "unique": f"word-{unique}",
            "odd": f"Schlüssel/🔑 100%?&=# {unique}",
            "base_url": place.base_url,
            **place.knows,
        }
        self._started: dict[str, PendingCommand] = {}
        self._all: list[PendingCommand] = []
        self._step: Any = None

    async def run(self) -> None:
        """Run it, unless its driver cannot. Raises ScenarioFailed with the failing step."""
        if self._driver.name in self._scenario.exceptions:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._prepare()
                await self._steps(self._scenario.steps)
                await self._rest()
        except TimeoutError:
            raise ScenarioFailed(f"it took too long, at {self._step}") from None
        finally:
            for pending in self._all:
                if pending.task is not None and not pending.task.done():
                    pending.task.cancel()
            await asyncio.gather(*(each.task for each in self._all if each.task), return_exceptions=True)

    async def _prepare(self) -> None:
        await self._place.begin()
        client = {"base_url": self._place.base_url, **CLIENT, **self._scenario.client}
        await self._command({"do": "client", "with": client, "as": "client"})
        if self._scenario.chat is not None:
            details = {"scope": "$scope", **self._scenario.chat}
            await self._command({"do": "chats.create", "with": details, "as": "chat"})

    async def _rest(self) -> None:
        """Check what must hold after any steps."""
        for pending in self._all:
            assert pending.task is not None
            assert pending.task.done(), f"nobody waited for {pending.command}"
            if pending.command.do.startswith("chat."):
                check_stream(pending, pending.task)

    async def _steps(self, steps: list[Step]) -> None:
        for step in steps:
            self._step = step
            try:
                await self._play(step)
            except (ScenarioFailed, ClientError, KeyError, IndexError) as problem:
                raise ScenarioFailed(f"{problem}\n    at {step}") from problem

    async def _play(self, step: Step) -> None:
        known: Mapping[str, Callable[[Step], Awaitable[None]]] = {
            "do": self._do,
            "start": self._start,
            "await": self._await,
            "parallel": self._parallel,
            "repeat": self._repeat,
            "cancel": self._cancel,
            "history": self._history,
            "same": self._same,
            "differ": self._differ,
            "faults": lambda step: self._place.faults(step["faults"]),
            "wire": lambda step: self._place.wire(step["wire"]),
            "faulted": lambda step: self._place.wait_for_faults(step["faulted"]),
            "queued": lambda step: self._place.at_work(waiting=step["queued"]),
            "running": lambda step: self._place.at_work(running=step["running"]),
            "server": lambda step: self._place.server(step["server"]),
        }
        kinds = known.keys() & step.keys()
        assert len(kinds) == 1, f"what kind of step is this? {step}"
        await known[kinds.pop()](step)

    def _begin(self, step: Step) -> PendingCommand:
        unknown = step.keys() - {"do", "on", "with", "as", "expect", "error"}
        assert not unknown, f"{unknown} in {step}"
        arguments = resolve(step.get("with", {}), self.remembered)
        on = step.get("on") or ("chat" if step["do"].startswith("chat.") else "client")
        command = Command(next(_numbers), step["do"], arguments, on, step.get("as"))
        pending = PendingCommand(command)
        pending.task = asyncio.create_task(self._driver.do(command, pending.receive))
        self._all.append(pending)
        return pending

    async def _command(self, step: Step) -> None:
        pending = self._begin(step)
        await self._reply(pending, step)

    async def _do(self, step: Step) -> None:
        await self._command(step)

    async def _start(self, step: Step) -> None:
        fields = step["start"]
        pending = self._started[fields["as"]] = self._begin(fields)
        await asyncio.sleep(0)  # commands begin in the order of their steps
        awaited = step.get("after_events")
        if isinstance(awaited, int):
            await pending.until(lambda events: len(events) >= awaited)
        elif awaited is not None:
            await pending.until(lambda events: any(event[: len(awaited)] == awaited for event in events))

    async def _await(self, step: Step) -> None:
        pending = self._started.pop(step["await"])
        await self._reply(pending, {"as": step["await"], **step})

    async def _reply(self, pending: PendingCommand, step: Step) -> None:
        """Wait for the result of a command and compare it with the expectation."""
        assert pending.task is not None
        wanted = resolve(step.get("error"), self.remembered)
        try:
            result = await asyncio.shield(pending.task)
        except ClientError as refusal:
            pattern = {"code": wanted} if isinstance(wanted, str) else wanted
            if pattern is None:
                raise ScenarioFailed(f"it was refused: {refusal}") from refusal
            self._hold(pattern, refusal.error)
            if step.get("as"):
                self.remembered[step["as"]] = {"error": refusal.error, "events": refusal.events}
            return
        if wanted is not None:
            raise ScenarioFailed(f"the result is {result!r}, not {wanted!r}")
        if step.get("as"):
            self.remembered[step["as"]] = result
        if "expect" in step:
            self._hold(resolve(step["expect"], self.remembered), result)

    async def _parallel(self, step: Step) -> None:
        async with asyncio.TaskGroup() as group:
            for steps in step["parallel"]:
                group.create_task(self._steps(steps))

    async def _cancel(self, step: Step) -> None:
        command = Command(next(_numbers), "cancel", {"command": self._started[step["cancel"]].command.id})
        await self._driver.do(command, lambda _: None)

    async def _repeat(self, step: Step) -> None:
        for _ in range(step["repeat"]):
            await self._steps(step["steps"])

    async def _history(self, step: Step) -> None:
        command = Command(next(_numbers), "chat.turns", {}, step["history"])
        turns = await self._driver.do(command, lambda _: None)
        stored = [[turn["input"], turn["text"]] for turn in reversed(turns)]
        self._hold(resolve(step["is"], self.remembered), stored)

    async def _same(self, step: Step) -> None:
        values = resolve(step["same"], self.remembered)
        if any(value != values[0] for value in values):
            raise ScenarioFailed(f"they are not the same: {values}")

    async def _differ(self, step: Step) -> None:
        values = resolve(step["differ"], self.remembered)
        if any(value in values[:place] for place, value in enumerate(values)):
            raise ScenarioFailed(f"some of them are the same: {values}")

    def _hold(self, pattern: Any, value: Any) -> None:
        if (problem := mismatch(pattern, value)) is not None:
            raise ScenarioFailed(problem)


def check_stream(pending: PendingCommand, task: asyncio.Task[Any]) -> None:
    """Check that each event of a stream arrived once and in order, up to the last."""
    problem = task.exception()
    if problem is None:
        result = task.result()
        if not isinstance(result, dict) or "events" not in result:
            return
        events = result["events"]
    elif isinstance(problem, ClientError) and problem.events is not None:
        events = problem.events
    else:
        return
    if pending.events and pending.events != events:
        raise ScenarioFailed(f"events sent: {pending.events}; events in the result: {events}")
    after = 0 if pending.command.do == "chat.send" else int(pending.command.arguments.get("after", 0))
    part = check_numbers(events, after)
    if problem is not None:
        return
    if after and not events:
        return  # received before
    if not part or part[-1][0] != "turn.finished":
        raise ScenarioFailed(f"the stream has no end: {events}")
    answer = task.result().get("answer")
    text = text_of(part)
    if answer is not None and text != answer["text"]:
        raise ScenarioFailed(f"the text of the events is {text!r}, of the answer {answer['text']!r}")


def text_of(events: list[Any]) -> str:
    """Return the text of a stream; a resumed turn voids what came since its last item."""
    text, finished = "", 0
    for event in events:
        if event[0] in ("text.delta", "refusal.delta"):
            text += event[2]
        elif event[0] == "item.done":
            finished = len(text)
        elif event[0] == "turn.resumed":
            text = text[:finished]
    return text


def check_numbers(events: list[Any], after: int = 0) -> list[Any]:
    """Return the events since the last restart; raises ScenarioFailed for wrong numbers."""
    part: list[Any] = []
    for event in events:
        if event[0] == "turn.restarted":
            part, after = [], 0
            continue
        if event[1] != after + len(part) + 1:
            raise ScenarioFailed(f"event {event} follows {len(part)} others: {events}")
        part.append(event)
    finished = [event for event in part if event[0] == "turn.finished"]
    if len(finished) > 1 or (finished and part[-1] != finished[0]):
        raise ScenarioFailed(f"there is more behind the last event: {events}")
    return part
