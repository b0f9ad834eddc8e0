"""A runner for tests that plays a script.

model = ScriptedModel(
    ["Let me look.", Tool("find_order", result="shipped"), "It is ", "on its way."],   # first run
    ["Hel", RuntimeError("the model broke")],                                        # second run
)
turn = await chat.run(model, "Where is my order?")
assert turn.text == "Let me look.It is on its way."
assert model.executed["find_order"] == 1
assert model.seen[0][-1] == {"role": "user", "content": "Where is my order?"}
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.model.item import Item
from turnledger.model.messages.messages import Message
from turnledger.testing.gates import Gate


@dataclass(frozen=True)
class Tool:
    """Call a server tool, which waits at `gate` if given, then raises `error` or returns `result`."""

    name: str
    result: str = "done"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call_id: str | None = None
    read_only: bool = False
    error: Exception | None = None
    gate: Gate | None = None


@dataclass(frozen=True)
class Ask:
    """Call a client tool, and leave the call for the client to answer."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call_id: str | None = None


@dataclass(frozen=True)
class Think:
    """Add a reasoning item."""

    text: str = "thinking"


Step: TypeAlias = str | Exception | Gate | Tool | Ask | Think
"""A text is emitted (consecutive texts are chunks of one message), an exception raised, a gate waited for."""


class ScriptedModel:
    """Plays one script per turn.

    A resumed turn continues after its journaled steps; of those, only tools with open calls run again. Call
    ids count from 0 in every turn unless given, so they repeat, as those of real models do.
    """

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self._scripts = deque(scripts)
        self.seen: list[list[Message]] = []
        """The messages shown to the model, by run."""
        self.executed: Counter[str] = Counter()

    async def __call__(self, turn: RunningTurn, /) -> None:
        self.seen.append(turn.messages)
        assert self._scripts, "the model was run more often than it has scripts"
        finished = deque(item for item in turn.steps if not item.is_result)
        for step in self._scripts.popleft():
            if isinstance(step, Tool | Ask | Think):
                await self._add(turn, step, _next_of(finished))
            elif not finished:
                await _play(turn, step)

    async def _add(self, turn: RunningTurn, step: Tool | Ask | Think, there: Item | None) -> None:
        if isinstance(step, Tool):
            await turn.call(there or _call(turn, step), lambda: self._act(step), read_only=step.read_only)
        elif there is None:
            await turn.add(_call(turn, step) if isinstance(step, Ask) else _reasoning(step))

    async def _act(self, tool: Tool) -> str:
        self.executed[tool.name] += 1
        if tool.gate is not None:
            await tool.gate.pass_through()
        if tool.error is not None:
            raise tool.error.with_traceback(None)
        return tool.result


def _next_of(finished: deque[Item]) -> Item | None:
    """Take the next finished item that is not text; text before it was journaled with it."""
    while finished:
        item = finished.popleft()
        if item.type != "message":
            return item
    return None


async def _play(turn: RunningTurn, step: str | Exception | Gate) -> None:
    if isinstance(step, str):
        turn.emit(step)
    elif isinstance(step, Gate):
        await step.pass_through()
    else:
        raise step.with_traceback(None)  # of an earlier run, which would stay in memory


def _call(turn: RunningTurn, step: Tool | Ask) -> Item:
    return Item.of(
        {
            "type": "function_call",
            "call_id": step.call_id or f"call_{sum(item.is_call for item in turn.steps)}",
            "name": step.name,
            "arguments": json.dumps(dict(step.arguments)),
        }
    )


def _reasoning(step: Think) -> Item:
    return Item.of({"type": "reasoning", "summary": [{"type": "summary_text", "text": step.text}]})
