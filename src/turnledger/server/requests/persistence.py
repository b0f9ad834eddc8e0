"""Whether a turn is stored: by the server, the scope of its chat, and the request."""

from __future__ import annotations

from collections.abc import Iterator

from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.policies import OnDisconnect
from turnledger.hosting import Host
from turnledger.model.conversation import Within
from turnledger.model.turn import OnFailure, OnStop
from turnledger.server.config.settings import ChatSettings
from turnledger.server.errors import NO_RETRY, RequestRefused
from turnledger.server.requests.turn import ChatRequest

UNKEPT = "unkept"
"""The conversation state of a turn that is not stored."""
NOT_KEPT = "not_kept"
IS_KEPT = "conversation_is_kept"


class PersistencePolicy:
    """Whether a turn is stored, and which requests are refused if it is not.

    The operator decides, for the server and for each scope of chats; a request can only opt out. A turn that
    is not stored uses only the messages of its request. Headers that need the store are refused by name: to
    ignore them silently would look like a conversation that has forgotten.
    """

    def __init__(self, settings: ChatSettings, host: Host) -> None:
        self._host = host
        self._default = settings.keep
        self._scopes = {name: scope.keep for name, scope in settings.scopes.items() if scope.keep is not None}
        self._is_same_for_all = all(keep == settings.keep for keep in self._scopes.values())
        self.keeps_all = self._default and self._is_same_for_all
        """Whether only a request can opt out."""

    def keeps(self, scope: str) -> bool:
        return self._scopes.get(scope, self._default)

    def import_refusal(self, scope: str) -> str | None:
        """Return why chats of this scope cannot be imported; None if they can."""
        return None if self.keeps(scope) else f"{self._reason(scope)}."

    def check(self, scope: str) -> None:
        """Raise RequestRefused (409 `not_kept`) if chats of this scope are not stored: none can be created or
        changed."""
        if not self.keeps(scope):
            message = f"{self._reason(scope)}. Use /v1/chat/completions with all messages of the chat."
            raise RequestRefused(409, NOT_KEPT, message, headers=(NO_RETRY,))

    async def is_kept(self, request: ChatRequest, owner: str, within: Within) -> bool:
        """Return whether this turn is stored. Raises RequestRefused if it is not, and its request needs the
        store; ConversationUnavailable if the scope of a named chat decides, and the chat does not exist."""
        if not request.opts_out and not request.has_conversation:
            return False
        scope = await self._scope_of(request, owner, within)
        is_allowed = self.keeps(scope)
        if is_allowed and not request.opts_out:
            return True
        reason = "X-Conversation-Keep is no" if is_allowed else self._reason(scope)
        for header, remedy in _needs_store(request):
            raise RequestRefused(400, NOT_KEPT, f"{header}: {reason}. {remedy}", param=header)
        if request.conversation is not None or await self._is_named(request, scope, owner):
            remedy = "Send all messages without X-Conversation-Id, or with X-Conversation-Messages: full."
            message = f"{reason}, but this conversation is stored. {remedy}"
            raise RequestRefused(409, IS_KEPT, message, param="X-Conversation-Id", headers=(NO_RETRY,))
        return False

    async def _scope_of(self, request: ChatRequest, owner: str, within: Within) -> str:
        if request.conversation is not None and not self._is_same_for_all:
            # A chat stays in the scope it was created in, whatever the request names.
            chat = await self._host.ledger.for_owner(owner, within=within).conversation(request.conversation)
            return chat.scope
        return request.scope or within.scope or ""

    async def _is_named(self, request: ChatRequest, scope: str, owner: str) -> bool:
        """Return whether the conversation_key names an existing chat, and its client may rely on the stored
        history because it does not send all of it."""
        if request.conversation_key is None or request.policies.messages is SentMessages.FULL:
            return False
        return await self._host.is_named(request.conversation_key, owner=owner, scope=scope)

    def _reason(self, scope: str) -> str:
        return (
            "The chats of this scope are not stored"
            if scope in self._scopes
            else "This server stores no chats"
        )


def _needs_store(request: ChatRequest) -> Iterator[tuple[str, str]]:
    """Yield the headers that need the store, and what to send instead."""
    policies = request.policies
    if request.idempotency_key is not None:
        yield "Idempotency-Key", "Nothing is stored to replay. Omit it."
    if request.must_exist:
        yield "X-Conversation-Expect", "Nothing can be continued. Omit it, and send all messages."
    if request.context is not None:
        yield "X-Context", "The model is shown the messages of the request. Omit it."
    if policies.messages is SentMessages.NEW:
        yield "X-Conversation-Messages", "No earlier messages are stored. Send all messages."
    if policies.on_disconnect not in (None, OnDisconnect.DISCARD):
        yield "X-Turn-On-Disconnect", "A client that left cannot read it later. Send discard, or omit it."
    if policies.on_stop is OnStop.KEEP:
        yield "X-Turn-On-Stop", "A partial answer cannot be stored. Send discard, or omit it."
    if policies.on_failure is OnFailure.KEEP:
        yield "X-Turn-On-Failure", "A partial answer cannot be stored. Omit it."
