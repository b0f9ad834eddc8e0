"""An endpoint and its description: the routes and the OpenAPI document are made of the same list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import UnionType
from typing import NamedTuple, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from turnledger.model.access.token import TokenScope
from turnledger.server.openapi.schemas import TEXT, Schema, Shape

Answering: TypeAlias = Callable[[Request], Awaitable[Response]] | ASGIApp
"""A function from request to response, or an object that is an ASGI application: the way of hot endpoints."""

Content: TypeAlias = Mapping[str, Shape]
"""What an answer can hold: the shape of each of its media types."""


class Parameter(NamedTuple):
    """Something that can be said besides the body: in the path, the query or a header."""

    meaning: str
    schema: Schema = TEXT


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    """With parameters in braces, `/api/turns/{turn_id}`."""
    is_apart: bool = False
    """Whether its path is never taken for one with a parameter: `/api/chats/reset` names no chat."""
    answer: Answering
    needs: TokenScope | None = None
    """The scope that a token must have for it; None: any token will do."""
    is_public: bool = False
    """Whether it is answered to everybody: it tells nothing of anyone."""
    is_open_at_first: bool = False
    """Whether it needs no scope where no token was made yet."""
    checks_version: bool = False
    """Whether it compares the version of who asks in the store, so that he may be let in from memory."""
    summary: str
    tag: str
    answers: Mapping[int, str] = msgspec.field(default_factory=lambda: {200: "Done."})
    """What each status means here; the errors that endpoints share are not repeated, see `answering`."""
    content: Mapping[int, Content | type | UnionType] = {}
    """What these answers hold, a class as JSON; JSON of any kind where it is not said, and errors in their
    one shape."""
    answer_headers: Mapping[str, Parameter] = {}
    """Headers that its good answers may carry."""
    in_path: Mapping[str, Parameter] = {}
    """The parameters of the path."""
    headers: Mapping[str, Parameter] = {}
    """Request headers that it understands."""
    query: Mapping[str, Parameter] = {}
    body: Shape | None = None
    """Of the body, if it takes one."""
    body_type: str = "application/json"
    is_unbounded: bool = False
    """Whether its body may be of any length: it is read piece by piece."""
    needs_body: bool = True
    """Whether it must have one, if it takes one."""
    is_stream: bool = False
    """Whether it is for readers of streams, of whom there may be only so many."""
    page_policy: bytes | None = None
    """For a page that people come to from anywhere: what it may do, as a Content-Security-Policy."""
    is_own_frame: bool = False
    """Whether it is a page that the server's own pages show in a frame, wherever these may be shown."""
    caching: bytes | None = None
    """For what browsers may keep: how, as a Cache-Control, where the answer is good."""
    is_for_readers: bool = False
    """Whether it is there for who came by a link to one chat: it shows no more than a person would see."""
    while_ending: bool = False
    """Whether it is answered while the server shuts down."""
