"""Said once: clients join the deltas of a stream, so roles, and ids and names of calls, may come once only.

Models that keep to that pay for a glance. Chunks of others are written anew, without what was said before.
"""

from __future__ import annotations

import json
from typing import Any

from turnledger.errors import MalformedAnswer
from turnledger.runners.chat_model import ChatChunk, ChunkChoice, Delta, chunk_of

_BODIES = ("function", "custom")
MOST_NAMES = 20_000
"""Roles, ids and names that are remembered of one answer."""


class SaidOnce:
    """What was said in one streamed answer of that which is said once."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: set[tuple[Any, ...]] = set()

    def without_repeats(self, payload: bytes) -> bytes:
        """The next chunk without what it repeats: the very same bytes, if that is nothing, or if they are no
        chunk."""
        if b'"role"' not in payload and b'"tool_calls"' not in payload:
            return payload
        try:
            chunk = chunk_of(payload)
        except MalformedAnswer:
            return payload
        takes = [self.take(choice) for choice in chunk.choices or ()]
        return rewritten(payload, chunk) if any(takes) else payload

    def take(self, choice: ChunkChoice) -> bool:
        """Take what a choice repeats out of its delta; say whether there was anything."""
        delta = choice.delta
        if delta is None or not (delta.role or delta.tool_calls):
            return False
        repeats = False
        if delta.role and self._is_repeat(choice.index, "role"):
            delta.role = None
            repeats = True
        for call in delta.tool_calls or ():
            repeats = self._take_call(choice.index, call) or repeats
        return repeats

    def _take_call(self, choice: int, call: dict[str, Any]) -> bool:
        index = str(call.get("index", 0))
        repeats = False
        if call.get("id") and self._is_repeat(choice, index, "id"):
            del call["id"]
            repeats = True
        for kind in _BODIES:
            body = call.get(kind)
            if isinstance(body, dict) and body.get("name") and self._is_repeat(choice, index, "name"):
                del body["name"]
                repeats = True
        return repeats

    def _is_repeat(self, *name: Any) -> bool:
        if name in self._said:
            return True
        if len(self._said) >= MOST_NAMES:
            raise MalformedAnswer(f"The model made more than {MOST_NAMES // 2} tool calls in one answer.")
        self._said.add(name)
        return False


def rewritten(payload: bytes, chunk: ChatChunk) -> bytes:
    """A payload with the roles and calls that are left in its chunk, and all else as it was."""
    told = json.loads(payload)
    for choice, left in zip(told["choices"], chunk.choices or (), strict=True):
        if left.delta is not None:
            _rewrite(choice["delta"], left.delta)
    # Half a character, which models that count UTF-16 send, stays as it is: escaped.
    return json.dumps(told, separators=(",", ":")).encode()


def _rewrite(told: dict[str, Any], left: Delta) -> None:
    if left.role is None:
        told.pop("role", None)
    if left.tool_calls:
        told["tool_calls"] = left.tool_calls
