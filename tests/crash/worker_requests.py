"""Requests of workers. Each follows from its token, so that a check knows the expected turn from the token in
a history."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from turnledger import Item, RunningTurn

LANES = ("lane-a", "lane-b", "lane-c")
RESULT = "did "
ENDINGS = ("answer", "answer", "answer", "fail", "fail-kept", "stop", "stop-discarded")


class Deliberate(Exception):
    pass


@dataclass(frozen=True)
class WorkerRequest:
    """One request of a worker. A keyed one repeats its token; others have a new one each time."""

    token: str
    conversation_key: str
    idempotency_key: str | None
    acts: tuple[bool, ...]
    """For each tool call, whether it has an effect."""
    words: int
    ending: str

    @classmethod
    def of(cls, token: str) -> WorkerRequest:
        """Return the request of a token `seed.slot.number` (keyed) or `seed.slot.number.incarnation`."""
        seed, slot, number, *incarnation = token.split(".")
        dice = Random(f"{seed}.{slot}.{number}")
        is_keyed = is_keyed_number(int(number))
        assert is_keyed is not bool(incarnation)
        lane = dice.choice(LANES)
        is_long = dice.random() < 0.15
        acts = tuple(dice.random() < 0.75 for _ in range(8 if is_long else dice.randint(0, 3)))
        ending = dice.choice(ENDINGS)
        if is_keyed and ending.startswith("stop"):
            ending = "answer"
        return cls(token, lane, token if is_keyed else None, acts, 2_000 if is_long else 3, ending)

    @property
    def policy(self) -> str:
        """Policy for a failure or the death of the process."""
        return "keep" if self.ending == "fail-kept" else "settle"

    @property
    def calls(self) -> list[Item]:
        return [call(f"{self.token}/{place}") for place in range(len(self.acts))]

    @property
    def reads(self) -> list[Item]:
        """Calls without effect."""
        return [item for item, acts in zip(self.calls, self.acts, strict=True) if not acts]

    @property
    def dies_at(self) -> str:
        """The report of a job at which its process dies: each time it runs, or, in a tool, once."""
        number = int(self.token.split(".")[2]) // 2
        return {3: "acted", 7: "answered", 11: "acted", 14: "begun", 19: "answered"}.get(number % 20, "-")


def is_keyed_number(number: int) -> bool:
    return number % 2 == 0


def token_of(seed: int, slot: int, number: int, incarnation: int) -> str:
    name = f"{seed}.{slot}.{number}"
    return name if is_keyed_number(number) else f"{name}.{incarnation}"


def job_token(seed: int, slot: int, number: int) -> str:
    """Return the token of durable work, which is always keyed."""
    return token_of(seed, slot, 2 * number, 0)


def call(name: str) -> Item:
    return Item.of({"type": "function_call", "call_id": name, "name": "act", "arguments": f'"{name}"'})


def name_of(item: Item) -> str:
    return str(item.fields["call_id"])


def last_words(token: str, parent: str | None) -> str:
    """Return the end of a completed answer, which names the head it ran on."""
    return f"{token} is done after {parent}"


def act(effects: Path, name: str) -> None:
    """Record an effect, on disk when this returns."""
    file = os.open(effects, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{name}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


def runner_of(
    request: WorkerRequest, effects: Path, report: Callable[[str], None], *, may_fail: bool
) -> Callable[[RunningTurn], Awaitable[None]]:
    """Return the runner of a request: its calls, those left by an earlier attempt, and the answer."""

    async def run(turn: RunningTurn) -> None:
        report(f"begun {request.token}")
        for item, changes_world in zip(request.calls, request.acts, strict=True):
            if item in turn.steps and item not in turn.open_calls:
                continue  # started by an earlier attempt
            turn.emit(f"{secrets.token_hex(secrets.randbelow(9))} Let me see. ")  # new in each run

            async def tool(name: str = name_of(item), changes_world: bool = changes_world) -> str:
                if changes_world:
                    act(effects, name)
                    report(f"acted {name}")
                return RESULT + name

            await turn.call(item, tool, read_only=not changes_world)
        for _ in range(request.words):
            turn.emit("word ")
            await asyncio.sleep(0)
        if may_fail and request.ending.startswith("fail"):
            raise Deliberate
        turn.emit(last_words(request.token, turn._open.branch.head))
        if request.ending == "stop":
            turn.stop("keep")
        elif request.ending == "stop-discarded":
            turn.stop("discard")

    return run
