"""Names of conversations in other places than `X-Conversation-Id`, for clients that cannot send this header:
each is read only where the operator has switched it on.

Clients fill in templates, which leave a header or field empty outside a chat: an empty one names nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from typing import TypeAlias

import msgspec
from starlette.types import Scope

from turnledger.errors import InvalidInput
from turnledger.server.config.settings import BASE_URL, ChatSettings, split_skip_rule
from turnledger.server.requests.body import decode_body
from turnledger.server.requests.turn import RawHeaders, text_in

Fields: TypeAlias = Mapping[str, msgspec.Raw]


class _Metadata(msgspec.Struct):
    conversation_id: str | None = None


_texts: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(str | None)
_metadata: msgspec.json.Decoder[_Metadata | None] = msgspec.json.Decoder(_Metadata | None)
_named_path = re.compile(r"/c/(.+)(/v1/.*)", re.DOTALL).fullmatch


class ConversationNames:
    """Where requests name their conversations, besides `X-Conversation-Id`; and which ones are left out."""

    def __init__(self, settings: ChatSettings) -> None:
        self._sources = tuple(each.lower() for each in settings.named_by)
        self.headers = frozenset(each.encode() for each in self._sources if "-" in each)
        self._skip_rules = [_skip_rule(each) for each in settings.skip_when_header]

    def split_path(self, scope: Scope) -> None:
        """Take the name out of `/c/NAME/v1/…`, so that it reaches no log."""
        found = _named_path(scope["path"]) if BASE_URL in self._sources else None
        if found is not None:
            scope["state"]["base_url_name"], scope["path"] = found.groups()

    def skips(self, headers: RawHeaders) -> bool:
        """Return whether a request is left out of conversations, such as one for the title of a chat."""
        return any(
            name == skipped and matches(value.decode("latin-1").strip())
            for skipped, matches in self._skip_rules
            for name, value in headers
        )

    def find(self, headers: Mapping[bytes, bytes], base_url_name: str | None, fields: Fields) -> str | None:
        """Return the first name, in the order of the settings. Raises InvalidInput or RequestRefused if it is
        not text."""
        for source in self._sources:
            if source == BASE_URL:
                name = _checked(base_url_name)
            elif "-" in source:
                name = _in_header(headers, source)
            else:
                name = _in_body(fields, source)
            if name:
                return name
        return None


def _skip_rule(rule: str) -> tuple[bytes, Callable[[str], object]]:
    header, pattern = split_skip_rule(rule)
    return header.lower().encode(), re.compile(translate(pattern)).match


def _checked(name: str | None) -> str | None:
    # The server has decoded the path, with this character for bytes that are not UTF-8.
    if name is not None and (not name.strip() or "\N{REPLACEMENT CHARACTER}" in name):
        raise InvalidInput("The name in the base URL (/c/NAME/v1) must be text, UTF-8 and percent-encoded.")
    return name and name.strip()


def _in_header(headers: Mapping[bytes, bytes], name: str) -> str | None:
    value = headers.get(name.encode(), b"").strip()
    if value and not text_in(value):
        raise InvalidInput(f"{name} must be text, UTF-8 and percent-encoded.")
    return text_in(value)


def _in_body(fields: Fields, source: str) -> str | None:
    field = source.partition(".")[0]
    if field not in fields:
        return None
    raw = bytes(fields[field])
    if field == source:
        name = decode_body(raw, _texts, field)
    else:
        metadata = decode_body(raw, _metadata, field)
        name = metadata.conversation_id if metadata else None
    return name and name.strip()
