"""Turn stored objects into shapes of the API. The first argument is the class to make where several can show
the same object; `others` are fields that the store does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import asdict

from turnledger.api.access import SHARE_PATH, NewShare, Share, Token
from turnledger.api.chats import ChatInfo, ListedChat
from turnledger.api.events import Change
from turnledger.api.turns import Attempt, Job, Turn, TurnFlags
from turnledger.model.access.share import Share as StoredShare
from turnledger.model.access.token import Token as StoredToken
from turnledger.model.catalogue import ChatEntry
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import Conversation
from turnledger.model.flags import NOTHING_HIDDEN, HiddenItems
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, raws
from turnledger.model.job import ListedJob
from turnledger.model.turn import Attempt as StoredAttempt
from turnledger.model.turn import Failure
from turnledger.model.turn import Turn as StoredTurn

Shape = TypeVar("Shape", bound=Struct)
AnyChat = TypeVar("AnyChat", bound=ChatInfo)
AnyListed = TypeVar("AnyListed", bound=ListedChat)
AnyToken = TypeVar("AnyToken", bound=Token)
AnyShare = TypeVar("AnyShare", bound=Share)

DETAIL: Mapping[ChangeKind, str] = {
    ChangeKind.TURN_COMMITTED: "outcome",
    ChangeKind.TURN_FAILED: "code",
    ChangeKind.CHAT_DELETED: "reason",
}
"""The field of the API that holds the detail of a change."""
_CHAT_FIELDS = ("title", "metadata", "tags", "pinned", "archived", "revision")
_UNSET_FIELDS: Mapping[str, Any] = dict.fromkeys(Change.__struct_fields__, UNSET)


def view(shape: type[Shape], stored: object, /, **others: Any) -> Shape:
    """Copy the fields of the same name, and set the others."""
    names = [name for name in shape.__struct_fields__ if name not in others]
    return shape(**{name: getattr(stored, name) for name in names}, **others)


def show_chat(shape: type[AnyChat], conversation: Conversation, /, **others: Any) -> AnyChat:
    return view(
        shape,
        conversation,
        scope=conversation.scope or None,
        expires_after=_seconds(conversation.expires_after),
        reset=str(conversation.reset_policy),
        **others,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def show_listed(listed: ChatEntry) -> ListedChat:
    chat = listed.conversation
    # Field by field: lists are long, and looking the names up takes three times as long.
    return ListedChat(
        id=chat.id,
        conversation_key=chat.conversation_key,
        scope=chat.scope or None,
        title=chat.title,
        named_by=chat.named_by,
        metadata=chat.metadata,
        tags=chat.tags,
        pinned=chat.pinned,
        archived=chat.archived,
        internal=chat.internal,
        revision=chat.revision,
        branch=chat.branch,
        created_at=chat.created_at,
        touched_at=chat.touched_at,
        expires_after=_seconds(chat.expires_after),
        reset=str(chat.reset_policy),
        purge_at=chat.purge_at,
        turn_count=listed.turns,
        preview=listed.preview,
        is_running=listed.is_running,
    )


def show_listed_as(shape: type[AnyListed], listed: ChatEntry, /, **others: Any) -> AnyListed:
    return shape(**asdict(show_listed(listed)), **others)


def show_turn(turn: StoredTurn, hidden: HiddenItems = NOTHING_HIDDEN) -> Turn:
    items, count = raws(turn.items), len(turn.input)
    return Turn(
        id=turn.id,
        number=turn.number,
        kind=turn.kind,
        parent=turn.parent,
        created_at=turn.created_at,
        committed_at=turn.committed_at,
        raw_input=items[:count],
        raw_output=items[count:],
        hidden=hidden.from_user,
        hidden_from_model=hidden.from_model,
        details=turn.details,
    )


def show_job(job: ListedJob) -> Job:
    return view(Job, job, chat=job.conversation, raw_input=raws(job.input))


def show_flags(turn: str, hidden: HiddenItems) -> TurnFlags:
    return TurnFlags(turn=TurnId(turn), hidden=hidden.from_user, hidden_from_model=hidden.from_model)


def show_attempt(attempt: StoredAttempt, steps: Iterable[Item], failure: Failure | None) -> Attempt:
    raw_input, raw_steps = raws(attempt.input), raws(steps)
    return view(Attempt, attempt, raw_input=raw_input, raw_steps=raw_steps, failure=failure)


def show_token(shape: type[AnyToken], token: StoredToken, /, **others: Any) -> AnyToken:
    return view(
        shape,
        token,
        scopes=tuple(sorted(token.scopes)),
        chat_scope=token.chat_scope or None,
        chat=token.conversation,
        max_tokens=token.bounds.max_tokens,
        n=token.bounds.n,
        **others,
    )


def show_share(shape: type[AnyShare], share: StoredShare, /, **others: Any) -> AnyShare:
    bounds = share.bounds
    return view(
        shape,
        share,
        scope=share.chat_scope or None,
        chat=share.conversation,
        visitor_expires_in=_seconds(share.visitor_lifetime),
        **{name: getattr(bounds, name) for name in bounds.__struct_fields__},
        stored_bytes=share.bytes,
        stored_chats=share.chats,
        **others,
    )


def show_new_share(share: StoredShare, code: str) -> NewShare:
    return show_share(NewShare, share, code=code, path=f"{SHARE_PATH}#{code}")


def show_change(change: LiveChange) -> Change:
    """Return the change without the fields that do not apply to its kind; its chat is the current one."""
    fields: dict[str, Any] = {"type": change.kind, "at": change.at}
    if change.conversation is not None:
        fields |= {"chat": change.conversation, "scope": change.scope or None}
    if change.turn is not None:
        fields["turn"] = change.turn
    if change.branch is not None:
        fields["branch"] = change.branch
    if change.kind in DETAIL:
        fields[DETAIL[change.kind]] = change.detail
    chat = change.chat
    if chat is not None:
        fields.setdefault("branch", chat.branch)
        fields |= {name: getattr(chat, name) for name in _CHAT_FIELDS}
    return Change(**{**_UNSET_FIELDS, **fields})
