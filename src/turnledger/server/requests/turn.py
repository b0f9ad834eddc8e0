"""A request for a turn, in either API: its headers and its body, checked and decoded.

Fields for the model are passed on undecoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Set
from enum import StrEnum
from itertools import groupby
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from turnledger.api.requests import Said, TurnBody
from turnledger.engine.limits import Limits
from turnledger.engine.resend.match import Sent
from turnledger.engine.turn.resend import OnDivergence
from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.ids import ConversationId
from turnledger.model.item import Item
from turnledger.model.messages.calls import calls_left_open
from turnledger.model.messages.messages import items_of_messages
from turnledger.model.text.plain import plain
from turnledger.model.turn import OnBusy, OnFailure, OnStop
from turnledger.server.requests.body import decode_body

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]
Named: TypeAlias = Mapping[bytes, bytes]


class OnDisconnect(StrEnum):
    """What to do with a turn whose client disconnects."""

    CONTINUE = "continue"  # it goes on, and can be read later
    KEEP = "keep"  # stop it, and keep it as an interrupted turn
    DISCARD = "discard"  # stop and discard it


class Policies(msgspec.Struct, frozen=True):
    """Policies from the headers; None where a header is missing."""

    on_busy: OnBusy | None = None
    on_stop: OnStop | None = None
    on_failure: OnFailure | None = None
    on_divergence: OnDivergence | None = None
    on_disconnect: OnDisconnect | None = None
    sent: Sent | None = None


NO_POLICIES = Policies()
BUSY, KEY = b"x-turn-on-busy", b"idempotency-key"
EXPECT, COUNT = b"x-conversation-expect", b"x-stainless-retry-count"
CONVERSATION, SCOPE, KEEP = b"x-conversation-id", b"x-conversation-scope", b"x-conversation-keep"

_POLICIES: Mapping[bytes, tuple[str, type[StrEnum]]] = {
    BUSY: ("on_busy", OnBusy),
    b"x-turn-on-stop": ("on_stop", OnStop),
    b"x-turn-on-failure": ("on_failure", OnFailure),
    b"x-turn-on-divergence": ("on_divergence", OnDivergence),
    b"x-turn-on-disconnect": ("on_disconnect", OnDisconnect),
    b"x-conversation-messages": ("sent", Sent),
}
_LOOKED_AT = frozenset({*_POLICIES, CONVERSATION, EXPECT, KEEP, SCOPE, KEY, COUNT})

OF_MOVES = frozenset({BUSY, KEY})
"""Headers of requests that move a conversation without running a turn."""
OF_MAKING = frozenset({KEY})
"""Headers of requests that create a chat."""
OF_TURNS = frozenset({BUSY, KEY, EXPECT, b"x-turn-on-stop", b"x-turn-on-failure", b"x-turn-on-disconnect"})
"""Headers of a turn whose body names its conversation and holds all new input."""


def named_in(headers: RawHeaders) -> dict[bytes, bytes]:
    """Return the headers of interest. Raises InvalidInput for a repeated one: its values could contradict
    each other."""
    found = [each for each in headers if each[0] in _LOOKED_AT]
    named = dict(found)
    if len(named) != len(found):
        twice = sorted({name.decode() for name, _ in found if [each for each, _ in found].count(name) > 1})
        raise InvalidInput(f"{', '.join(twice)}: given more than once. Send it once.")
    return named


def named_among(headers: RawHeaders, taken: frozenset[bytes]) -> dict[bytes, bytes]:
    """Return the headers of interest. Raises InvalidInput for one that this request would ignore."""
    named = named_in(headers)
    if others := named.keys() - taken - {COUNT}:
        raise not_for_this(others)
    return named


def not_for_this(names: Set[bytes]) -> InvalidInput:
    listed = ", ".join(sorted(name.decode() for name in names))
    remedy = "Leave it out; what it can say is in its body."
    if KEEP in names:
        remedy = "What is asked for here is kept. For a turn that is not, ask at /v1/chat/completions."
    return InvalidInput(f"{listed}: not valid for this request. {remedy}")


def words_of(named: Named) -> str:
    """Name the headers that a person has set."""
    return ", ".join(sorted(name.decode() for name in named if name != COUNT))


def text_of(named: Named, name: bytes) -> str | None:
    """Return the text of a header: UTF-8, percent-encoded where necessary. Raises InvalidInput."""
    if name not in named:
        return None
    try:
        text = unquote_to_bytes(named[name]).decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise InvalidInput(f"{name.decode()} must be text, UTF-8 and percent-encoded.")
    return text


def must_exist(named: Named) -> bool:
    expected = named.get(EXPECT)
    if expected not in (None, b"continued"):
        raise InvalidInput("x-conversation-expect has one value: continued.")
    return expected is not None


def asks_not_to_keep(named: Named) -> bool:
    given = named.get(KEEP)
    if given not in (None, b"no"):
        # The server decides whether chats are stored; a request can only opt out.
        raise InvalidInput("x-conversation-keep has one value: no.")
    return given is not None


def policies_of(named: Named) -> Policies:
    """Parse the policies. Raises InvalidInput with the known values."""
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


def count_of(named: Named) -> int | None:
    """Return how often the client has tried before, if it sends that."""
    given = named.get(COUNT, b"")
    return int(given) if given.isdigit() and len(given) < 6 else None


class Unsupported(InvalidInput):
    """A conversation cannot keep what this asks for."""

    code = "unsupported_parameter"


class UnsupportedTool(InvalidInput):
    """The upstream would run this tool, or call others for it."""

    code = "unsupported_tool"


class ToolShape(msgspec.Struct):
    type: str | None = None


CLIENT_SIDE = frozenset({None, "function", "custom"})
"""Tools that the client runs itself."""


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


NULL = msgspec.Raw(b"null")


class AskedOfModel(msgspec.Struct, kw_only=True):
    n: int | None = None
    modalities: list[str] | None = None
    audio: msgspec.Raw = NULL  # a union of Raw and None would accept only null
    functions: msgspec.Raw = NULL
    tools: list[ToolShape] | None = None
    web_search_options: msgspec.Raw = NULL


class ChatBody(AskedOfModel):
    model: str
    messages: msgspec.Raw
    stream: bool | None = None
    stream_options: StreamOptions | None = None


_PASSED_BY = frozenset({"messages", "stream", "stream_options"})


class TurnTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a turn that requests of both APIs have."""

    policies: Policies = NO_POLICIES
    must_exist: bool = False
    idempotency_key: str | None = None
    retry: int | None = None
    """How often the client has tried before, if it sends that. At /api/turns it sends an idempotency_key."""
    fingerprint: bytes = b""
    """Equal when the same request is sent again."""


class ChatRequest(TurnTerms, frozen=True, kw_only=True):
    """A chat-completions request, checked."""

    model: str
    messages: msgspec.Raw
    stream: bool
    stream_options: msgspec.Raw | None
    include_usage: bool
    settings: Mapping[str, msgspec.Raw]
    """All other fields, undecoded."""
    conversation: str | None = None
    conversation_key: str | None = None
    scope: str | None = None
    says_no: bool = False
    """Whether nothing of it may be stored."""

    @property
    def has_conversation(self) -> bool:
        return self.conversation is not None or self.conversation_key is not None


_chat_bodies = msgspec.json.Decoder(ChatBody)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def chat_request(path: str, headers: RawHeaders, body: bytes) -> ChatRequest:
    """Check a chat-completions request. Raises InvalidInput or Refused, with the remedy."""
    known = decode_body(body, _chat_bodies)
    fields = _fields.decode(body)
    check_tools(known)
    named = named_in(headers)
    given = text_of(named, CONVERSATION)
    conversation, conversation_key = _conversation(given)
    says_no = asks_not_to_keep(named)
    if says_no:
        pass  # checked later, with the operator's settings
    elif conversation is not None or conversation_key is not None:
        check_keepable(known)
    elif len(named) > (COUNT in named):
        raise InvalidInput(f"{words_of(named)}: requires X-Conversation-Id. Without it, nothing is stored.")
    settings = {name: value for name, value in fields.items() if name not in _PASSED_BY}
    retry, has_key = count_of(named), KEY in named
    # With a key, the ledger itself compares the conversations, by id or key.
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
    """Reject tools that would run with the server's api_key, or fetch what the client names."""
    for tool in body.tools or ():
        if tool.type not in CLIENT_SIDE:
            raise UnsupportedTool(
                f"tools: {plain(str(tool.type)[:40])!r} would be run by the upstream. "
                "Send tools of the type function, which are yours to run."
            )
    if body.web_search_options != NULL:
        raise UnsupportedTool("web_search_options: the upstream would run it. Leave it out.")


def check_keepable(body: AskedOfModel) -> None:
    """Reject, by name, options whose answers a conversation cannot keep."""
    if body.n is not None and body.n != 1:
        raise Unsupported("n: a conversation keeps one answer to each message. Leave it out, or ask n times.")
    if body.audio != NULL or "audio" in (body.modalities or ()):
        raise Unsupported(
            "modalities: spoken answers are not kept yet. Ask for text, or leave out the header."
        )
    if body.functions != NULL:
        raise Unsupported("functions: calls of theirs have no id to keep their results by. Send `tools`.")


def fingerprint_of(path: str, conversation: str, fields: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the digest of path, conversation and body, without options of delivery."""
    digest = hashlib.sha256()
    hashed = sorted((name, bytes(value)) for name, value in fields.items() if name not in _DELIVERY)
    parts = [path.encode(), conversation.encode()]
    for name, value in hashed:
        parts += (name.encode(), value)
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.digest()


_DELIVERY = frozenset({"stream", "stream_options"})


OF_THEIR_OWN = frozenset({"model", "messages", "stream"})
"""Fields of the body that must not be repeated in `settings`."""
_PLACE = frozenset({"chat", "conversation_key", "scope"})
"""Not in the fingerprint: the ledger itself compares conversations, by id or key."""


class TurnRequest(TurnTerms, frozen=True, kw_only=True):
    """A request at /api/turns, checked."""

    body: TurnBody
    settings: Mapping[str, Any]
    """Fields for the model, besides the messages."""
    stream_options: msgspec.Raw | None
    primer: tuple[Item, ...] = ()
    """Shown to the model before the history, in this turn only."""

    @property
    def stream(self) -> bool:
        return bool(self.body.stream)

    @property
    def takes_a_place(self) -> bool:
        """Whether it edits or regenerates a turn."""
        return _takes_a_place(self.body)


_turn_bodies = msgspec.json.Decoder(TurnBody)
_model_settings = msgspec.json.Decoder(AskedOfModel)


def turn_request(
    path: str, headers: RawHeaders, raw: bytes, most_items: int = Limits.input_items
) -> TurnRequest:
    """Check a request at /api/turns, with at most `most_items` items in its primer. Raises InvalidInput or
    Refused, with the remedy."""
    named = named_among(headers, OF_TURNS)
    body = decode_body(raw, _turn_bodies)
    if body.chat is None and body.conversation_key is None and _takes_a_place(body):
        raise InvalidInput("replaces and regenerates need `chat`, the chat of the turn.")
    if body.chat is not None and body.scope:
        raise InvalidInput("scope: a chat named by its id has its own scope. Omit it.")
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


def primer_of(given: Said, most: int) -> tuple[Item, ...]:
    """Return the client's own history as items; it may be chat messages with tool calls, items, or texts of
    the user. Raises MalformedItems."""
    items: list[Item] = []
    limits = Limits(input_items=most)
    limits.check_count("What primes the turn", given)
    limits.check_messages("What primes the turn", [like for like in given if isinstance(like, dict)])
    try:
        for are_messages, run in groupby([given] if isinstance(given, str) else given, _is_chat_message):
            likes: list[Any] = list(run)
            items += items_of_messages(likes, calls_left_open(items)) if are_messages else map(Item.of, likes)
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
    looked_at = decode_body(raw, _model_settings, "settings")
    check_tools(looked_at)
    check_keepable(looked_at)
    settings = decode_body(raw, _fields, "settings")
    if stray := OF_THEIR_OWN & settings.keys():
        names = ", ".join(sorted(stray))
        raise InvalidInput(f"`{names}` does not belong in `settings`. Send it at the top level.")
    return settings
