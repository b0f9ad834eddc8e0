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
Tag: TypeAlias = Annotated[str, schema(minLength=1, maxLength=TAG_LENGTH)]
"""Not empty. The code that uses a tag rejects white space alone."""
Tags: TypeAlias = Annotated[list[Tag], schema(maxItems=TAGS)]
Unsaid: TypeAlias = UnsetType | None
Said: TypeAlias = str | list[str | dict[str, Any]]
"""A text, items of the Responses shape, or chat messages."""


class NewChatBody(Struct, forbid_unknown_fields=True):
    """A chat to create."""

    conversation_key: Annotated[Name, schema("A name of your own: one chat has it.")] | None = None
    scope: Scope | None = None
    title: Text | None = None
    metadata: Metadata | None = None
    tags: Tags | None = None


class ChatChangesBody(Struct, forbid_unknown_fields=True):
    """Changes to a chat; a field that is left out keeps its value."""

    title: Annotated[Text, schema("Null or empty: called by its first words again.")] | Unsaid = UNSET
    metadata: Annotated[Metadata, schema("All of it; null: none.")] | Unsaid = UNSET
    tags: Annotated[Tags, schema("All of them; null: none.")] | Unsaid = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET

    def changes(self) -> dict[str, Any]:
        """Return the given fields as arguments of Chat.update."""
        emptied: dict[str, Any] = {"title": "", "metadata": {}, "tags": ()}
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: emptied[name] if value is None else value
            for name, value in given.items()
            if value is not UNSET
        }


class ForkBody(Struct, forbid_unknown_fields=True):
    """A fork: the last turn it shares with the original, and its own details."""

    turn: Annotated[str, id_of(TurnId, "The last turn that both have.")] | None = None
    title: Text | None = None
    metadata: Metadata | None = None
    conversation_key: Name | None = None


class ResetBody(Struct, forbid_unknown_fields=True):
    """The conversation_key that moves to a new chat."""

    conversation_key: Name
    scope: Scope | None = None
    replaces: Annotated[str, id_of(ConversationId, "Only if the key names this one.")] | None = None


class TurnBody(Struct, forbid_unknown_fields=True):
    """A turn to run."""

    model: str
    input: Annotated[
        Said, schema("What is new: a text, or items of the Responses shape, or chat messages.")
    ] = []
    chat: Annotated[str, id_of(ConversationId, "The chat; without any, a new one.")] | None = None
    conversation_key: Annotated[Name, schema("Or your own name for it.")] | None = None
    scope: Annotated[Scope, schema("The application that a new chat is for.")] | None = None
    instructions: Annotated[
        Said | None, schema("In force from this turn on; an empty text ends those in force.")
    ] = None
    primer: Annotated[
        Said | None,
        schema(
            "A history of your own, shown to the model before the stored one, in this turn only; it is not"
            " kept. Each of its calls has its result."
        ),
    ] = None
    replaces: Annotated[str, id_of(TurnId, "An edit: the turn whose place it takes.")] | None = None
    regenerates: Annotated[
        bool | Annotated[str, id_of(TurnId)] | None,
        schema("Ask the input of this turn, or of the last one, once more."),
    ] = None
    stream: bool | None = None
    settings: Annotated[
        Raw,
        schema(
            "What else the model is asked with: `temperature`, `tools`, …",
            anyOf=[{"type": "object"}, {"type": "null"}],
        ),
    ] = field(default_factory=partial(Raw, b"null"))


class StopBody(Struct, forbid_unknown_fields=True):
    """What to do with the text of a stopped turn."""

    policy: OnStop | None = None


class SwitchBody(Struct, forbid_unknown_fields=True):
    """The branch that a chat is to show."""

    branch: Annotated[str, id_of(BranchId)]


class UndoBody(Struct, forbid_unknown_fields=True):
    """The turn to undo, and how."""

    turn: Annotated[str, id_of(TurnId, "Only if this is the last turn.")] | None = None
    forget: Annotated[bool, schema("Whether it goes with what its tools did.")] = False


class TokenBody(Struct, forbid_unknown_fields=True):
    """A token to create. Fields that are left out are taken from the token that creates it."""

    scopes: Annotated[list[TokenScope], schema("What it may do.", minItems=1)]
    owner: Annotated[Name, schema("Whose chats it opens.")] | None = None
    name: Annotated[Text, schema("What people call it.")] = ""
    chat_scope: Annotated[Scope, schema("The only scope of chats that it sees; empty: all.")] | None = None
    chat: (
        Annotated[str, id_of(ConversationId, "The only chat that it sees, with chats:read alone.")] | None
    ) = None
    models: (
        Annotated[list[Name], schema("The only models that it may ask; empty: all.", maxItems=MOST_MODELS)]
        | None
    ) = None
    expires_in: Annotated[Seconds, schema("Seconds from now.")] | None = None
    max_tokens: Annotated[Bound, schema("Tokens that one answer may have.")] | None = None
    n: Annotated[Bound, schema("Answers that one request may ask for.")] | None = None


class ShareBody(Struct, forbid_unknown_fields=True):
    """A share link to create."""

    scope: (
        Annotated[str, schema("Each visitor is a fresh owner in this scope of chats.", **SCOPE, minLength=1)]
        | None
    ) = None
    chat: Annotated[str, id_of(ConversationId, "Or: visitors read this chat.")] | None = None
    name: Annotated[Text, schema("What people call it.")] = ""
    max_uses: Annotated[Bound, schema("Visitors that may come; null: any number.")] | None = None
    expires_in: Annotated[Seconds, schema("Seconds from now; null: until it is revoked.")] | None = None
    per_minute: Annotated[Bound, schema("Visitors that may come within a minute.")] | None = PER_MINUTE
    models: (
        Annotated[
            list[Name], schema("The only models that visitors may ask; empty: all.", maxItems=MOST_MODELS)
        ]
        | None
    ) = None
    visitor_expires_in: (
        Annotated[Seconds, schema("Seconds that a visitor may stay, as long as the link is good.")] | None
    ) = VISIT
    max_tokens: Annotated[Bound, schema("Tokens that one answer to a visitor may have.")] | None = None
    n: Annotated[Bound, schema("Answers that one request of a visitor may ask for.")] | None = None
    turns: Annotated[Bound, schema("Turns that all visitors together may have open.")] | None = None
    turns_per_minute: (
        Annotated[Bound, schema("Turns that all visitors together may ask for within a minute.")] | None
    ) = None
    bytes: Annotated[Bound, schema("Bytes that all visitors together may store.")] | None = None
    chats: Annotated[Bound, schema("Chats that all visitors together may have.")] | None = None


class ExchangeBody(Struct, forbid_unknown_fields=True):
    """The code of a link, to exchange for a token."""

    code: Annotated[str, schema("What stands behind the # of the link.")]
    nonce: Annotated[
        str,
        schema(
            "Made up by the page, of 128 random bits, and the same if it asks again.",
            pattern=f"^{NONCE.pattern}$",
        ),
    ]
