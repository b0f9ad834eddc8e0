"""The steps between the core, which decides, and the edges, which act: steps go out, outcomes come back.

The core is written as generators that yield steps and use neither sockets nor clocks. An edge runs each step,
blocking or awaiting, and sends its outcome in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

Result = TypeVar("Result")


class Request(Struct, frozen=True, kw_only=True):
    """One request. `pieces` reads a body from its beginning, while it is sent."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    pieces: Callable[[], Iterator[bytes]] | None = None


class Reply(Struct, frozen=True):
    """An answer. Names of headers are in lower case; the body of a stream is still to come."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Broken(Struct, frozen=True):
    """A request or a stream without a whole answer."""

    reason: str
    may_have_arrived: bool = True
    """False only if not a byte of the request can have reached the server."""
    is_hopeless: bool = False
    """Whether another try cannot succeed, as with a certificate that is not trusted."""


class Exchange(Struct, frozen=True):
    """Send it and read the whole answer. Outcome: Reply or Broken."""

    request: Request


class Open(Struct, frozen=True):
    """Send it, and leave the body of a good answer to be read. Outcome: Reply or Broken."""

    request: Request


class Read(Struct, frozen=True):
    """Read from the response that was opened last. Outcome: some bytes, none at its end, or Broken."""


class Give(Struct, frozen=True):
    """Hand these to the reader. Outcome: None; with `then_read`, that of a Read once they were taken, which
    saves a step for small ones."""

    given: Sequence[Any]
    then_read: bool = False


class Pause(Struct, frozen=True):
    seconds: float


class Sending(Struct):
    """A message that is being sent. Its stream may be left, or forgotten, without another step."""

    is_over: bool = False


class Record(Struct, frozen=True):
    """Record, in an outbox, that this is about to be sent under this idempotency_key."""

    idempotency_key: str
    request: Request
    sending: Sending


class Keep(Struct, frozen=True):
    """Keep what was recorded: the outcome is unknown, or may be another one next time."""

    idempotency_key: str
    may_have_arrived: bool
    """Whether any byte of it can have reached the server."""


class Forget(Struct, frozen=True):
    """Remove what was recorded: the outcome is known."""

    idempotency_key: str


Step: TypeAlias = Exchange | Open | Read | Give | Pause | Record | Keep | Forget
Steps: TypeAlias = Generator[Step, Any, Result]
"""A generator of steps, with its result."""

Note: TypeAlias = Callable[[Record | Keep | Forget], None]
"""Carries these out."""

READ = Read()
MOST_BYTES = 256 * 1024 * 1024
"""Bound of an answer, an event or a line: many times what a server allows in a turn."""
JSON_TYPE = "application/json"
