"""Calls of tools, gathered from the pieces in which a model streams them."""

from __future__ import annotations

from typing import Any

from turnledger.errors import MalformedAnswer

_BODIES = {"function": "arguments", "custom": "input"}


class CallDeltas:
    """Gathers calls by their index. Ids, types and names come once; arguments come in pieces; what else a
    model says of a call is kept as it was last said."""

    def __init__(self) -> None:
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
                call[name] = value

    def _merge_body(self, index: int, body: dict[str, Any], growing: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise MalformedAnswer("The model sent a tool call that is not an object.")
        for name, each in value.items():
            if each is None or each == "":
                continue
            if name == growing:
                if not isinstance(each, str):
                    raise MalformedAnswer(f"The model sent a tool call whose {growing} is not a text.")
                self._pieces[index].append(each)
            elif name != "name" or "name" not in body:
                body[name] = each
