"""A minimal server inside httpx2 that knows turns by idempotency_key, and fails on command."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2

CHAT, BRANCH = "conv_01890000000070008000000000000001", "branch_01890000000070008000000000000002"


class ScriptedServer:
    """Answers each turn with `You said …`, after the `troubles`, one per request for a turn."""

    def __init__(self) -> None:
        self.troubles: list[Callable[[httpx2.Request], httpx2.Response]] = []
        self.turns: dict[str, str] = {}
        """Idempotency_keys, and the ids of their turns."""
        self.received: list[str] = []
        """Requests in order."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/api/turns":
            return self._turn(request)
        turn = request.url.path.rpartition("/")[2]
        return httpx2.Response(200, json=self._standing(turn))

    def _turn(self, request: httpx2.Request) -> httpx2.Response:
        self.received.append(json.loads(request.content)["input"])
        if self.troubles:
            return self.troubles.pop(0)(request)
        return self.answer(request)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        key = request.headers["idempotency-key"]
        turn = self.turns.setdefault(key, f"turn_0189000000007000800000000000{len(self.turns):04}")
        events: list[dict[str, Any]] = [
            {"type": "turn.started"},
            {"type": "text.delta", "text": "Yes."},
            {"type": "turn.finished", "state": "completed", "failure": None},
        ]
        stream = "".join(
            f"id: {number}\nevent: {event['type']}\ndata: {json.dumps({**event, 'number': number})}\n\n"
            for number, event in enumerate(events, 1)
        )
        headers = {"content-type": "text/event-stream", "x-turn-id": turn, "x-conversation-id": CHAT}
        return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(stream.encode()))

    def _standing(self, turn: str) -> dict[str, Any]:
        message = {"type": "message", "role": "assistant", "content": "Yes."}
        shown = {"id": turn, "number": 1, "kind": "completed", "output": [message]}
        return {"state": "completed", "turn": shown, "chat": {"id": CHAT, "branch": BRANCH}, "branch": BRANCH}


def refuses(status: int, code: str) -> Callable[[httpx2.Request], httpx2.Response]:
    error = {"error": {"message": "No.", "type": "t", "param": None, "code": code}}
    return lambda _: httpx2.Response(status, json=error)


def is_away(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("nobody there", request=request)


def loses_the_answer(server: ScriptedServer) -> Callable[[httpx2.Request], httpx2.Response]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        server.answer(request)
        raise httpx2.ReadError("cut", request=request)

    return answer
