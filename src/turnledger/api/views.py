"""What a store keeps, as the API shows it. Where several classes show one thing, the first argument says
which; `others` are the fields that the store does not know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import UNSET

from turnledger.api.access import Share, Token
from turnledger.api.chats import ChatInfo, ListedChat
from turnledger.api.events import Change
from turnledger.api.turns import Attempt, Turn
from turnledger.model import codec
from turnledger.model.access.share import Share as StoredShare
from turnledger.model.access.token import Token as StoredToken
from turnledger.model.attempt import Attempt as StoredAttempt
from turnledger.model.attempt import Failure
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import Conversation
from turnledger.model.item import Item
from turnledger.model.listing import Listed
from turnledger.model.turn import Turn as StoredTurn

AnyChat = TypeVar("AnyChat", bound=ChatInfo)
AnyListed = TypeVar("AnyListed", bound=ListedChat)
AnyToken = TypeVar("AnyToken", bound=Token)
AnyShare = TypeVar("AnyShare", bound=Share)

DETAIL: Mapping[ChangeKind, str] = {
    ChangeKind.TURN_COMMITTED: "outcome",
    ChangeKind.TURN_FAILED: "code",
    ChangeKind.CHAT_DELETED: "reason",
}
"""What the word is called that comes with a change."""
_OF_CHATS = ("title", "metadata", "tags", "pinned", "archived", "revision")
_LEFT_OUT: Mapping[str, Any] = dict.fromkeys(Change.__struct_fields__, UNSET)


def show_chat(shape: type[AnyChat], conversation: Conversation, /, **others: Any) -> AnyChat:
    return shape(
        id=conversation.id,
        conversation_key=conversation.conversation_key,
        scope=conversation.scope or None,
        title=conversation.title,
        named_by=conversation.named_by,
        metadata=conversation.metadata,
        tags=conversation.tags,
        pinned=conversation.pinned,
        archived=conversation.archived,
        revision=conversation.revision,
        branch=conversation.branch,
        created_at=conversation.created_at,
        touched_at=conversation.touched_at,
        purge_at=conversation.purge_at,
        **others,
    )


def show_listed(listed: Listed) -> ListedChat:
    return show_listed_as(ListedChat, listed)


def show_listed_as(shape: type[AnyListed], listed: Listed, /, **others: Any) -> AnyListed:
    return show_chat(
        shape,
        listed.conversation,
        turn_count=listed.turns,
        preview=listed.preview,
        is_running=listed.is_running,
        **others,
    )


def show_turn(turn: StoredTurn, hidden: Sequence[int] = ()) -> Turn:
    """A turn, and which of its items its user does not see."""
    return Turn(
        id=turn.id,
        number=turn.number,
        kind=turn.kind,
        parent=turn.parent,
        created_at=turn.created_at,
        committed_at=turn.committed_at,
        raw_input=codec.raws(turn.input),
        raw_output=codec.raws(turn.output),
        hidden=tuple(hidden),
        details=dict(turn.details),
    )


def show_attempt(attempt: StoredAttempt, steps: Iterable[Item], failure: Failure | None) -> Attempt:
    return Attempt(
        id=attempt.id,
        state=attempt.state,
        failure=failure,
        created_at=attempt.created_at,
        ended_at=attempt.ended_at,
        raw_input=codec.raws(attempt.input),
        raw_steps=codec.raws(steps),
        partial=attempt.partial,
    )


def show_token(shape: type[AnyToken], token: StoredToken, /, **others: Any) -> AnyToken:
    return shape(
        id=token.id,
        name=token.name,
        scopes=tuple(sorted(token.scopes)),
        chat_scope=token.chat_scope or None,
        chat=token.conversation,
        models=token.models,
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        used_at=token.used_at,
        parent=token.parent,
        share=token.share,
        max_tokens=token.bounds.max_tokens,
        n=token.bounds.n,
        **{"owner": token.owner, **others},
    )


def show_share(shape: type[AnyShare], share: StoredShare, /, **others: Any) -> AnyShare:
    stay, bounds = share.visitor_lifetime, share.bounds
    return shape(
        id=share.id,
        kind=share.kind,
        owner=share.owner,
        name=share.name,
        scope=share.chat_scope or None,
        chat=share.conversation,
        models=share.models,
        max_uses=share.max_uses,
        uses=share.uses,
        per_minute=share.per_minute,
        visitor_expires_in=None if stay is None else stay / 1000,
        created_at=share.created_at,
        expires_at=share.expires_at,
        revoked_at=share.revoked_at,
        parent=share.parent,
        **{name: getattr(bounds, name) for name in bounds.__struct_fields__},
        stored_bytes=share.bytes,
        stored_chats=share.chats,
        **others,
    )


def show_change(change: LiveChange) -> Change:
    """A change, without the fields that mean nothing for its kind; a chat as it is by now."""
    told: dict[str, Any] = {"type": change.kind, "at": change.at}
    if change.conversation is not None:
        told |= {"chat": change.conversation, "scope": change.scope or None}
    if change.turn is not None:
        told["turn"] = change.turn
    if change.branch is not None:
        told["branch"] = change.branch
    if change.kind in DETAIL:
        told[DETAIL[change.kind]] = change.detail
    chat = change.chat
    if chat is not None:
        told.setdefault("branch", chat.branch)
        told |= {name: getattr(chat, name) for name in _OF_CHATS}
    return Change(**{**_LEFT_OUT, **told})
