"""An endpoint: its route, its checks and its description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from types import UnionType
from typing import NamedTuple, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from turnledger.errors import TurnledgerError
from turnledger.model.access.token import TokenScope
from turnledger.server.openapi.schemas import STRING, Schema, Shape

Handler: TypeAlias = Callable[[Request], Awaitable[Response]] | ASGIApp
"""A function from request to response, or an ASGI application where speed matters."""

Content: TypeAlias = Mapping[str, Shape]


class Parameter(NamedTuple):
    meaning: str
    schema: Schema = STRING


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One method of one path."""

    route: str
    """Both, with parameters in braces: `GET /api/turns/{turn}`."""
    is_fixed_path: bool = False
    """Whether its path must never match one with a parameter: `/api/chats/reset` names no chat."""
    handler: Handler
    needs: TokenScope | None = None
    """The scope that the token must have; None: any token."""
    is_public: bool = False
    """Whether it needs no token: its response contains no one's data."""
    is_open_without_tokens: bool = False
    """Whether it needs no scope as long as no token exists."""
    checks_version: bool = False
    """Whether its transaction compares the version of the tokens, so that a cached lookup suffices."""
    summary: str
    tag: str = ""
    """The group of its module, see `app.ROUTES`."""
    responses: Mapping[int, str] = msgspec.field(default_factory=lambda: {200: "Done."})
    """Statuses of its own; `document` adds the errors that endpoints share."""
    content: Mapping[int, Content | type | UnionType] = {}
    """Bodies by status, a class as JSON. Other statuses send any JSON, errors their one shape."""
    response_headers: Mapping[str, Parameter] = {}
    """Headers that successful responses may carry."""
    in_path: Mapping[str, Parameter] = {}
    headers: Mapping[str, Parameter] = {}
    query: Mapping[str, Parameter] = {}
    body: Shape | None = None
    body_type: str = "application/json"
    fields: Mapping[type[TurnledgerError], str] = {}
    """The fields of the body that errors of these classes are about, unless they name others."""
    is_unbounded: bool = False
    """Whether its body may have any length: it is read in pieces."""
    needs_body: bool = True
    is_stream: bool = False
    """Whether it counts against the limit on open streams."""
    page_policy: bytes | None = None
    """The Content-Security-Policy of a page that may be opened from anywhere."""
    is_own_frame: bool = False
    """Whether the server's own pages show it in a frame, wherever they are embedded themselves."""
    cache_control: bytes | None = None
    """The Cache-Control of successful responses that browsers may cache."""
    is_for_readers: bool = False
    """Whether a visitor with a link to one chat may call it: it shows only what a person would see."""
    serves_while_ending: bool = False
    """Whether it still responds while the server shuts down."""

    @cached_property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @cached_property
    def path(self) -> str:
        return self.route.partition(" ")[2]
