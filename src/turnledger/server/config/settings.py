"""The settings of a server, and the syntax of hosts and origins."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

import msgspec

from turnledger.engine.limits import Limits
from turnledger.engine.turn.policies import NO_POLICIES, Policies
from turnledger.model.conversation import LONGEST
from turnledger.model.reset_policy import policy_of
from turnledger.model.retention import Lifetime, Lifetimes

DEMO = "demo"
"""The model when the settings have none."""
ENGINE = Limits()

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=7 * 24 * 3600)]
Patience = Annotated[float, msgspec.Meta(gt=0, le=7 * 24 * 3600)]
StallWait = Annotated[float, msgspec.Meta(ge=5, le=7 * 24 * 3600)]  # the loop reports every second
LongTime = Annotated[float, msgspec.Meta(ge=0, le=100 * 366 * 24 * 3600)]
Expiry = Annotated[float, msgspec.Meta(gt=0, le=LONGEST)]
MIN_WORKER_BYTES = 256 * 1024 * 1024
"""Less memory would not hold the caches."""
WorkerBytes = Annotated[int, msgspec.Meta(ge=MIN_WORKER_BYTES)]
Workers = Annotated[int, msgspec.Meta(ge=1, le=256)]
LengthField = Literal["max_tokens", "max_completion_tokens"]
LENGTH_FIELDS = get_args(LengthField)
FormPath = Literal["images/edits", "images/variations", "audio/transcriptions", "audio/translations"]
FORM_PATHS: tuple[str, ...] = get_args(FormPath)
"""Paths that take forms, with files."""
PassedPath = Literal[
    FormPath, "completions", "embeddings", "moderations", "images/generations", "audio/speech", "rerank"
]
PASSED_PATHS: tuple[str, ...] = get_args(PassedPath)
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
BASE_URL = "base_url"
NAMING_FIELDS = ("metadata.conversation_id", "user", "prompt_cache_key")
"""Fields of a body that may name its conversation."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for clients. Times are in seconds."""

    body_bytes: Count = 32 * 1024 * 1024
    body_wait: Seconds = 30.0
    send_wait: Seconds = 30.0
    """Time for a client to accept the end of a response, or any of it, before it is disconnected."""
    head_wait: Seconds = 30.0
    idle_wait: Seconds = 75.0
    """Time that a connection may be idle. Longer than clients keep theirs, so that clients close it, and
    never the server while a request arrives."""
    requests: Count = 10_000
    """Requests open at once, streams included. This and the following, except the queue, count all workers of
    the server together."""
    turns: Count = 5_000
    """Turns open at once, running or waiting."""
    waiting: Count = 2_500
    """Turns that have not begun: they wait for their lane or for their body."""
    streams: Count = 5_000
    owner_turns: Count | None = 1_000
    """Turns that one owner may have open. Limits per owner do not apply to requests without a token."""
    owner_waiting: Count | None = 500
    owner_streams: Count | None = 1_000
    owner_requests: Count | None = 1_000
    """Other requests that one owner may have open, neither turns nor event streams: their bodies may be slow,
    too."""
    imports: Count = 32
    """Imports at once: each holds a chat in memory, up to 64 MiB and more."""
    owner_imports: Count | None = 4
    owner_turns_per_minute: Count | None = None
    """Turns of one owner within a minute. None: no limit."""
    exchanges_per_minute: Count = 600
    """Visitors through share links within a minute, for all links together; and as many attempts with invalid
    codes."""
    owner_bytes: Count | None = None
    """Bytes that one owner may store: turns, chats and failed attempts. This, `owner_turns`,
    `owner_turns_per_minute` and `owner_chats` also apply to all visitors of a link together, unless the link
    has limits of its own. None: no limit."""
    owner_chats: Count | None = None
    """Chats that one owner may have. None: no limit."""
    narrowed_max_tokens: Count = 32_768
    """Tokens that a visitor, or the bearer of a narrowed token, may request for one answer, unless the link
    or the token has a bound of its own."""
    input_items: Count = ENGINE.input_items
    turn_bytes: Count = ENGINE.turn_bytes
    queue_length: Count = ENGINE.queue_length
    """Turns that may wait for one conversation."""
    queue_wait: Seconds = ENGINE.queue_wait
    """Time that a turn may wait for its lane."""
    background_turns: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 4
    """Background turns that each worker runs at once; 0: none are accepted or run."""
    cached_bytes: Count = ENGINE.cached_bytes + ENGINE.page_bytes
    """Bytes of histories and of the database that each worker caches."""
    worker_bytes: WorkerBytes | None = None
    """Memory that a worker may use before it is replaced; a server of one process shuts down, to be
    restarted. None: three quarters of the machine's memory, divided among the workers."""
    stall_wait: StallWait = 60.0
    """Time that a worker's event loop may stall before the worker is killed and replaced; a server of one
    process exits, to be restarted."""


class ModelTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of an upstream by phase, in seconds."""

    connect: Patience = 10.0
    """To establish a connection."""
    first_byte: Patience = 600.0
    """From the request to the first byte of the response; to its end, if it is not streamed."""
    between_chunks: Patience = 120.0
    """Between two parts of the response."""
    total: Patience | None = None
    """For the whole response. None: no limit."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model and its upstream."""

    upstream: str
    """The URL of the API, without `/chat/completions`."""
    model: str | None = None
    """Its name at the upstream; None: the same."""
    api_key_env: str | None = None
    timeouts: ModelTimeouts | None = None
    """None: those of the server."""
    finish_reasons: tuple[str, ...] = ()
    """Further values of `finish_reason` that mark a complete answer."""
    reuse: bool = True
    """Whether to reuse connections. false: for upstreams that send responses without a request, which another
    request could receive."""
    proxy: bool | str = True
    """The URL of the HTTP proxy; false: none; true: from the environment."""
    length_field: LengthField | None = None
    """The field in which the upstream takes a token's bound on the answer length. None: the field that the
    request has, or else the usual one for the name of the model."""
    context_tokens: Count | None = None
    """The context of the model: its history is shown as far as it fits. None: that of the server."""
    answer_tokens: Count | None = None
    """Tokens of the context that are left for an answer whose request states no length. None: a quarter."""
    defaults: Policies = NO_POLICIES
    """Policies of its turns, unless the request or its token chooses."""


class ScopeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for the chats of one scope; None: as in [chats]."""

    keep: bool | None = None
    expires_after: Expiry | None = None
    reset: str | None = None

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime(expires_after=self.expires_after, reset=policy_of(self.reset))


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `[chats]` table of the file, with the same names."""

    keep: bool = True
    """Whether chats are stored. A request can only opt out."""
    expires_after: Expiry | None = None
    """Seconds without interaction after which new chats expire, unless their creator chooses. None: never."""
    reset: str | None = None
    """The reset policy of new chats with a conversation_key, see ResetPolicy.parse. None: never."""
    restore_for: LongTime = ENGINE.restore_time
    """Seconds for which a deleted chat can be restored."""
    retain_for: LongTime | None = None
    """Seconds after which an unused chat is removed, unless it is pinned. None: never."""
    retain_bytes: Count | None = None
    """Bytes that the chats of one owner may take before the oldest are purged. None: no limit."""
    retain_side_branches_for: LongTime = ENGINE.side_branches_kept
    """Seconds for which a side branch is kept after its last use, at least a day."""
    clock_tolerance: LongTime = ENGINE.clock_tolerance
    """Seconds by which the wall clock may differ from the machine's monotonic clock; beyond that nothing is
    purged, expires, is reset or is unclaimed."""
    clock_agreement: LongTime = ENGINE.clock_agreement
    """Seconds for which the clocks must then agree before this resumes."""
    title_model: str | None = None
    """The model that writes titles. None: for chats of `/api/turns` the one that answers, unless it is the
    demo model or runs in the background. Empty: none, the first words are the title."""
    named_by: tuple[str, ...] = ()
    """Where requests to `/v1/chat/completions` may name their conversation, besides X-Conversation-Id, the
    first one first: headers, `base_url` (`/c/NAME/v1`), and NAMING_FIELDS."""
    skip_when_header: tuple[str, ...] = ()
    """Headers of requests that are passed through although they name a conversation, maybe with a pattern
    for the value (`X-Task: title*`). An empty header does not count."""
    scopes: dict[str, ScopeSettings] = {}

    @property
    def lifetimes(self) -> Lifetimes:
        """Raises InvalidInput for an unknown reset policy."""
        scopes = {name: scope.lifetime for name, scope in self.scopes.items()}
        return Lifetimes(expires_after=self.expires_after, reset=policy_of(self.reset), scopes=scopes)

    @property
    def limits(self) -> dict[str, Any]:
        """Fields of the ledger's Limits: those that hold for every process of its store."""
        return {
            "lifetimes": self.lifetimes,
            "restore_time": self.restore_for,
            "side_branches_kept": self.retain_side_branches_for,
            "clock_tolerance": self.clock_tolerance,
            "clock_agreement": self.clock_agreement,
        }


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a server; `[server]` in the file has the same names."""

    host: str = "127.0.0.1"
    port: Port = 8383
    """0: any free port."""
    workers: Workers = 1
    store: str = ""
    """The URL of the store; empty: a file in the user's data folder."""
    hosts: tuple[str, ...] = ()
    """Host names of the server, besides those of loopback."""
    origins: tuple[str, ...] = ()
    """Origins of other web pages that may call the server: scheme, host and port."""
    frame_ancestors: tuple[str, ...] = ()
    """Origins of web pages that may show the server's pages in a frame: scheme, host and port."""
    passed_fields: tuple[str, ...] = ()
    """Further fields that requests with narrowed tokens may pass on to upstreams."""
    passed_paths: tuple[PassedPath, ...] = ()
    """Further paths below `/v1` that are passed through to the upstream of their model."""
    credential_header: str | None = None
    """The header in which a client may send its own credential for the upstream, in place of the api_key."""
    insecure: bool = False
    """Serve without tokens beyond loopback, and behind a proxy."""
    grace: Seconds = 20.0
    """Time for running turns after the shutdown has begun."""
    log_format: Literal["console", "json"] | None = None
    """None: console on a terminal, json elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    audit_log: str | None = None
    """A file for one JSON line per request."""
    limits: ServerLimits = ServerLimits()
    timeouts: ModelTimeouts = ModelTimeouts()
    defaults: Policies = NO_POLICIES
    """Policies of turns, unless the request, its token or its model chooses."""
    upstream: str | None = None
    """The upstream of all models that `models` does not list."""
    api_key_env: str | None = None
    finish_reasons: tuple[str, ...] = ()
    """Further values of `finish_reason` that mark a complete answer of `upstream`."""
    reuse: bool = True
    proxy: bool | str = True
    """The URL of the HTTP proxy to `upstream`; false: none; true: from the environment."""
    length_field: LengthField | None = None
    context_tokens: Count | None = None
    """The context of the models whose table has none. None: all of a history is shown."""
    answer_tokens: Count | None = None
    models: dict[str, ModelSettings] = {}
    chats: ChatSettings = ChatSettings()


HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
"""A Host header in lower case: the name, and maybe a port."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


def is_host_name(text: str) -> bool:
    """Return whether this is a valid Host header without a port."""
    found = HOST.fullmatch(text.lower())
    return found is not None and found[2] is None


_HEADER = re.compile(r"[a-z][a-z0-9-]{0,63}")
_TAKEN = re.compile(
    r"x-(conversation|turn|context|stainless|forwarded|request)-.*|.*-encoding|content-.*|sec-.*|access-.*|.*cookie"
    r"|(proxy-)?authorization|host|origin|connection|accept|user-agent|idempotency-key|if-.*|via|forwarded"
    r"|x-context|last-event-id|keep-alive|upgrade"
)


def is_free_header(name: str) -> bool:
    """Return whether a setting may give this header a meaning: it has none yet, here or in HTTP."""
    return bool(_HEADER.fullmatch(name.lower())) and not _TAKEN.fullmatch(name.lower())


def is_name_source(text: str) -> bool:
    """Return whether requests can name their conversation there. Headers need a hyphen, so that a misspelt
    field is not taken for one."""
    return text == BASE_URL or text in NAMING_FIELDS or ("-" in text and is_free_header(text))


def split_skip_rule(rule: str) -> tuple[str, str]:
    """Return the header of a rule, and the pattern of its values. Raises ValueError."""
    header, colon, pattern = (part.strip() for part in rule.partition(":"))
    if not _HEADER.fullmatch(header.lower()) or (colon and not pattern):
        raise ValueError
    return header, pattern or "?*"


def is_origin(text: str) -> bool:
    """Return whether this is a valid Origin header: scheme, host, and the port unless it is the default."""
    return _ORIGIN.fullmatch(text) is not None
