"""Messages whose end is not known, and where they are written down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from turnledger.errors import InvalidInput

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
