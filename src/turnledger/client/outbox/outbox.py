"""The outbox without its edges: whether there is one, and how a message is sent again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore
from turnledger.client.core.steps import Request
from turnledger.client.core.turn_stream import FORBIDDEN, Following
from turnledger.client.errors import is_of_a_stranger
from turnledger.client.outbox.message import Outbox, Unsent
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
