"""A request for a turn, in either API: its headers and its body, checked and decoded.

Fields for the model are passed on undecoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Set
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from turnledger.api.requests import Input, TurnBody
from turnledger.engine.history.context import Context
from turnledger.engine.limits import Limits
from turnledger.engine.turn.policies import NO_POLICIES, Policies, parse_policies
from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.ids import ConversationId
from turnledger.model.item import Item, calls_left_open
from turnledger.model.messages.messages import items_of_messages
from turnledger.model.text.plain import plain
from turnledger.model.turn import OnBusy
from turnledger.server.access.auth import Principal
from turnledger.server.access.guard import RETRY_COUNT
from turnledger.server.config.settings import Settings
from turnledger.server.requests.allowed_fields import ALLOWED_FIELDS
from turnledger.server.requests.body import FIELDS, decode_body

if TYPE_CHECKING:
    from turnledger.server.requests.conversation_names import ConversationNames

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]
Headers: TypeAlias = Mapping[bytes, bytes]


BUSY, KEY = b"x-turn-on-busy", b"idempotency-key"
EXPECT = b"x-conversation-expect"
CONVERSATION, SCOPE, KEEP = b"x-conversation-id", b"x-conversation-scope", b"x-conversation-keep"
SHOWN = b"x-context"

_POLICIES: Mapping[bytes, str] = {
    BUSY: "on_busy",
    b"x-turn-on-stop": "on_stop",
    b"x-turn-on-failure": "on_failure",
    b"x-turn-on-divergence": "on_divergence",
    b"x-turn-on-disconnect": "on_disconnect",
    b"x-conversation-messages": "messages",
}
_LABELS = {name: header.decode() for header, name in _POLICIES.items()}
_READ_HEADERS = frozenset({*_POLICIES, SHOWN, CONVERSATION, EXPECT, KEEP, SCOPE, KEY, RETRY_COUNT})

MOVE_HEADER_NAMES = frozenset({BUSY, KEY})
"""Headers of requests that move a conversation without running a turn."""
CREATE_HEADER_NAMES = frozenset({KEY})
"""Headers of requests that create a chat."""
TURN_HEADER_NAMES = frozenset(
    {BUSY, KEY, EXPECT, SHOWN, b"x-turn-on-stop", b"x-turn-on-failure", b"x-turn-on-disconnect"}
)
"""Headers of a turn whose body names its conversation and holds all new input."""
RESENT_HEADER_NAMES = frozenset({KEEP, b"x-conversation-messages", b"x-turn-on-divergence"})
"""Headers of requests that send a whole history."""


def read_headers(headers: RawHeaders, more: Set[bytes] = frozenset()) -> dict[bytes, bytes]:
    """Return the headers of interest, and `more`. Raises InvalidInput for a repeated one: its values could
    contradict each other."""
    read = _READ_HEADERS | more if more else _READ_HEADERS
    found = [each for each in headers if each[0] in read]
    values = dict(found)
    if len(values) != len(found):
        repeated = sorted({name.decode() for name, _ in found if [each for each, _ in found].count(name) > 1})
        raise InvalidInput(f"{', '.join(repeated)}: repeated. Send it once.")
    return values


def read_supported_headers(headers: RawHeaders, supported: frozenset[bytes]) -> dict[bytes, bytes]:
    """Return the headers of interest. Raises InvalidInput for one that this request would ignore."""
    values = read_headers(headers)
    if unsupported := values.keys() - supported - {RETRY_COUNT}:
        raise unsupported_headers_error(unsupported)
    return values


def unsupported_headers_error(names: Set[bytes]) -> InvalidInput:
    names_text = ", ".join(sorted(name.decode() for name in names))
    remedy = "Omit it, and use the body instead."
    if KEEP in names:
        remedy = "This request is stored. To run a turn without storing it, use /v1/chat/completions."
    return InvalidInput(f"{names_text}: not valid for this request. {remedy}")


def text_of(headers: Headers, name: bytes) -> str | None:
    """Return the text of a header: UTF-8, percent-encoded where necessary. Raises InvalidInput."""
    if name not in headers:
        return None
    text = text_in(headers[name])
    if not text:
        raise InvalidInput(f"{name.decode()} must be text, UTF-8 and percent-encoded.")
    return text


def text_in(value: bytes) -> str:
    """Return the text of a header, percent-decoded; empty if it is not UTF-8."""
    try:
        return unquote_to_bytes(value).decode().strip()
    except UnicodeDecodeError:
        return ""


def must_exist(headers: Headers) -> bool:
    expected = headers.get(EXPECT)
    if expected not in (None, b"continued"):
        raise InvalidInput('x-conversation-expect must be "continued".')
    return expected is not None


def opts_out_of_storage(headers: Headers) -> bool:
    value = headers.get(KEEP)
    if value not in (None, b"no"):
        # The server decides whether chats are stored; a request can only opt out.
        raise InvalidInput('x-conversation-keep must be "no".')
    return value is not None


def policies_of(headers: Headers) -> Policies:
    """Parse the policies. Raises InvalidInput with the known values."""
    if headers.keys().isdisjoint(_POLICIES):
        return NO_POLICIES
    given = {name: headers[header] for header, name in _POLICIES.items() if header in headers}
    return parse_policies({name: value.decode("latin-1").strip() for name, value in given.items()}, _LABELS)


class PolicyDefaults:
    """The policies of requests that choose none: the defaults of the token, the model and the server."""

    def __init__(self, settings: Settings) -> None:
        self._of_server = settings.defaults
        self._of_models = {
            name: model.defaults.over(settings.defaults)
            for name, model in settings.models.items()
            if model.defaults is not NO_POLICIES
        }

    def complete(self, given: Policies, principal: Principal, model: str = "") -> Policies:
        defaults = self._of_models.get(model, self._of_server)
        if principal.token is not None and principal.token.defaults:
            defaults = parse_policies(principal.token.defaults).over(defaults)
        return given if defaults is NO_POLICIES else given.over(defaults)


def requested_context(headers: Headers) -> Context | None:
    """Return how much of the history the model is shown, if the request says so. Raises InvalidInput."""
    if SHOWN not in headers:
        return None
    try:
        return Context.parse(headers[SHOWN].decode("latin-1").strip())
    except InvalidInput as problem:
        raise InvalidInput(f"{SHOWN.decode()}: {problem}") from None


def retry_count_of(headers: Headers) -> int | None:
    """Return how often the client has tried before, if it sends that."""
    value = headers.get(RETRY_COUNT, b"")
    return int(value) if value.isdigit() and len(value) < 6 else None


class UnsupportedParameter(InvalidInput):
    """A conversation cannot store the answer to this parameter. Omit it."""

    code = "unsupported_parameter"


class UnsupportedTool(InvalidInput):
    """The upstream would run this tool, or call others for it. Send tools of type function."""

    code = "unsupported_tool"


class ToolShape(msgspec.Struct):
    type: str | None = None


CLIENT_SIDE = frozenset({None, "function", "custom"})
"""Tools that the client runs itself."""


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


NULL = msgspec.Raw(b"null")


class ModelFields(msgspec.Struct, kw_only=True):
    n: int | None = None
    modalities: list[str] | None = None
    audio: msgspec.Raw = NULL  # a union of Raw and None would accept only null
    functions: msgspec.Raw = NULL
    tools: list[ToolShape] | None = None
    web_search_options: msgspec.Raw = NULL


class ChatBody(ModelFields):
    model: str
    messages: msgspec.Raw
    stream: bool | None = None
    stream_options: StreamOptions | None = None


_ENVELOPE_FIELDS = frozenset({"messages", "stream", "stream_options"})


class TurnTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a turn that requests of both APIs have."""

    policies: Policies = NO_POLICIES
    context: Context | None = None
    """How much of the history the model is shown; None: as the server is set."""
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
    opts_out: bool = False
    """Whether nothing of it may be stored."""

    @property
    def has_conversation(self) -> bool:
        return self.conversation is not None or self.conversation_key is not None


_chat_bodies = msgspec.json.Decoder(ChatBody)


def chat_request(
    path: str,
    headers: RawHeaders,
    body: bytes,
    names: ConversationNames | None = None,
    base_url_name: str | None = None,
) -> ChatRequest:
    """Check a chat-completions request. Raises InvalidInput or RequestRefused, with the remedy."""
    chat_body = decode_body(body, _chat_bodies)
    fields = FIELDS.decode(body)
    check_tools(chat_body)
    header_values: Headers = {}
    conversation_name = None
    other_headers: Set[bytes] = names.headers if names else frozenset()
    # Clients send the same headers with all requests, also for turns only.
    if names is None or not names.skips(headers):
        header_values = read_headers(headers, other_headers)
        conversation_name = text_of(header_values, CONVERSATION)
        if conversation_name is None and names is not None:
            conversation_name = names.find(header_values, base_url_name, fields)
    conversation, conversation_key = conversation_of(conversation_name)
    opts_out = opts_out_of_storage(header_values)
    if opts_out:
        pass  # checked later, with the operator's settings
    elif conversation is not None or conversation_key is not None:
        check_keepable(chat_body)
    elif len(header_values) > (RETRY_COUNT in header_values):
        _check_unnamed(header_values.keys() - other_headers - {RETRY_COUNT})
    settings = {name: value for name, value in fields.items() if name not in _ENVELOPE_FIELDS}
    fingerprint = b""
    if KEY in header_values:  # the ledger itself compares the conversations, by id or key
        fingerprint = fingerprint_of(path, "", fields)
    elif conversation_name is not None:
        fingerprint = digest_of(path, conversation_name, body)
    return ChatRequest(
        model=chat_body.model,
        messages=chat_body.messages,
        stream=bool(chat_body.stream),
        stream_options=fields.get("stream_options"),
        include_usage=bool(chat_body.stream_options and chat_body.stream_options.include_usage),
        settings=settings,
        conversation=conversation,
        conversation_key=conversation_key,
        scope=text_of(header_values, SCOPE),
        must_exist=must_exist(header_values),
        opts_out=opts_out,
        policies=policies_of(header_values),
        context=requested_context(header_values),
        idempotency_key=text_of(header_values, KEY),
        retry=retry_count_of(header_values),
        fingerprint=fingerprint,
    )


def _check_unnamed(headers: Set[bytes]) -> None:
    """Raise InvalidInput if a request without a conversation has headers that need one."""
    if headers:
        names = ", ".join(sorted(name.decode() for name in headers))
        raise InvalidInput(f"{names}: requires X-Conversation-Id. Without it, nothing is stored.")


def conversation_of(name: str | None) -> tuple[str | None, str | None]:
    """Return the id and the conversation_key; a name is one of them, and the other is None."""
    if name is None:
        return None, None
    return (name, None) if name.startswith(ConversationId.prefix) else (None, name)


def check_tools(body: ModelFields) -> None:
    """Reject tools that would run with the server's api_key, or fetch what the client names."""
    for tool in body.tools or ():
        if tool.type not in CLIENT_SIDE:
            raise UnsupportedTool(
                f"tools: {plain(str(tool.type)[:40])!r} would be run by the upstream. "
                "Send tools of type function, which the client runs.",
                param="tools",
            )
    if body.web_search_options != NULL:
        raise UnsupportedTool(
            "web_search_options: the upstream would run the search. Omit it.", param="web_search_options"
        )


def check_keepable(body: ModelFields) -> None:
    """Reject, by name, options whose answers a conversation cannot keep."""
    if body.n is not None and body.n != 1:
        raise UnsupportedParameter(
            "n: a conversation stores one answer per message. Omit it, or send n requests.", param="n"
        )
    if body.audio != NULL or "audio" in (body.modalities or ()):
        raise UnsupportedParameter(
            "modalities: audio answers are not stored yet. Request text, or omit X-Conversation-Id.",
            param="modalities",
        )
    if body.functions != NULL:
        raise UnsupportedParameter(
            "functions: their calls have no ids to store results by. Send `tools`.", param="functions"
        )


def digest_of(path: str, conversation: str, body: bytes) -> bytes:
    """Return the digest by which a retry without a key is recognized: clients send the same bytes again."""
    place = path.encode(), conversation.encode()
    digest = hashlib.sha256(b"%d %d %b%b" % (len(place[0]), len(place[1]), *place))
    digest.update(body)
    return digest.digest()


def fingerprint_of(path: str, conversation: str, fields: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the digest of path, conversation and body, without options of delivery."""
    digest = hashlib.sha256()
    # Views: a body may be long, and is refused after this.
    parts = [memoryview(path.encode()), memoryview(conversation.encode())]
    for name in sorted(fields.keys() - _DELIVERY):
        parts += (memoryview(name.encode()), memoryview(fields[name]))
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()


_DELIVERY = frozenset({"stream", "stream_options"})


RECORDED_FIELDS = ALLOWED_FIELDS | {"metadata"}
"""Fields for the model that are recorded with a turn. Others may be keys of an upstream."""
TOP_LEVEL_FIELDS = frozenset({"model", "messages", "stream"})
"""Fields of the body that must not be repeated in `settings`."""
_UNCOMPARED_FIELDS = frozenset({"chat", "conversation_key", "scope", "background"})
"""Not in the fingerprint: the ledger itself compares conversations, by id or key, and a turn is the same
however its answer is read."""


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
    def replaces_turn(self) -> bool:
        """Whether it edits or regenerates a turn."""
        return _replaces_turn(self.body)


_turn_bodies = msgspec.json.Decoder(TurnBody)
_model_settings = msgspec.json.Decoder(ModelFields)


def turn_request(
    path: str, headers: RawHeaders, raw: bytes, max_items: int = Limits.input_items
) -> TurnRequest:
    """Check a request at /api/turns, with at most `max_items` items in its primer. Raises InvalidInput or
    RequestRefused, with the remedy."""
    header_values = read_supported_headers(headers, TURN_HEADER_NAMES)
    body = decode_body(raw, _turn_bodies)
    if body.chat is None and body.conversation_key is None and (_replaces_turn(body) or body.after):
        raise InvalidInput("replaces, regenerates and after need `chat`, the chat of the turn.")
    if body.chat is not None and body.scope:
        raise InvalidInput("scope: a chat named by its id has its own scope. Omit it.", param="scope")
    settings = _settings(body)
    policies = policies_of(header_values)
    if body.background:
        _check_background(body, policies, settings)
    stream_options = settings.pop("stream_options", None)
    fields = {name: value for name, value in FIELDS.decode(raw).items() if name not in _UNCOMPARED_FIELDS}
    key = text_of(header_values, KEY)
    return TurnRequest(
        body=body,
        settings={**settings, "model": body.model},
        stream_options=stream_options,
        must_exist=must_exist(header_values),
        policies=policies,
        context=requested_context(header_values),
        idempotency_key=key,
        fingerprint=fingerprint_of(path, "", fields) if key is not None else b"",
        primer=primer_of(body.primer, max_items) if body.primer else (),
    )


def primer_of(primer: Input, max_items: int) -> tuple[Item, ...]:
    """Return the client's own history as items; it may be chat messages with tool calls, items, or texts of
    the user. Raises MalformedItems."""
    items: list[Item] = []
    limits = Limits(input_items=max_items)
    limits.check_count("The primer", primer)
    limits.check_messages("The primer", [entry for entry in primer if isinstance(entry, dict)])
    try:
        for are_messages, run in groupby([primer] if isinstance(primer, str) else primer, _is_chat_message):
            entries: list[Any] = list(run)
            items += (
                items_of_messages(entries, calls_left_open(items)) if are_messages else map(Item.of, entries)
            )
    except MalformedItems as problem:
        raise MalformedItems(f"primer: {problem}", param="primer") from None
    return tuple(items)


def _is_chat_message(entry: str | dict[str, Any]) -> bool:
    return isinstance(entry, dict) and "role" in entry and "type" not in entry


def _check_background(body: TurnBody, policies: Policies, settings: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an option that does not apply to a turn which outlives its request."""
    if body.stream:
        raise InvalidInput("background excludes stream. Follow the turn at /api/turns/{id}/events.")
    if _replaces_turn(body) or body.after is not None:
        raise InvalidInput("background excludes replaces, regenerates and after. Omit it, or those.")
    if policies.on_busy not in (None, OnBusy.QUEUE) or policies.on_disconnect is not None:
        raise InvalidInput(
            "background turns wait, and have no client. Omit X-Turn-On-Busy and -On-Disconnect."
        )
    if unrecorded := settings.keys() - RECORDED_FIELDS:
        names = plain(", ".join(sorted(unrecorded))[:80])
        raise InvalidInput(f"background: {names} would not be stored with the turn. Omit it from `settings`.")


def _replaces_turn(body: TurnBody) -> bool:
    return body.replaces is not None or body.regenerates not in (None, False)


def _settings(body: TurnBody) -> dict[str, msgspec.Raw]:
    raw = bytes(body.settings)
    if body.settings == NULL:
        return {}
    fields = decode_body(raw, _model_settings, "settings")
    check_tools(fields)
    check_keepable(fields)
    settings = decode_body(raw, FIELDS, "settings")
    if stray := TOP_LEVEL_FIELDS & settings.keys():
        names = ", ".join(sorted(stray))
        raise InvalidInput(f"`{names}` does not belong in `settings`. Send it at the top level.")
    return settings
