"""The settings of a server, and the names that may stand in Host and Origin."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from turnledger.engine.limits import Limits

DEMO = "demo"
"""The model that there is where no other is named."""
ENGINE = Limits()

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=7 * 24 * 3600)]
Patience = Annotated[float, msgspec.Meta(gt=0, le=7 * 24 * 3600)]
StallWait = Annotated[float, msgspec.Meta(ge=5, le=7 * 24 * 3600)]  # signs of life come each second
LongTime = Annotated[float, msgspec.Meta(ge=0, le=100 * 366 * 24 * 3600)]
MIN_WORKER_BYTES = 256 * 1024 * 1024
"""Less memory would not hold the caches."""
WorkerBytes = Annotated[int, msgspec.Meta(ge=MIN_WORKER_BYTES)]
Workers = Annotated[int, msgspec.Meta(ge=1, le=256)]
LengthField = Literal["max_tokens", "max_completion_tokens"]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what clients may ask. Times are in seconds."""

    body_bytes: Count = 32 * 1024 * 1024
    """Bytes of the body of one request."""
    body_wait: Seconds = 30.0
    """How long a body may take to arrive."""
    send_wait: Seconds = 30.0
    """How long a client may take for the end of an answer, or take nothing of one, before it is cut off."""
    head_wait: Seconds = 30.0
    """How long the headers of a request may take to arrive."""
    idle_wait: Seconds = 75.0
    """How long a connection may be open without a request; longer than clients keep theirs, so that it is
    they who close it, and none is closed while a request is on its way."""
    requests: Count = 10_000
    """Requests that may be open at once, streams included. This and all below but the queue: in all workers
    of the server together."""
    turns: Count = 5_000
    """Turns that may be open at once: those that run, and those that wait."""
    waiting: Count = 2_500
    """Turns that were asked for and have not begun: they wait for others, or their body is on its way."""
    streams: Count = 5_000
    """Event streams that may be read at once."""
    owner_turns: Count | None = 1_000
    """Turns that one owner may have open. Those of an owner are not for requests without a token."""
    owner_waiting: Count | None = 500
    """Turns of one owner that have not begun."""
    owner_streams: Count | None = 1_000
    """Event streams that one owner may read."""
    owner_requests: Count | None = 1_000
    """Other requests that one owner may have open, neither turns nor event streams: their bodies may take
    their time, too."""
    imports: Count = 32
    """Files that may be imported at once: of each, a chat is held in memory, up to 64 MiB and more."""
    owner_imports: Count | None = 4
    """Files that one owner may import at once."""
    owner_turns_per_minute: Count | None = None
    """Turns that one owner may ask for within a minute; none is given by default."""
    exchanges_per_minute: Count = 600
    """Visitors who may come by share links within a minute, all links together; and as many codes may be
    brought that lead nowhere."""
    owner_bytes: Count | None = None
    """Bytes that one owner may store: turns, chats and what is kept of failed turns. This, `owner_turns`,
    `owner_turns_per_minute` and `owner_chats` also hold for all visitors of a link together, unless the link
    has limits of its own. None by default."""
    owner_chats: Count | None = None
    """Chats that one owner may have; none is given by default."""
    narrowed_max_tokens: Count = 32_768
    """Tokens that a visitor, or the bearer of a narrowed token, may ask for in one answer, unless the link or
    the token has a bound of its own."""
    input_items: Count = ENGINE.input_items
    """Items in the input of one turn."""
    turn_bytes: Count = ENGINE.turn_bytes
    """Bytes of one turn."""
    queue_length: Count = ENGINE.queue_length
    """Turns that may wait for one conversation."""
    queue_wait: Seconds = ENGINE.queue_wait
    """How long a turn waits for those before it."""
    cached_bytes: Count = ENGINE.cached_bytes + ENGINE.page_bytes
    """Bytes of histories and of the database that are kept in memory by each worker, so that they need not be
    read for each turn."""
    worker_bytes: WorkerBytes | None = None
    """Memory that a worker may take before another takes its place; a server of one process ends in order, to
    be restarted. None: three quarters of the machine's, divided among the workers."""
    stall_wait: StallWait = 60.0
    """How long a worker's event loop may stand still before the worker is killed and replaced; a server of
    one process ends itself, to be restarted."""


class ModelTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long an upstream may take, by phase, in seconds."""

    connect: Patience = 10.0
    """Until there is a connection."""
    first_byte: Patience = 600.0
    """From the request to the first byte of the answer; all of it, where it is not streamed."""
    between_chunks: Patience = 120.0
    """From one part of the answer to the next."""
    total: Patience | None = None
    """For the whole answer; none is given by default."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One model: where it is, and what it is called there."""

    upstream: str
    """URL of the API, up to where `/chat/completions` follows."""
    model: str | None = None
    """Its name there; None: the same."""
    api_key_env: str | None = None
    """The environment variable that holds the api_key."""
    timeouts: ModelTimeouts | None = None
    """None: those of the server."""
    finish_reasons: tuple[str, ...] = ()
    """Further values of `finish_reason` by which it says that its answer is whole."""
    reuse: bool = True
    """Whether a connection is used for several requests. false: for upstreams that send responses to no
    request, of which another request could get one."""
    proxy: bool | str = True
    """The URL of the HTTP proxy on the way there; false: none; true: the one that the environment names."""
    length_field: LengthField | None = None
    """The field in which the upstream takes the bound of a token on the length of an answer. None: the one
    that the request has; where it has neither, the one that is usual for a model of this name."""


class ScopeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is different for the chats of one scope."""

    keep: bool | None = None
    """Whether they are kept; None: as all others are."""


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of chats; `[chats]` of the file has the same names."""

    keep: bool = True
    """Whether they are kept. A request can only say no."""
    restore_for: LongTime = ENGINE.restore_time
    """Seconds for which a deleted chat can be restored."""
    retain_for: LongTime | None = None
    """Seconds for which a chat is kept that nobody uses, unless it is pinned; for ever by default."""
    retain_bytes: Count | None = None
    """Bytes that the chats of one owner may take before the oldest are purged; no bound by default."""
    clock_tolerance: LongTime = ENGINE.clock_tolerance
    """Seconds by which the wall clock may differ from the machine's own count; beyond that nothing is purged,
    expires, is reset or is unclaimed."""
    clock_agreement: LongTime = ENGINE.clock_agreement
    """Seconds for which they then have to agree before anything is."""
    title_model: str | None = None
    """The model that is asked what to call a chat; None: its first words are its title."""
    scopes: dict[str, ScopeSettings] = {}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a server is told when it starts; `[server]` of the file has the same names."""

    host: str = "127.0.0.1"
    """The address to listen at."""
    port: Port = 8383
    """0: any that is free."""
    workers: Workers = 1
    """Processes that answer requests."""
    store: str = ""
    """Where conversations are kept; empty: a file in the user's data folder."""
    hosts: tuple[str, ...] = ()
    """Names under which the server may be asked for, beside those of loopback."""
    origins: tuple[str, ...] = ()
    """Web pages from elsewhere that may call it: scheme, host and port."""
    frame_ancestors: tuple[str, ...] = ()
    """Web pages that may show the server's own in a frame: scheme, host and port. None by default."""
    passed_fields: tuple[str, ...] = ()
    """Fields that requests with narrowed tokens may pass on to upstreams, beside the usual ones."""
    insecure: bool = False
    """Serve without tokens beyond loopback, and behind a proxy."""
    grace: Seconds = 20.0
    """How long running turns may go on after the server was told to end."""
    log_format: Literal["console", "json"] | None = None
    """None: console on a terminal, json elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    audit_log: str | None = None
    """A file that gets a JSON line for each request: who asked for what. None by default."""
    limits: ServerLimits = ServerLimits()
    timeouts: ModelTimeouts = ModelTimeouts()
    upstream: str | None = None
    """Where all models are asked for that `models` does not name."""
    api_key_env: str | None = None
    """The environment variable that holds the api_key for `upstream`."""
    finish_reasons: tuple[str, ...] = ()
    """Further values of `finish_reason` by which models of `upstream` say that an answer is whole."""
    reuse: bool = True
    """Whether a connection to `upstream` is used for several requests."""
    proxy: bool | str = True
    """The URL of the HTTP proxy on the way to `upstream`; false: none; true: as the environment says."""
    length_field: LengthField | None = None
    """The field in which `upstream` takes the bound of a token on the length of an answer."""
    models: dict[str, ModelSettings] = {}
    chats: ChatSettings = ChatSettings()


HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
"""A Host header in small letters: the name, and maybe a port."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


def is_host_name(text: str) -> bool:
    """Whether this can stand in a Host header, without a port."""
    found = HOST.fullmatch(text.lower())
    return found is not None and found[2] is None


def is_origin(text: str) -> bool:
    """Whether this is what browsers send as an Origin: scheme, host, and the port unless it is the usual."""
    return _ORIGIN.fullmatch(text) is not None
