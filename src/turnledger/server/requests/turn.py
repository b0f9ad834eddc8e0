"""What a request for a turn at /api/turns asks for: its headers and its body, checked and taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import msgspec

from turnledger.api.requests import Said, TurnBody
from turnledger.engine.limits import Limits
from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.item import Item
from turnledger.model.messages.messages import items_of_messages
from turnledger.model.messages.pairing import left_open
from turnledger.server.requests.body import decode_body
from turnledger.server.requests.chat import NULL, AskedOfModel, check_keepable, check_tools, fingerprint_of
from turnledger.server.requests.headers import (
    KEY,
    OF_TURNS,
    Policies,
    RawHeaders,
    must_exist,
    named_among,
    policies_of,
    text_of,
)

OF_THEIR_OWN = frozenset({"model", "messages", "stream"})
"""What the body says elsewhere, and the settings of a model cannot."""
_PLACE = frozenset({"chat", "conversation_key", "scope"})
"""The ledger itself compares the conversations, by whatever name they go."""


class TurnRequest(msgspec.Struct, frozen=True):
    """One request, as it was understood."""

    body: TurnBody
    settings: Mapping[str, Any]
    """What the model is asked with, besides the messages."""
    stream_options: msgspec.Raw | None
    must_exist: bool
    policies: Policies
    idempotency_key: str | None
    fingerprint: bytes
    """What must be equal for it to be the same request again."""
    primer: tuple[Item, ...] = ()
    """What the model is shown before the history, this once."""
    retry: int | None = None
    """Who asks here names an idempotency_key, or asks anew."""

    @property
    def stream(self) -> bool:
        return bool(self.body.stream)

    @property
    def takes_a_place(self) -> bool:
        """Whether it is about a turn that is there: an edit, or another answer."""
        return _takes_a_place(self.body)


_bodies = msgspec.json.Decoder(TurnBody)
_looked_at = msgspec.json.Decoder(AskedOfModel)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def turn_request(
    path: str, headers: RawHeaders, raw: bytes, most_items: int = Limits.input_items
) -> TurnRequest:
    """Take a request apart, with at most so many items that are converted here. Raises InvalidInput or
    Refused, which name what is wrong and the remedy."""
    named = named_among(headers, OF_TURNS)
    body = decode_body(raw, _bodies)
    if body.chat is None and body.conversation_key is None and _takes_a_place(body):
        raise InvalidInput("replaces and regenerates are about a turn of a chat. Name that: `chat`.")
    if body.chat is not None and body.scope:
        raise InvalidInput(
            "scope: a chat that is named by its id is of the scope it was made in. Leave it out."
        )
    settings = _settings(body)
    stream_options = settings.pop("stream_options", None)
    fields = {name: value for name, value in _fields.decode(raw).items() if name not in _PLACE}
    key = text_of(named, KEY)
    return TurnRequest(
        body=body,
        settings={**settings, "model": body.model},
        stream_options=stream_options,
        must_exist=must_exist(named),
        policies=policies_of(named),
        idempotency_key=key,
        fingerprint=fingerprint_of(path, "", fields) if key is not None else b"",
        primer=primer_of(body.primer, most_items) if body.primer else (),
    )


def primer_of(said: Said, most: int) -> tuple[Item, ...]:
    """A history of the client's own, as items: chat messages with their tool calls, items, or texts, which
    are a user's. Raises MalformedItems."""
    items: list[Item] = []
    limits = Limits(input_items=most)
    limits.check_count("What primes the turn", said)
    limits.check_messages("What primes the turn", [like for like in said if isinstance(like, dict)])
    try:
        for are_messages, run in groupby([said] if isinstance(said, str) else said, _is_chat_message):
            likes: list[Any] = list(run)
            items += items_of_messages(likes, left_open(items)) if are_messages else map(Item.of, likes)
    except MalformedItems as problem:
        raise MalformedItems(f"primer: {problem}") from None
    return tuple(items)


def _is_chat_message(like: str | dict[str, Any]) -> bool:
    return isinstance(like, dict) and "role" in like and "type" not in like


def _takes_a_place(body: TurnBody) -> bool:
    return body.replaces is not None or body.regenerates not in (None, False)


def _settings(body: TurnBody) -> dict[str, msgspec.Raw]:
    raw = bytes(body.settings)
    if body.settings == NULL:
        return {}
    looked_at = decode_body(raw, _looked_at, "settings")
    check_tools(looked_at)
    check_keepable(looked_at)
    settings = decode_body(raw, _fields, "settings")
    if stray := OF_THEIR_OWN & settings.keys():
        raise InvalidInput(f"settings: {', '.join(sorted(stray))} is said outside of it, or not at all.")
    return settings
