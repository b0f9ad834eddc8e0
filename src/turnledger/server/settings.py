"""What a server is told when it starts: from flags, and from a file in TOML."""

from __future__ import annotations

import msgspec

from turnledger.engine.limits import Limits

ENGINE = Limits()


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on what clients may ask. Times are in seconds."""

    body_bytes: int = 32 * 1024 * 1024
    """Bytes of the body of one request."""
    body_wait: float = 30.0
    """How long a body may take to arrive."""
    requests: int = 10_000
    """Requests that may be open at once, streams included."""
    queue_length: int = ENGINE.queue_length
    """Turns that may wait for one conversation."""
    queue_wait: float = ENGINE.queue_wait
    """How long a turn waits for those before it."""
    readers: int = ENGINE.readers
    """Event streams that may be read at once."""


class ModelTimeouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long an upstream may take, by phase, in seconds."""

    connect: float = 10.0
    first_byte: float = 120.0
    between_chunks: float = 60.0
    total: float | None = None


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: where it is, and what it is called there."""

    upstream: str
    model: str | None = None
    api_key_env: str | None = None
    timeouts: ModelTimeouts | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a server is told when it starts."""

    host: str = "127.0.0.1"
    port: int = 8383
    store: str = "memory:"
    hosts: tuple[str, ...] = ()
    """Names under which the server may be asked for, beside loopback's."""
    origins: tuple[str, ...] = ()
    """Web pages from elsewhere that may call it: scheme, host and port."""
    insecure: bool = False
    """Serve without tokens beyond loopback, and behind a proxy."""
    grace: float = 20.0
    """How long running turns may go on after the server was told to end."""
    log_format: str | None = None
    """`console` or `json`; None: console on a terminal, json elsewhere."""
    log_level: str = "info"
    limits: ServerLimits = ServerLimits()
    timeouts: ModelTimeouts = ModelTimeouts()
    upstream: str | None = None
    """Where every model is asked for that `models` does not name."""
    api_key_env: str | None = None
    models: dict[str, ModelSettings] = {}
