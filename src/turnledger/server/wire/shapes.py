"""Chats and attempts as a caller may see them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from turnledger.api.chats import ListedChat
from turnledger.api.turns import Attempt, TurnState
from turnledger.api.views import AnyChat, show_attempt, show_listed, show_turn
from turnledger.chats import Chats
from turnledger.engine.conversations.read import SetAsideAttempt
from turnledger.model.access.token import TokenScope
from turnledger.model.conversation import Conversation, TitleSource
from turnledger.model.flags import NOTHING_HIDDEN
from turnledger.server.access.auth import Principal
from turnledger.server.models.redaction import redact_failure
from turnledger.server.openapi.endpoint import Parameter

ETAG = Parameter("The revision of the chat, for `If-Match`.", {"type": "string", "pattern": '^"[0-9]+"$'})


def without_content(principal: Principal, chat: AnyChat) -> AnyChat:
    """Remove the content of a chat for a caller that may change but not read chats. A title that a person
    gave stays."""
    if principal.has(TokenScope.CHATS_READ):
        return chat
    withheld: dict[str, Any] = {"preview": ""} if isinstance(chat, ListedChat) else {}
    if chat.named_by != TitleSource.PERSON:
        withheld["title"] = None
    return replace(chat, **withheld)


def etag_of(conversation: Conversation) -> str:
    """Return the value for If-Match. It changes with what people edit, not with turns or generated titles."""
    return f'"{conversation.revision}"'


def show_attempt_aside(aside: SetAsideAttempt, principal: Principal) -> Attempt:
    """Show an attempt outside the history; a narrowed caller sees no details of a failure."""
    attempt = aside.attempt
    failure = redact_failure(attempt.failure) if principal.is_narrowed else attempt.failure
    return show_attempt(attempt, aside.journal.items, failure)


async def read_state(chats: Chats, principal: Principal, turn: str) -> TurnState:
    """Read the state of a turn, and its chat; a narrowed caller sees no details of a failure. Raises
    TurnNotFound, ConversationDeleted or ConversationExpired."""
    chat = await chats.of_turn(turn)
    status = await chat.status(turn)
    [hidden] = await chat.hidden([status.turn]) if status.turn is not None else [NOTHING_HIDDEN]
    return TurnState(
        turn=show_turn(status.turn, hidden) if status.turn is not None else None,
        state=status.state,
        failure=redact_failure(status.failure) if principal.is_narrowed else status.failure,
        details=status.details,
        chat=without_content(principal, show_listed(status.chat)),
        branch=status.turn.branch if status.turn is not None else None,
    )
