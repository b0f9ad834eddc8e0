"""The steps between the core, which decides, and the edges, which act.

The core consists of generators that yield steps and use neither sockets nor clocks. An edge runs each step,
blocking or awaiting, and sends its outcome back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

Result = TypeVar("Result")


class Request(Struct, frozen=True, kw_only=True):
    """One request. `pieces` reads a body from its beginning while it is sent."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    pieces: Callable[[], Iterator[bytes]] | None = None


class Reply(Struct, frozen=True):
    """A response. Names of headers are in lower case; the body of a stream is still to be read."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class ConnectionFailure(Struct, frozen=True):
    """A request or stream without a complete response."""

    reason: str
    may_have_arrived: bool = True
    """False only if not a byte of the request can have reached the server."""
    is_hopeless: bool = False
    """Whether another try cannot succeed, as with an untrusted certificate."""


class Exchange(Struct, frozen=True):
    """Send it and read the complete response. Outcome: Reply or Broken."""

    request: Request


class Open(Struct, frozen=True):
    """Send it, without reading the body of a successful response. Outcome: Reply or Broken."""

    request: Request


class Read(Struct, frozen=True):
    """Read from the response that was opened last. Outcome: some bytes, none at its end, or Broken."""


class Emit(Struct, frozen=True):
    """Hand these to the reader. Outcome: None; with `then_read`, that of a Read once the reader took them,
    which saves a step per small event."""

    items: Sequence[Any]
    then_read: bool = False


class Pause(Struct, frozen=True):
    seconds: float


class SendState(Struct):
    """A message that is being sent. Its stream may be left, or garbage-collected, without another step."""

    is_over: bool = False


class Record(Struct, frozen=True):
    """Record in an outbox that this is about to be sent under this idempotency_key."""

    idempotency_key: str
    request: Request
    sending: SendState


class Keep(Struct, frozen=True):
    """Keep the record: the outcome is unknown, or may be another one next time."""

    idempotency_key: str
    may_have_arrived: bool


class Forget(Struct, frozen=True):
    """Remove the record: the outcome is known."""

    idempotency_key: str


Step: TypeAlias = Exchange | Open | Read | Emit | Pause | Record | Keep | Forget
Steps: TypeAlias = Generator[Step, Any, Result]

Recorder: TypeAlias = Callable[[Record | Keep | Forget], None]

READ = Read()
MAX_BYTES = 256 * 1024 * 1024
"""Bound of a response, an event or a line: many times the server's limit for a turn."""
JSON_TYPE = "application/json"
