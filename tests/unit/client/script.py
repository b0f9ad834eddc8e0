"""A scripted server for the client core: each request gets the next answer of the script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from turnledger.client.core.exchange import Pacing, Retries, RetryCount
from turnledger.client.core.steps import (
    ConnectionFailure,
    Emit,
    Exchange,
    Forget,
    Keep,
    Open,
    Pause,
    Record,
    Reply,
    Request,
    Steps,
)

Result = TypeVar("Result")
TURN = "turn_01890000000070008000000000000001"
OTHER_TURN = "turn_01890000000070008000000000000002"
CHAT = "conv_01890000000070008000000000000003"
BRANCH = "branch_01890000000070008000000000000004"
CUT = ConnectionFailure("the connection was cut")
UNREACHED = ConnectionFailure("nobody listens there", may_have_arrived=False)
INFO = {"id": CHAT, "title": "A chat", "named_by": "person", "revision": 1, "branch": BRANCH}


class Streamed(msgspec.Struct):
    """A stream: headers, pieces, and its end, proper or broken."""

    headers: dict[str, str]
    pieces: list[bytes]
    end: bytes | ConnectionFailure = b""


def reply(values: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"x-request-id": "req_1", **named}, msgspec.json.encode(values))


def error_reply(status: int, code: str, kind: str = "invalid_request_error", **headers: str) -> Reply:
    return reply({"error": {"message": "No.", "type": kind, "param": None, "code": code}}, status, **headers)


def error_event(code: str, kind: str = "server_error") -> bytes:
    """An error in a stream."""
    return b"event: error\ndata: %s\n\n" % error_reply(500, code, kind).body


def turn_stream(
    *pieces: bytes, turn: str = TURN, end: bytes | ConnectionFailure = b"", replayed: bool = False
) -> Streamed:
    headers = {
        "content-type": "text/event-stream; charset=utf-8",
        "x-turn-id": turn,
        "x-conversation-id": CHAT,
        "x-conversation-state": "created",
    }
    return Streamed(headers | ({"idempotency-replayed": "true"} if replayed else {}), list(pieces), end)


def event_stream(*pieces: bytes, end: bytes | ConnectionFailure = b"") -> Streamed:
    """Answer a request for events of a turn or of chats."""
    return Streamed({"content-type": "text/event-stream; charset=utf-8"}, list(pieces), end)


def file_stream(*pieces: bytes, end: bytes | ConnectionFailure = b"") -> Streamed:
    return Streamed({"content-type": "application/x-ndjson"}, list(pieces), end)


def event(number: int, kind: str, **values: Any) -> bytes:
    data = msgspec.json.encode({"type": kind, "v": 1, "number": number, **values})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), data)


def turn_started(number: int = 1) -> bytes:
    return event(number, "turn.started")


def text(number: int, words: str) -> bytes:
    return event(number, "text.delta", text=words)


def turn_finished(number: int, state: str = "completed", failure: str | None = None) -> bytes:
    why = None if failure is None else {"code": failure, "message": f"{failure} happened"}
    return event(number, "turn.finished", state=state, failure=why)


WHOLE = (turn_started(), text(2, "Hello"), turn_finished(3))
COMMITTED = {"id": TURN, "number": 1, "kind": "completed", "input": [], "output": []}
ANSWER = reply({"turn": COMMITTED, "state": "committed", "chat": INFO, "branch": BRANCH})


class Script:
    """Plays a server, and records requests and pauses. Only pauses advance time."""

    def __init__(
        self, *answers: Reply | ConnectionFailure | Streamed, retries: Retries | None = None
    ) -> None:
        self._answers = list(answers)
        self._open: Iterator[bytes | ConnectionFailure] = iter(())
        self._time = 0.0
        self.retries = retries or Retries(times=4, first_pause=1.0, max_pause=8.0, patience=100.0)
        self.pacing = Pacing(now=lambda: self._time, chance=lambda: 1.0)
        self.received: list[Request] = []
        self.pauses: list[float] = []
        self.items: list[Any] = []
        self.noted: list[str] = []

    def new_retry_count(self) -> RetryCount:
        return RetryCount(self.retries, self.pacing)

    @property
    def is_over(self) -> bool:
        """Whether all answers were used."""
        return not self._answers

    def play(self, doing: Steps[Result]) -> Result:
        """Run the steps to their end."""
        outcome: Any = None
        while True:
            try:
                step = doing.send(outcome)
            except StopIteration as end:
                result: Result = end.value
                return result
            outcome = self._outcome(step)

    def _outcome(self, step: Any) -> Any:
        match step:
            case Exchange() | Open():
                return self._answer(step.request)
            case Emit():
                self.items += step.items
                return next(self._open) if step.then_read else None
            case Pause():
                self.pauses.append(step.seconds)
                self._time += step.seconds
                return None
            case Record():
                self.noted.append(f"record {step.idempotency_key}")
                return None
            case Keep():
                tried = "tried" if step.may_have_arrived else "untried"
                self.noted.append(f"keep {step.idempotency_key} as {tried}")
                return None
            case Forget():
                self.noted.append(f"forget {step.idempotency_key}")
                return None
        return next(self._open)

    def _answer(self, request: Request) -> Any:
        self.received.append(request)
        assert self._answers, f"not in the script: {request.method} {request.path}"
        answer = self._answers.pop(0)
        if isinstance(answer, Streamed):
            self._open = iter([*filter(None, answer.pieces), answer.end, b""])
            return Reply(200, answer.headers)
        return answer
