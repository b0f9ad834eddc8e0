"""What a chat-completions request asks for: its headers and its body, checked and taken apart.

The body is decoded no further than it is looked at: what is passed on to a model goes as it came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from turnledger.errors import InvalidInput
from turnledger.model.ids import ConversationId
from turnledger.model.text.plain import plain
from turnledger.server.requests.body import decode_body
from turnledger.server.requests.headers import (
    CONVERSATION,
    COUNT,
    KEY,
    NO_POLICIES,
    SCOPE,
    Policies,
    RawHeaders,
    asks_not_to_keep,
    count_of,
    must_exist,
    named_in,
    policies_of,
    text_of,
    words_of,
)


class Unsupported(InvalidInput):
    """A conversation cannot keep what this asks for."""

    code = "unsupported_parameter"


class UnsupportedTool(InvalidInput):
    """The client would have the upstream call somebody else for it."""

    code = "unsupported_tool"


class ToolShape(msgspec.Struct):
    """What is looked at of a tool."""

    type: str | None = None


CLIENT_SIDE = frozenset({None, "function", "custom"})
"""The tools that are the client's own to run."""


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


NULL = msgspec.Raw(b"null")


class AskedOfModel(msgspec.Struct, kw_only=True):
    """What is looked at of the fields that are passed on to a model."""

    n: int | None = None
    modalities: list[str] | None = None
    audio: msgspec.Raw = NULL  # a union of Raw with None would take nothing but null
    functions: msgspec.Raw = NULL
    tools: list[ToolShape] | None = None
    web_search_options: msgspec.Raw = NULL


class ChatBody(AskedOfModel):
    """The fields of the body that are looked at."""

    model: str
    messages: msgspec.Raw
    stream: bool | None = None
    stream_options: StreamOptions | None = None


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
    check_tools(known)
    named = named_in(headers)
    given = text_of(named, CONVERSATION)
    conversation, conversation_key = _conversation(given)
    says_no = asks_not_to_keep(named)
    if says_no:
        pass  # what that leaves it, is said where it is known who else says no
    elif conversation is not None or conversation_key is not None:
        check_keepable(known)
    elif len(named) > (COUNT in named):
        raise InvalidInput(f"{words_of(named)}: these need X-Conversation-Id. Without it, nothing is kept.")
    settings = {name: value for name, value in fields.items() if name not in _PASSED_BY}
    retry, has_key = count_of(named), KEY in named
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
        scope=text_of(named, SCOPE),
        must_exist=must_exist(named),
        says_no=says_no,
        policies=policies_of(named),
        idempotency_key=text_of(named, KEY),
        retry=retry,
        fingerprint=fingerprint_of(path, place, fields) if has_key or retry is not None else b"",
    )


def _conversation(given: str | None) -> tuple[str | None, str | None]:
    if given is None:
        return None, None
    return (given, None) if given.startswith(ConversationId.prefix) else (None, given)


def check_tools(body: AskedOfModel) -> None:
    """Refuse tools that would be run with the server's api_key, or fetch what the client names."""
    for tool in body.tools or ():
        if tool.type not in CLIENT_SIDE:
            raise UnsupportedTool(
                f"tools: {plain(str(tool.type)[:40])!r} would be run by the upstream. "
                "Send tools of the type function, which are yours to run."
            )
    if body.web_search_options != NULL:
        raise UnsupportedTool("web_search_options: the upstream would run it. Leave it out.")


def check_keepable(body: AskedOfModel) -> None:
    """Refuse by name what a conversation cannot keep."""
    if body.n is not None and body.n != 1:
        raise Unsupported("n: a conversation keeps one answer to each message. Leave it out, or ask n times.")
    if body.audio != NULL or "audio" in (body.modalities or ()):
        raise Unsupported(
            "modalities: spoken answers are not kept yet. Ask for text, or leave out the header."
        )
    if body.functions != NULL:
        raise Unsupported("functions: calls of theirs have no id to keep their results by. Send `tools`.")


def fingerprint_of(path: str, conversation: str, fields: Mapping[str, msgspec.Raw]) -> bytes:
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
