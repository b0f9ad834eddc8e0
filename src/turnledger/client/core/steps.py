"""What passes between the core, which decides, and the edges, which do: steps go out, outcomes come back.

The core is written as generators that yield steps and touch neither sockets nor clocks. An edge runs each
step, blocking or awaiting, and sends its outcome in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

Result = TypeVar("Result")


class Request(Struct, frozen=True, kw_only=True):
    """One request. `pieces` begins a body anew that is read while it is sent."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    pieces: Callable[[], Iterator[bytes]] | None = None


class Reply(Struct, frozen=True):
    """What a server said. The names of headers are in lower case; of a stream, the body is still to come."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Broken(Struct, frozen=True):
    """A request or a stream of which no whole answer came."""

    reason: str
    may_have_arrived: bool = True
    """False only where not a byte of the request can have reached the server."""
    is_hopeless: bool = False
    """Whether another try cannot go better: a certificate that is not trusted, for one."""


class Exchange(Struct, frozen=True):
    """Send it and read all of the answer. Outcome: Reply or Broken."""

    request: Request


class Open(Struct, frozen=True):
    """Send it; where the answer is good, leave its body to be read. Outcome: Reply or Broken."""

    request: Request


class Read(Struct, frozen=True):
    """Read on in what was opened last. Outcome: some bytes, none at its end, or Broken."""


class Give(Struct, frozen=True):
    """Hand these to whoever follows. Outcome: None; with `then_read`, that of a Read once they were taken,
    which saves a step where all are small."""

    given: Sequence[Any]
    then_read: bool = False


class Pause(Struct, frozen=True):
    """Wait for so many seconds."""

    seconds: float


class Sending(Struct):
    """A message on its way. Its stream may be left, or forgotten, without another step."""

    is_over: bool = False
    """Whether nobody sends it any more."""


class Record(Struct, frozen=True):
    """Note, where that is wanted, that this is about to be sent under this idempotency_key."""

    idempotency_key: str
    request: Request
    sending: Sending


class Keep(Struct, frozen=True):
    """The end of what was asked under this idempotency_key could not be learned, or may be another one next
    time: keep what was recorded."""

    idempotency_key: str
    may_have_arrived: bool
    """Whether any byte of it can have reached the server."""


class Forget(Struct, frozen=True):
    """The end of what was asked under this idempotency_key is known."""

    idempotency_key: str


Step: TypeAlias = Exchange | Open | Read | Give | Pause | Record | Keep | Forget
Steps: TypeAlias = Generator[Step, Any, Result]
"""Something that is done step by step, and its result."""

Note: TypeAlias = Callable[[Record | Keep | Forget], None]
"""Does what these say."""

READ = Read()
MOST_BYTES = 256 * 1024 * 1024
"""Of an answer, an event or a line: many times what a server lets into a turn. What has more has no end."""
JSON_TYPE = "application/json"
