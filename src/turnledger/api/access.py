"""Tokens and share links as the API sends them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from turnledger.api.fields import Count, Time, one_of, schema
from turnledger.model.access.share import ShareKind
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import ConversationId, ShareId, TokenId

SHARE_PATH = "/share"
"""The page of a link; its code follows after `#`."""


class Token(Struct, frozen=True, kw_only=True):
    """A token without its text."""

    id: TokenId
    owner: str = ""
    name: str = ""
    scopes: Annotated[tuple[Annotated[str, one_of(TokenScope)], ...], schema(minItems=1)] = ()
    chat_scope: str | None = None
    chat: ConversationId | None = None
    models: tuple[str, ...] = ()
    created_at: Time = 0
    expires_at: Time | None = None
    revoked_at: Time | None = None
    used_at: Time | None = None
    parent: TokenId | None = None
    share: ShareId | None = None
    max_tokens: Annotated[Count, schema("Maximum tokens per answer.")] | None = None
    n: Annotated[Count, schema("Maximum answers per request.")] | None = None
    defaults: Annotated[dict[str, str], schema("Policies of its turns, unless a request chooses.")] = {}

    @property
    def token(self) -> str | None:
        """The secret. The server returns it once, to the caller that creates the token."""
        return None

    @property
    def keeps(self) -> bool | None:
        """Of the caller's own token: whether the server stores chats of its scope."""
        return None

    def __repr__(self) -> str:
        return f"Token(id={self.id!r}, name={self.name!r})"  # never the secret


class NewToken(Token, frozen=True, kw_only=True):
    """A token that was just created."""

    token: Annotated[str, schema("Its text: the secret.")] = ""


class OwnToken(Token, frozen=True, kw_only=True):
    """The token of the caller."""

    keeps: Annotated[bool, schema("Whether the server stores chats of its scope.")] = True


class NoToken(Struct, frozen=True, kw_only=True):
    """A caller without a token, on a server that needs none."""

    id: None = None
    scopes: Annotated[tuple[Annotated[str, one_of(TokenScope)], ...], schema(minItems=1)]
    owner: str
    keeps: Annotated[bool, schema("Whether the server stores chats of the scope.")]


class ModelUsage(Struct, frozen=True, kw_only=True):
    """What stored turns of an owner used of a model."""

    owner: str
    model: Annotated[str, schema("Null for turns that name no model.")] | None
    turns: Count
    input_tokens: Annotated[Count, schema("As models reported them.")]
    output_tokens: Annotated[Count, schema("As models reported them.")]
    bytes: Annotated[Count, schema("Of the turns and their event logs.")]


class Share(Struct, frozen=True, kw_only=True):
    """A share link without its code."""

    id: ShareId
    kind: Annotated[str, one_of(ShareKind)] = ""
    owner: str = ""
    name: str = ""
    scope: str | None = None
    chat: ConversationId | None = None
    models: tuple[str, ...] = ()
    max_uses: Count | None = None
    uses: Count = 0
    per_minute: Count | None = None
    visitor_expires_in: float | None = None
    created_at: Time = 0
    expires_at: Time | None = None
    revoked_at: Time | None = None
    parent: TokenId | None = None
    max_tokens: Annotated[Count, schema("Maximum tokens per answer to a visitor.")] | None = None
    n: Annotated[Count, schema("Maximum answers per request of a visitor.")] | None = None
    turns: Annotated[Count, schema("Maximum open turns of all visitors together.")] | None = None
    turns_per_minute: (
        Annotated[Count, schema("Maximum turns per minute of all visitors together.")] | None
    ) = None
    bytes: Annotated[Count, schema("Maximum bytes stored by all visitors together.")] | None = None
    chats: Annotated[Count, schema("Maximum chats of all visitors together.")] | None = None
    stored_bytes: Annotated[Count, schema("Bytes stored by all visitors together.")] = 0
    stored_chats: Annotated[Count, schema("Number of chats of all visitors together.")] = 0

    @property
    def code(self) -> str | None:
        """The secret of the link. The server returns it once, to the caller that creates the link."""
        return None

    @property
    def path(self) -> str | None:
        """The part of the link after the server's address; returned once, with the code."""
        return None

    def __repr__(self) -> str:
        return f"Share(id={self.id!r}, name={self.name!r})"


class NewShare(Share, frozen=True, kw_only=True):
    """A link that was just created."""

    code: Annotated[str, schema("The secret of the link.")] = ""
    path: Annotated[str, schema("The part of the link after the server's address.")] = ""


class Visit(Struct, frozen=True, kw_only=True):
    """What a visitor receives for the code of a link."""

    token: Annotated[str, schema("The text of the visitor's token: the secret.")]
    kind: Annotated[str, one_of(ShareKind)]
    name: str
    owner: Annotated[str, schema("The visitor; null for a reader of one chat.")] | None
    scope: str | None
    chat: ConversationId | None
    models: tuple[str, ...]
    expires_at: Time | None
