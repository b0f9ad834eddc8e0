"""Calls of tools, gathered from the pieces in which a model streams them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from turnledger.errors import MalformedAnswer

_BODIES = {"function": "arguments", "custom": "input"}


_OVERHEAD = 500
"""Bytes that an empty call takes."""


class CallDeltas:
    """Gathers calls by their index. Ids, types and names come once; arguments come in pieces; what else a
    model says of a call is kept as it was last said. `count` is called with the bytes that each takes, and
    may raise."""

    def __init__(self, count: Callable[[int], None] = lambda _: None) -> None:
        self._count = count
        self._calls: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}

    def add(self, deltas: list[dict[str, Any]]) -> None:
        """Take the pieces of one chunk; raises MalformedAnswer."""
        for delta in deltas:
            index = delta.get("index", 0)
            if type(index) is not int:
                raise MalformedAnswer("The model sent a tool call whose index is not a number.")
            call = self._calls.get(index)
            if call is None:
                self._count(_OVERHEAD)
                call = self._calls[index] = {"type": "function"}
                self._pieces[index] = []
            self._merge(index, call, delta)

    def whole(self) -> list[dict[str, Any]]:
        """The calls as a message has them, in the order of their indexes; raises MalformedAnswer for a call
        that cannot be answered."""
        calls = []
        for index, call in sorted(self._calls.items()):
            kind = call["type"]
            body = call.get(kind) if isinstance(kind, str) and kind in _BODIES else None
            if not call.get("id") or body is None or not body.get("name"):
                raise MalformedAnswer("The model called a tool without an id, a known type or a name.")
            calls.append({**call, kind: {**body, _BODIES[kind]: "".join(self._pieces[index])}})
        return calls

    def _merge(self, index: int, call: dict[str, Any], delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if name == "index" or value is None or value == "":
                continue
            if name in _BODIES:
                self._merge_body(index, call.setdefault(name, {}), _BODIES[name], value)
            elif name == "id" and call.setdefault("id", value) != value:
                raise MalformedAnswer(f"The model sent two tool calls with the index {index}.")
            else:
                self._keep(call, name, value)

    def _merge_body(self, index: int, body: dict[str, Any], growing: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise MalformedAnswer("The model sent a tool call that is not an object.")
        for name, each in value.items():
            if each is None or each == "":
                continue
            if name == growing:
                if not isinstance(each, str):
                    raise MalformedAnswer(f"The model sent a tool call whose {growing} is not a text.")
                self._count(len(each) + 50)  # a string of one character takes that many bytes
                self._pieces[index].append(each)
            elif name != "name" or "name" not in body:
                self._keep(body, name, each)

    def _keep(self, kept: dict[str, Any], name: str, value: Any) -> None:
        if name not in kept or kept[name] != value:
            self._count(len(name) + len(json.dumps(value)))
            kept[name] = value
