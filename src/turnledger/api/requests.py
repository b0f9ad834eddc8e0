"""The bodies of requests. Bounds are only described here; the code that uses a value checks it and words
the error."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

from turnledger.api.fields import id_of, schema
from turnledger.model.access.share import NONCE, PER_MINUTE, VISIT
from turnledger.model.access.token import MOST, MOST_MODELS, TokenScope
from turnledger.model.conversation import KEY_LENGTH, LONGEST, METADATA_PAIRS, TAG_LENGTH, TAGS, TEXT_LENGTH
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import OnStop

NAME: dict[str, Any] = {"minLength": 1, "maxLength": KEY_LENGTH}
SCOPE: dict[str, Any] = {"maxLength": KEY_LENGTH, "pattern": r"^[^\u0000-\u001f]*$"}

Name: TypeAlias = Annotated[str, schema(**NAME)]
Scope: TypeAlias = Annotated[str, schema(**SCOPE)]
Text: TypeAlias = Annotated[str, schema(maxLength=TEXT_LENGTH)]
Metadata: TypeAlias = Annotated[dict[str, Text], schema(maxProperties=METADATA_PAIRS)]
Bound: TypeAlias = Annotated[int, schema(minimum=1, maximum=MOST)]
Seconds: TypeAlias = Annotated[float, schema(exclusiveMinimum=0, maximum=LONGEST)]
Reset: TypeAlias = Annotated[
    str,
    schema(
        "When the conversation_key moves to a fresh chat: `never`, `idle SECONDS`, `daily HOUR [TIMEZONE]`.",
        examples=["never", "idle 1800", "daily 4 Europe/Berlin"],
    ),
]
Expiry: TypeAlias = Annotated[
    Seconds, schema("Seconds without use after which it expires. Default: that of the server, or never.")
]
Internal: TypeAlias = Annotated[
    bool, schema("For programs: no list, search or change of people shows it; its id and key open it.")
]
Interaction: TypeAlias = Annotated[bool, schema("`false`: it postpones neither expiry nor a reset.")]
Tag: TypeAlias = Annotated[str, schema(minLength=1, maxLength=TAG_LENGTH)]
"""Not empty. The code that uses a tag rejects white space alone."""
Tags: TypeAlias = Annotated[list[Tag], schema(maxItems=TAGS)]
Unset: TypeAlias = UnsetType | None
Input: TypeAlias = str | list[str | dict[str, Any]]
"""A text, items of the Responses shape, or chat messages."""


class NewChatBody(Struct, forbid_unknown_fields=True):
    """A chat to create."""

    conversation_key: Annotated[Name, schema("Your own name for the chat, unique in its scope.")] | None = (
        None
    )
    scope: Scope | None = None
    title: Text | None = None
    metadata: Metadata | None = None
    tags: Tags | None = None
    internal: Internal = False
    expires_after: Expiry | None = None
    reset: Reset | None = None


class ChatChangesBody(Struct, forbid_unknown_fields=True):
    """Changes to a chat; a field that is left out keeps its value."""

    title: Annotated[Text, schema("Null or empty: the first words again.")] | Unset = UNSET
    metadata: Annotated[Metadata, schema("All of it; null: none.")] | Unset = UNSET
    tags: Annotated[Tags, schema("All of them; null: none.")] | Unset = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET

    def changes(self) -> dict[str, Any]:
        """Return the given fields as arguments of Chat.update."""
        empty_values: dict[str, Any] = {"title": "", "metadata": {}, "tags": ()}
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: empty_values[name] if value is None else value
            for name, value in values.items()
            if value is not UNSET
        }


class ForkBody(Struct, forbid_unknown_fields=True):
    """A fork: the last turn it shares with the original, and its own details."""

    turn: Annotated[str, id_of(TurnId, "The last turn that both share.")] | None = None
    title: Text | None = None
    metadata: Metadata | None = None
    conversation_key: Name | None = None
    internal: Internal = False
    expires_after: Expiry | None = None


class ResetBody(Struct, forbid_unknown_fields=True):
    """The conversation_key that moves to a new chat."""

    conversation_key: Name
    scope: Scope | None = None
    replaces: Annotated[str, id_of(ConversationId, "Only if this chat still has the key.")] | None = None


class ContextBody(Struct, forbid_unknown_fields=True):
    """How much of the history the model of a turn is shown: one of these; neither: all of it."""

    last: Annotated[int, schema("This many of the last turns.", minimum=0)] | None = None
    budget: (
        Annotated[int, schema("As many of the last turns as fit into these tokens.", minimum=0)] | None
    ) = None


class TurnBody(Struct, forbid_unknown_fields=True):
    """A turn to run."""

    model: str
    input: Annotated[
        Input, schema("The new input: a text, items of the Responses API, or chat messages.")
    ] = []
    chat: Annotated[str, id_of(ConversationId, "The chat; omitted: a new one.")] | None = None
    conversation_key: Annotated[Name, schema("Or its conversation_key.")] | None = None
    scope: Annotated[Scope, schema("The scope of a new chat.")] | None = None
    reset: Reset | None = None
    interaction: Interaction = True
    instructions: Annotated[
        Input | None, schema("Apply from this turn on; an empty text ends the current ones.")
    ] = None
    primer: Annotated[
        Input | None,
        schema(
            "History shown to the model before the stored one, in this turn only; never stored. Each of its"
            " calls must have its result."
        ),
    ] = None
    context: ContextBody | None = None
    replaces: Annotated[str, id_of(TurnId, "An edit: the turn to replace.")] | None = None
    regenerates: Annotated[
        bool | Annotated[str, id_of(TurnId)] | None,
        schema("Regenerate this turn, or with `true` the last one."),
    ] = None
    after: (
        Annotated[
            str, id_of(TurnId, "The turn to follow, on any branch: at once, if need be on a side branch.")
        ]
        | None
    ) = None
    stream: bool | None = None
    background: Annotated[
        bool, schema("Store the turn and respond at once; a server runs it, and resumes it after a crash.")
    ] = False
    settings: Annotated[
        Raw,
        schema(
            "Further fields for the model: `temperature`, `tools`, …",
            anyOf=[{"type": "object"}, {"type": "null"}],
        ),
    ] = field(default_factory=partial(Raw, b"null"))


class AppendBody(Struct, forbid_unknown_fields=True):
    """A turn that no model answers."""

    items: Annotated[
        Input, schema("The whole turn: a text, items of the Responses API, or chat messages; an answer too.")
    ]
    details: Annotated[dict[str, Any], schema("Stored with the turn.")] | None = None
    interaction: Interaction = True


class FlagsBody(Struct, forbid_unknown_fields=True):
    """Items of a turn to show or hide; a flag that is left out stays."""

    items: (
        Annotated[
            list[Annotated[int, schema(minimum=0)]],
            schema("Indexes through `input` and then `output`; omitted: all items."),
        ]
        | None
    ) = None
    to_model: Annotated[bool, schema("Whether models of later turns receive them.")] | None = None
    to_user: Annotated[bool, schema("Whether the user sees them.")] | None = None


class StopBody(Struct, forbid_unknown_fields=True):
    """What to do with the text of a stopped turn."""

    policy: OnStop | None = None


class KeyedStopBody(StopBody, forbid_unknown_fields=True, kw_only=True):
    """The turn to stop, and what to do with its text."""

    idempotency_key: Annotated[Name, schema("The Idempotency-Key with which the turn was requested.")]


class SwitchBody(Struct, forbid_unknown_fields=True):
    """The branch that a chat is to show."""

    branch: Annotated[str, id_of(BranchId)]


class UndoBody(Struct, forbid_unknown_fields=True):
    """The turn to undo, and how."""

    turn: Annotated[str, id_of(TurnId, "Only if this is the last turn.")] | None = None
    forget: Annotated[bool, schema("Also drop the effects of its tools.")] = False


class TokenBody(Struct, forbid_unknown_fields=True):
    """A token to create. Fields that are left out are taken from the token that creates it."""

    scopes: Annotated[list[TokenScope], schema("Its permissions.", minItems=1)]
    owner: Annotated[Name, schema("The owner of its chats.")] | None = None
    name: Annotated[Text, schema("A name for people.")] = ""
    chat_scope: Annotated[Scope, schema("Restrict it to this scope of chats; empty: all.")] | None = None
    chat: Annotated[str, id_of(ConversationId, "Restrict it to this chat, with chats:read only.")] | None = (
        None
    )
    models: (
        Annotated[list[Name], schema("Restrict it to these models; empty: all.", maxItems=MOST_MODELS)] | None
    ) = None
    expires_in: Annotated[Seconds, schema("Seconds from now.")] | None = None
    max_tokens: Annotated[Bound, schema("Maximum tokens per answer.")] | None = None
    n: Annotated[Bound, schema("Maximum answers per request.")] | None = None
    defaults: Annotated[dict[str, str], schema('Policies of its turns: {"on_busy": "reject"}.')] | None = None


class ShareBody(Struct, forbid_unknown_fields=True):
    """A share link to create."""

    scope: (
        Annotated[str, schema("Each visitor is a new owner in this scope of chats.", **SCOPE, minLength=1)]
        | None
    ) = None
    chat: Annotated[str, id_of(ConversationId, "Or: visitors may read this chat.")] | None = None
    name: Annotated[Text, schema("A name for people.")] = ""
    max_uses: Annotated[Bound, schema("Maximum number of visitors; null: no limit.")] | None = None
    expires_in: Annotated[Seconds, schema("Seconds from now; null: until it is revoked.")] | None = None
    per_minute: Annotated[Bound, schema("Maximum number of visitors per minute.")] | None = PER_MINUTE
    models: (
        Annotated[list[Name], schema("Restrict visitors to these models; empty: all.", maxItems=MOST_MODELS)]
        | None
    ) = None
    visitor_expires_in: (
        Annotated[Seconds, schema("Lifetime of a visitor's token in seconds, while the link is valid.")]
        | None
    ) = VISIT
    max_tokens: Annotated[Bound, schema("Maximum tokens per answer to a visitor.")] | None = None
    n: Annotated[Bound, schema("Maximum answers per request of a visitor.")] | None = None
    turns: Annotated[Bound, schema("Maximum open turns of all visitors together.")] | None = None
    turns_per_minute: (
        Annotated[Bound, schema("Maximum turns per minute of all visitors together.")] | None
    ) = None
    bytes: Annotated[Bound, schema("Maximum bytes stored by all visitors together.")] | None = None
    chats: Annotated[Bound, schema("Maximum chats of all visitors together.")] | None = None


class ExchangeBody(Struct, forbid_unknown_fields=True):
    """The code of a link, to exchange for a token."""

    code: Annotated[str, schema("The part of the link after the #.")]
    nonce: Annotated[
        str,
        schema(
            "128 random bits that the page generates, the same for each retry.",
            pattern=f"^{NONCE.pattern}$",
        ),
    ]
