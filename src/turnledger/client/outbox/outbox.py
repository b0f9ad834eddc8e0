"""The outbox without I/O: messages of unknown outcome, and the program that claims one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore
from turnledger.client.core.steps import Request
from turnledger.client.core.turn_stream import FORBIDDEN, TurnFollower
from turnledger.client.errors import is_foreign
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
    """Where unsent messages are recorded, and how many. Usually the name of a file is enough. A Client opens
    it at once, an AsyncClient when its block is entered or with the first message."""

    path: str | os.PathLike[str]
    sender: str | None = None
    """Owner of the messages; a sender sends only its own. By default a digest of the api_key: give a name if
    the key may change."""
    safe_for: float = 23 * 3600.0
    """Seconds after the first try in which it is safe to send a message again. The server remembers its
    idempotency_key for a day after its end."""
    max_messages: int = 1_000
    """Of this sender."""
    max_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("safe_for", "max_messages", "max_bytes"):
            limit = getattr(self, name)
            if limit <= 0:
                raise InvalidInput(f"{name} is {limit}; the limits of an outbox must be above zero.")
        if self.sender is not None and not self.sender.strip():
            raise InvalidInput("sender must not be blank. Omit it to use the api_key.")


class UnsentMessage(Struct, frozen=True, kw_only=True):
    """A message whose outcome is unknown."""

    id: int
    base_url: str
    idempotency_key: str
    body: bytes
    headers: Mapping[str, str]
    """Without authorization."""
    recorded_at: int
    """Milliseconds since 1970, as all times."""
    first_tried_at: int | None
    """None: not a byte of it can have reached the server."""
    is_uncertain: bool
    """Whether the first try was too long ago to send it again: it may have been carried out, and the server
    may have forgotten it."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of its request: `input`, `chat` or `conversation_key`, and so on."""
        return _fields.decode(self.body)


OutboxLike: TypeAlias = Outbox | str | os.PathLike[str] | None
Sent: TypeAlias = tuple[UnsentMessage, Answer | TurnledgerError]


def open_outbox(
    outbox: OutboxLike, base_url: str, api_key: str | None, *, open_now: bool = True
) -> OutboxFile | None:
    """Return the file of a client; None without an outbox. Raises StoreError if it is opened here."""
    if outbox is None:
        return None
    from turnledger.client.outbox.file import OutboxFile  # most need no SQLite

    outbox = outbox if isinstance(outbox, Outbox) else Outbox(path=outbox)
    return OutboxFile(outbox, base_url, api_key, open_now=open_now)


def resend(client: ClientCore, unsent: UnsentMessage) -> tuple[ChatCore, TurnFollower]:
    """Return the chat of a message, and a follower that sends it again."""
    fields = unsent.fields
    chat = ChatCore.open(client, fields.get("chat"), fields.get("conversation_key"), fields.get("scope"))
    request = Request(method="POST", path="/api/turns", headers=unsent.headers, body=unsent.body)
    return chat, chat.resend(request, unsent.idempotency_key)


def uncertain_error(unsent: UnsentMessage) -> OutcomeUnknown:
    return OutcomeUnknown(
        "This message is too old to retry safely. Check its chat; then call "
        f"client.outbox.forget({unsent.id}), or send it again."
    )


def ends_sending(problem: TurnledgerError) -> bool:
    """Whether the other messages would fail with the same error. A refusal (403) may concern one chat or
    model only."""
    if isinstance(problem, NotAdmitted):
        return problem.status != FORBIDDEN
    is_unreached = isinstance(problem, ServerUnavailable) or is_foreign(problem)
    return is_unreached or problem.code == "client_closed"


def no_outbox_error() -> InvalidInput:
    return InvalidInput('This client has no outbox. Create it with outbox="unsent.db".')


_LIVE_CLAIMANTS: set[str] = set()
"""The claimants of this process. Other names with its number are of an earlier process, as in a container,
where every program is process 1."""


class Claimant:
    """Claims messages, by a name that shows others whether it is alive."""

    def __init__(self) -> None:
        self._suffix = os.urandom(8).hex()  # `secrets` would load `random`
        _LIVE_CLAIMANTS.add(self._suffix)

    @property
    def name(self) -> str:
        return f"{os.getpid()}:{self._suffix}"

    def retire(self) -> None:
        _LIVE_CLAIMANTS.discard(self._suffix)

    def is_alive(self, name: str) -> bool:
        """Whether a claimant may still be alive. A wrong guess costs a request that the server recognises."""
        process, _, suffix = name.partition(":")
        if process == str(os.getpid()):
            return suffix in _LIVE_CLAIMANTS
        return not process.isdigit() or _is_running(int(process))


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 is not a probe there; the claim expires
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
