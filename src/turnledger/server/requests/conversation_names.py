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
from turnledger.server.config.settings import BASE_URL, NAMING_FIELDS, ChatSettings, split_skip_rule
from turnledger.server.requests.body import decode_body
from turnledger.server.requests.turn import RawHeaders, text_in

Fields: TypeAlias = Mapping[str, msgspec.Raw]
_Match: TypeAlias = Callable[[str], object]


class _Metadata(msgspec.Struct):
    conversation_id: str | None = None


_texts: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(str | None)
_metadata: msgspec.json.Decoder[_Metadata | None] = msgspec.json.Decoder(_Metadata | None)
_named_path = re.compile(r"/c/(.+)(/v1/.*)", re.DOTALL).fullmatch


class ConversationNames:
    """Where requests name their conversations, besides `X-Conversation-Id`; and which ones are left out."""

    def __init__(self, settings: ChatSettings) -> None:
        sources = [each.lower() for each in settings.named_by]
        self._reads_base_url = BASE_URL in sources
        self._sources = [
            (
                each,
                each.encode() if "-" in each else None,
                each.partition(".")[0] if each in NAMING_FIELDS else None,
            )
            for each in sources
        ]
        """Each with the header that it is, or the field of a body."""
        self.headers = frozenset(header for _, header, _ in self._sources if header is not None)
        self._skip_rules: dict[bytes, list[_Match]] = {}
        for rule in settings.skip_when_header:
            skipped, matches = _skip_rule(rule)
            self._skip_rules.setdefault(skipped, []).append(matches)

    def split_path(self, scope: Scope) -> None:
        """Take the name out of `/c/NAME/v1/…`, so that it reaches no log."""
        found = _named_path(scope["path"]) if self._reads_base_url else None
        if found is not None:
            scope["state"]["base_url_name"], scope["path"] = found.groups()

    def skips(self, headers: RawHeaders) -> bool:
        """Return whether a request is left out of conversations, such as one for the title of a chat."""
        rules = self._skip_rules
        return any(
            matches(value.decode("latin-1").strip())
            for name, value in ([each for each in headers if each[0] in rules] if rules else ())
            for matches in rules[name]
        )

    def find(self, headers: Mapping[bytes, bytes], base_url_name: str | None, fields: Fields) -> str | None:
        """Return the first name, in the order of the settings. Raises InvalidInput or RequestRefused if it is
        not text."""
        for source, header, field in self._sources:
            name = None
            if header is not None:
                name = _in_header(headers[header], source) if header in headers else None
            elif field is not None:
                name = _in_body(fields[field], source, field) if field in fields else None
            elif base_url_name is not None:
                name = _checked(base_url_name)
            if name:
                return name
        return None


def _skip_rule(rule: str) -> tuple[bytes, _Match]:
    header, pattern = split_skip_rule(rule)
    return header.lower().encode(), re.compile(translate(pattern)).match


def _checked(name: str) -> str:
    # The server has decoded the path, with this character for bytes that are not UTF-8.
    if not name.strip() or "\N{REPLACEMENT CHARACTER}" in name:
        raise InvalidInput("The name in the base URL (/c/NAME/v1) must be text, UTF-8 and percent-encoded.")
    return name.strip()


def _in_header(value: bytes, source: str) -> str | None:
    name = text_in(value)
    if not name and value.strip():
        raise InvalidInput(f"{source} must be text, UTF-8 and percent-encoded.")
    return name


def _in_body(value: msgspec.Raw, source: str, field: str) -> str | None:
    raw = bytes(value)
    if field == source:
        name = decode_body(raw, _texts, field)
    else:
        metadata = decode_body(raw, _metadata, field)
        name = metadata.conversation_id if metadata else None
    return name and name.strip()
