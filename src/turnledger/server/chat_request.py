"""What a chat-completions request asks for: its headers and its body, checked and taken apart.

The body is decoded no further than it is looked at: what is passed on to a model goes as it came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from turnledger.engine.matching import Sent
from turnledger.engine.resending import OnDivergence
from turnledger.errors import InvalidInput
from turnledger.model.attempt import OnBusy, OnFailure, OnStop
from turnledger.model.ids import ConversationId
from turnledger.model.printable import plain
from turnledger.server.body import decode_body

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]


class OnDisconnect(StrEnum):
    """What becomes of a turn whose client goes away."""

    CONTINUE = "continue"  # it goes on, and can be read later
    KEEP = "keep"  # it is stopped, and stays as an interrupted turn
    DISCARD = "discard"  # it is stopped, and goes


class Unsupported(InvalidInput):
    """A conversation cannot keep what this asks for."""

    code = "unsupported_parameter"


class UnsupportedTool(InvalidInput):
    """The client would have the upstream call somebody else for it."""

    code = "unsupported_tool"


class Tool(msgspec.Struct):
    """What is looked at of a tool."""

    type: str | None = None


CLIENT_SIDE = frozenset({None, "function", "custom"})
"""The tools that are the client's own to run."""


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


NULL = msgspec.Raw(b"null")


class ChatBody(msgspec.Struct):
    """The fields of the body that are looked at."""

    model: str
    messages: msgspec.Raw
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    modalities: list[str] | None = None
    audio: msgspec.Raw = NULL  # a union of Raw with None would take nothing but null
    functions: msgspec.Raw = NULL
    tools: list[Tool] | None = None
    web_search_options: msgspec.Raw = NULL


class Policies(msgspec.Struct, frozen=True):
    """What the headers say of the turn; None where they say nothing."""

    on_busy: OnBusy | None = None
    on_stop: OnStop | None = None
    on_failure: OnFailure | None = None
    on_divergence: OnDivergence | None = None
    on_disconnect: OnDisconnect | None = None
    sent: Sent | None = None


NO_POLICIES = Policies()

_POLICIES: Mapping[bytes, tuple[str, type[StrEnum]]] = {
    b"x-turn-on-busy": ("on_busy", OnBusy),
    b"x-turn-on-stop": ("on_stop", OnStop),
    b"x-turn-on-failure": ("on_failure", OnFailure),
    b"x-turn-on-divergence": ("on_divergence", OnDivergence),
    b"x-turn-on-disconnect": ("on_disconnect", OnDisconnect),
    b"x-conversation-messages": ("sent", Sent),
}
_PASSED_BY = frozenset({"messages", "stream", "stream_options"})


class ChatRequest(msgspec.Struct, frozen=True):
    """One request, as it was understood."""

    model: str
    messages: msgspec.Raw
    stream: bool
    stream_options: msgspec.Raw | None
    include_usage: bool
    settings: Mapping[str, msgspec.Raw]
    """All other fields, as they came."""
    conversation: str | None = None
    """An id, if the request names one."""
    conversation_key: str | None = None
    scope: str | None = None
    """The scope of chats that it names, if it does."""
    must_exist: bool = False
    says_no: bool = False
    """Whether it asks that nothing of it be kept."""
    policies: Policies = NO_POLICIES
    idempotency_key: str | None = None
    retry: int | None = None
    """How often its client has tried before, if it says so."""
    fingerprint: bytes = b""
    """What must be equal for it to be the same request again."""

    @property
    def has_conversation(self) -> bool:
        return self.conversation is not None or self.conversation_key is not None


_body_decoder = msgspec.json.Decoder(ChatBody)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def chat_request(path: str, headers: RawHeaders, body: bytes) -> ChatRequest:
    """Take a request apart. Raises InvalidInput or Refused, which name what is wrong and the remedy."""
    known = decode_body(body, _body_decoder)
    fields = _fields_decoder.decode(body)
    _check_tools(known)
    named = _named(headers)
    given = _text(named, b"x-conversation-id")
    conversation, conversation_key = _conversation(given)
    says_no = _says_no(named)
    if says_no:
        pass  # what that leaves it, is said where it is known who else says no
    elif conversation is not None or conversation_key is not None:
        _check_keepable(known)
    elif len(named) > (b"x-stainless-retry-count" in named):
        raise InvalidInput(f"{_words(named)}: these need X-Conversation-Id. Without it, nothing is kept.")
    settings = {name: value for name, value in fields.items() if name not in _PASSED_BY}
    retry, has_key = _count(named), b"idempotency-key" in named
    # Where there is a key, the ledger itself compares the conversations, by whatever name they go.
    place = "" if has_key else given or ""
    return ChatRequest(
        model=known.model,
        messages=known.messages,
        stream=bool(known.stream),
        stream_options=fields.get("stream_options"),
        include_usage=bool(known.stream_options and known.stream_options.include_usage),
        settings=settings,
        conversation=conversation,
        conversation_key=conversation_key,
        scope=_text(named, b"x-conversation-scope"),
        must_exist=_expects(named),
        says_no=says_no,
        policies=_policies(named),
        idempotency_key=_text(named, b"idempotency-key"),
        retry=retry,
        fingerprint=_fingerprint(path, place, fields) if has_key or retry is not None else b"",
    )


_LOOKED_AT = frozenset(
    {
        *_POLICIES,
        b"x-conversation-id",
        b"x-conversation-expect",
        b"x-conversation-keep",
        b"x-conversation-scope",
        b"idempotency-key",
        b"x-stainless-retry-count",
    }
)


def _named(headers: RawHeaders) -> dict[bytes, bytes]:
    """The headers that are looked at. One that is there twice says two things, and neither is guessed."""
    found = [each for each in headers if each[0] in _LOOKED_AT]
    named = dict(found)
    if len(named) != len(found):
        twice = sorted({name.decode() for name, _ in found if [each for each, _ in found].count(name) > 1})
        raise InvalidInput(f"{', '.join(twice)}: given more than once. Send it once.")
    return named


def _words(named: Mapping[bytes, bytes]) -> str:
    return ", ".join(sorted(name.decode() for name in named if name != b"x-stainless-retry-count"))


def _text(named: Mapping[bytes, bytes], name: bytes) -> str | None:
    """A header that holds a text: UTF-8, percent-encoded where it must be."""
    if name not in named:
        return None
    try:
        text = unquote_to_bytes(named[name]).decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise InvalidInput(f"{name.decode()} must be text, UTF-8 and percent-encoded.")
    return text


def _conversation(given: str | None) -> tuple[str | None, str | None]:
    if given is None:
        return None, None
    return (given, None) if given.startswith(ConversationId.prefix) else (None, given)


def _expects(named: Mapping[bytes, bytes]) -> bool:
    expected = named.get(b"x-conversation-expect")
    if expected not in (None, b"continued"):
        raise InvalidInput("x-conversation-expect has one value: continued.")
    return expected is not None


def _says_no(named: Mapping[bytes, bytes]) -> bool:
    given = named.get(b"x-conversation-keep")
    if given not in (None, b"no"):
        # Whether chats are kept is for the server to say; a request can only ask for less.
        raise InvalidInput("x-conversation-keep has one value: no.")
    return given is not None


def _policies(named: Mapping[bytes, bytes]) -> Policies:
    if named.keys().isdisjoint(_POLICIES):
        return NO_POLICIES
    chosen: dict[str, Any] = {}
    for header, (name, kind) in _POLICIES.items():
        if header in named:
            value = named[header].decode("latin-1").strip()
            try:
                chosen[name] = kind(value)
            except ValueError:
                known = ", ".join(kind)
                raise InvalidInput(
                    f"{header.decode()} is {value[:40]!r}; it must be one of {known}."
                ) from None
    return Policies(**chosen)


def _count(named: Mapping[bytes, bytes]) -> int | None:
    given = named.get(b"x-stainless-retry-count", b"")
    # Whatever else stands there is no word of a client that counts.
    return int(given) if given.isdigit() and len(given) < 6 else None


def _check_tools(body: ChatBody) -> None:
    """Refuse tools that would be run with the server's api_key, or fetch what the client names."""
    for tool in body.tools or ():
        if tool.type not in CLIENT_SIDE:
            raise UnsupportedTool(
                f"tools: {plain(str(tool.type)[:40])!r} would be run by the upstream. "
                "Send tools of the type function, which are yours to run."
            )
    if body.web_search_options != NULL:
        raise UnsupportedTool("web_search_options: the upstream would run it. Leave it out.")


def _check_keepable(body: ChatBody) -> None:
    """Refuse by name what a conversation cannot keep."""
    if body.n is not None and body.n != 1:
        raise Unsupported("n: a conversation keeps one answer to each message. Leave it out, or ask n times.")
    if body.audio != NULL or "audio" in (body.modalities or ()):
        raise Unsupported(
            "modalities: spoken answers are not kept yet. Ask for text, or leave out the header."
        )
    if body.functions != NULL:
        raise Unsupported("functions: calls of theirs have no id to keep their results by. Send `tools`.")


def _fingerprint(path: str, conversation: str, fields: Mapping[str, msgspec.Raw]) -> bytes:
    """Of path, conversation and body, without how it is to be delivered."""
    digest = hashlib.sha256()
    said = sorted((name, bytes(value)) for name, value in fields.items() if name not in _DELIVERY)
    parts = [path.encode(), conversation.encode()]
    for name, value in said:
        parts += (name.encode(), value)
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.digest()


_DELIVERY = frozenset({"stream", "stream_options"})
