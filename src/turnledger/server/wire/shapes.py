"""Chats and attempts as a caller may see them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from turnledger.api.chats import ListedChat
from turnledger.api.turns import Attempt
from turnledger.api.views import AnyChat, show_attempt
from turnledger.engine.conversations.read import SetAside
from turnledger.model.access.token import TokenScope
from turnledger.model.conversation import Conversation, NamedBy
from turnledger.server.access.auth import Principal
from turnledger.server.models.redacted import discreet_failure
from turnledger.server.openapi.endpoint import Parameter

ETAG = Parameter("Its revision, for `If-Match`.", {"type": "string", "pattern": '^"[0-9]+"$'})


def without_words(who: Principal, shown: AnyChat) -> AnyChat:
    """Remove the content of a chat for a caller that may change but not read chats. A title that a person
    gave stays."""
    if who.has(TokenScope.CHATS_READ):
        return shown
    withheld: dict[str, Any] = {"preview": ""} if isinstance(shown, ListedChat) else {}
    if shown.named_by != NamedBy.PERSON:
        withheld["title"] = None
    return replace(shown, **withheld)


def etag_of(conversation: Conversation) -> str:
    """Return the value for If-Match. It changes with what people edit, not with turns or generated titles."""
    return f'"{conversation.revision}"'


def aside_shown(aside: SetAside, who: Principal) -> Attempt:
    """Show an attempt outside the history; a narrowed caller sees no details of a failure."""
    attempt = aside.attempt
    failure = discreet_failure(attempt.failure) if who.is_narrowed else attempt.failure
    return show_attempt(attempt, aside.journal.items, failure)
