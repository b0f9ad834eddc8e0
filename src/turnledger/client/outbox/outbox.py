"""The outbox without I/O: messages of unknown outcome, and which running program claims one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore
from turnledger.client.core.steps import Request
from turnledger.client.core.turn_stream import FORBIDDEN, Following
from turnledger.client.errors import is_of_a_stranger
from turnledger.client.shapes import Answer
from turnledger.errors import (
    InvalidInput,
    NotAdmitted,
    OutcomeUnknown,
    ServerUnavailable,
    TurnledgerError,
)

if TYPE_CHECKING:
    from turnledger.client.outbox.file import OutboxFile


_fields = msgspec.json.Decoder(dict[str, Any])


class Outbox(Struct, frozen=True, kw_only=True):
    """Where unsent messages are written down, and how many. Most need no more than the name of a file.
    A Client opens it at once, an AsyncClient when its block is entered or with the first message."""

    path: str | os.PathLike[str]
    sender: str | None = None
    """Whose messages they are. Nobody sends those of others; without it, they are known by their api_key, of
    which a digest is kept: give a name of your own where it may be another one next time."""
    safe_for: float = 23 * 3600.0
    """Seconds after the first try within which it is safe to send a message again. The server remembers its
    idempotency_key for a day after its end."""
    most_messages: int = 1_000
    """Of this sender."""
    most_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if min(self.safe_for, self.most_messages, self.most_bytes) <= 0:
            raise InvalidInput("An outbox has room for something, for some time. Give numbers above zero.")
        if self.sender is not None and not self.sender.strip():
            raise InvalidInput("sender is a name that is not blank. Leave it out to go by the api_key.")


class Unsent(Struct, frozen=True, kw_only=True):
    """A message whose end is not known."""

    id: int
    base_url: str
    idempotency_key: str
    body: bytes
    """What was to be sent."""
    headers: Mapping[str, str]
    """Those that belong to it; none that lets anybody in."""
    recorded_at: int
    """Milliseconds since 1970, as all times."""
    first_tried_at: int | None
    """None: not a byte of it can have reached the server."""
    is_uncertain: bool
    """Whether it was tried too long ago to send it again: it may have been carried out, and is not known any
    more."""

    @property
    def asked(self) -> dict[str, Any]:
        """What it asks for: `input`, `chat` or `conversation_key`, and so on."""
        return _fields.decode(self.body)


OutboxLike: TypeAlias = Outbox | str | os.PathLike[str] | None
Sent: TypeAlias = tuple[Unsent, Answer | TurnledgerError]
"""A message, and what became of it."""


def recording(
    outbox: OutboxLike, base_url: str, api_key: str | None, *, opens: bool = True
) -> OutboxFile | None:
    """The file of a client; None if it keeps no record. Raises StoreError if it is opened here."""
    if outbox is None:
        return None
    from turnledger.client.outbox.file import OutboxFile  # most need no SQLite

    outbox = outbox if isinstance(outbox, Outbox) else Outbox(path=outbox)
    return OutboxFile(outbox, base_url, api_key, opens=opens)


def again(client: ClientCore, unsent: Unsent) -> tuple[ChatCore, Following]:
    """The same message, to be followed to its end."""
    asked = unsent.asked
    chat = ChatCore.opened(client, asked.get("chat"), asked.get("conversation_key"), asked.get("scope"))
    request = Request(method="POST", path="/api/turns", headers=unsent.headers, body=unsent.body)
    return chat, chat.again(request, unsent.idempotency_key)


def uncertain(unsent: Unsent) -> OutcomeUnknown:
    """What is told of a message that is not sent again."""
    return OutcomeUnknown(
        "This message was first tried longer ago than a server remembers it: it may have been answered, and"
        f" would perhaps be sent twice. Look at its chat; then client.outbox.forget({unsent.id}), or send it"
        " anew."
    )


def is_end(problem: TurnledgerError) -> bool:
    """Whether the others that are to be sent would meet with the same. What is forbidden may be so in one
    chat only, or with one model."""
    if isinstance(problem, NotAdmitted):
        return problem.status != FORBIDDEN
    is_unheard = isinstance(problem, ServerUnavailable) or is_of_a_stranger(problem)
    return is_unheard or problem.code == "client_closed"


def there_is_none() -> InvalidInput:
    return InvalidInput('This client keeps no record of unsent messages. Make it with outbox="unsent.db".')


_HERE: set[str] = set()
"""The claimants of this process: what else goes by its number is of an earlier one, as in a container, where
every program is process 1."""


class Claimant:
    """Who claims messages, by a name that tells others whether it is alive."""

    def __init__(self) -> None:
        self._suffix = os.urandom(8).hex()
        _HERE.add(self._suffix)

    @property
    def name(self) -> str:
        return f"{os.getpid()}:{self._suffix}"

    def retire(self) -> None:
        """Claim nothing any more: what was claimed is anybody's."""
        _HERE.discard(self._suffix)

    def is_alive(self, name: str) -> bool:
        """Whether a claimant may still be there. Wrong guesses cost a request that the server knows again."""
        process, _, suffix = name.partition(":")
        if process == str(os.getpid()):
            return suffix in _HERE
        return not process.isdigit() or _is_running(int(process))


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # there, signal 0 is no question; the claim ends by its time
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
