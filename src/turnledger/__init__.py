"""Turnledger keeps conversations for chat apps and agents: every turn is a transaction.

ledger = await Ledger.open("sqlite:///chats.db")
chat = await ledger.conversation(conversation_key="user-42/support")
async with chat.turn("Where is my order?") as turn:
    async for text in call_model(turn.messages):
        turn.emit(text)
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnledger import errors
    from turnledger.catalogue import Catalogue
    from turnledger.chat import Chat
    from turnledger.engine.access.tokens import Admission
    from turnledger.engine.attempt.client_retries import Retry
    from turnledger.engine.attempt.end import Ended
    from turnledger.engine.attempt.outcome import Standing
    from turnledger.engine.conversations.read import SetAside
    from turnledger.engine.conversations.search import Hit, SearchPage
    from turnledger.engine.history.context import Context
    from turnledger.engine.lifecycle.moves import Sibling
    from turnledger.engine.limits import Limits
    from turnledger.engine.ports import Runner
    from turnledger.engine.resend.match import Sent
    from turnledger.engine.turn.block import TurnBlock
    from turnledger.engine.turn.resend import OnDivergence
    from turnledger.engine.turn.running_turn import RunningTurn
    from turnledger.ledger import Ledger
    from turnledger.model.access.share import Share, ShareKind
    from turnledger.model.access.token import Token, TokenScope
    from turnledger.model.attempt import AttemptState, Began, OnBusy, OnFailure, OnStop
    from turnledger.model.catalogue import Listed, Page
    from turnledger.model.change import ChangeKind, LiveChange
    from turnledger.model.check import Finding, Rule
    from turnledger.model.conversation import Conversation, NamedBy, Usage, Within
    from turnledger.model.event import ItemDone, TextDelta, TurnFinished, TurnStarted
    from turnledger.model.flags import Flags
    from turnledger.model.item import Item
    from turnledger.model.messages.messages import items_of_messages, messages_of
    from turnledger.model.messages.repair import Change, Pending, Repaired, repair
    from turnledger.model.retention import ResetPolicy, Retained, Retired
    from turnledger.model.transfer import ImportReport
    from turnledger.model.turn import Turn, TurnKind
    from turnledger.shares import Shares, Visit
    from turnledger.tokens import Tokens
    from turnledger.transfer import Transfer

# A library is silent unless its user configures logging.
logging.getLogger("turnledger").addHandler(logging.NullHandler())

__all__ = [
    "Admission",
    "AttemptState",
    "Began",
    "Catalogue",
    "Change",
    "ChangeKind",
    "Chat",
    "Context",
    "Conversation",
    "Ended",
    "Finding",
    "Flags",
    "Hit",
    "ImportReport",
    "Item",
    "ItemDone",
    "Ledger",
    "Limits",
    "Listed",
    "LiveChange",
    "NamedBy",
    "OnBusy",
    "OnDivergence",
    "OnFailure",
    "OnStop",
    "Page",
    "Pending",
    "Repaired",
    "ResetPolicy",
    "Retained",
    "Retired",
    "Retry",
    "Rule",
    "Runner",
    "RunningTurn",
    "SearchPage",
    "Sent",
    "SetAside",
    "Share",
    "ShareKind",
    "Shares",
    "Sibling",
    "Standing",
    "TextDelta",
    "Token",
    "TokenScope",
    "Tokens",
    "Transfer",
    "Turn",
    "TurnBlock",
    "TurnFinished",
    "TurnKind",
    "TurnStarted",
    "Usage",
    "Visit",
    "Within",
    "errors",
    "items_of_messages",
    "messages_of",
    "repair",
]

_HOMES = {
    "Admission": "engine.access.tokens",
    "AttemptState": "model.attempt",
    "Began": "model.attempt",
    "Catalogue": "catalogue",
    "Change": "model.messages.repair",
    "ChangeKind": "model.change",
    "Chat": "chat",
    "Context": "engine.history.context",
    "Conversation": "model.conversation",
    "Ended": "engine.attempt.end",
    "Finding": "model.check",
    "Flags": "model.flags",
    "Hit": "engine.conversations.search",
    "ImportReport": "model.transfer",
    "Item": "model.item",
    "ItemDone": "model.event",
    "Ledger": "ledger",
    "Limits": "engine.limits",
    "Listed": "model.catalogue",
    "LiveChange": "model.change",
    "NamedBy": "model.conversation",
    "OnBusy": "model.attempt",
    "OnDivergence": "engine.turn.resend",
    "OnFailure": "model.attempt",
    "OnStop": "model.attempt",
    "Page": "model.catalogue",
    "Pending": "model.messages.repair",
    "Repaired": "model.messages.repair",
    "ResetPolicy": "model.retention",
    "Retained": "model.retention",
    "Retired": "model.retention",
    "Retry": "engine.attempt.client_retries",
    "Rule": "model.check",
    "Runner": "engine.ports",
    "RunningTurn": "engine.turn.running_turn",
    "SearchPage": "engine.conversations.search",
    "Sent": "engine.resend.match",
    "SetAside": "engine.conversations.read",
    "Share": "model.access.share",
    "ShareKind": "model.access.share",
    "Shares": "shares",
    "Sibling": "engine.lifecycle.moves",
    "Standing": "engine.attempt.outcome",
    "TextDelta": "model.event",
    "Token": "model.access.token",
    "TokenScope": "model.access.token",
    "Tokens": "tokens",
    "Transfer": "transfer",
    "Turn": "model.turn",
    "TurnBlock": "engine.turn.block",
    "TurnFinished": "model.event",
    "TurnKind": "model.turn",
    "TurnStarted": "model.event",
    "Usage": "model.conversation",
    "Visit": "shares",
    "Within": "model.conversation",
    "items_of_messages": "model.messages.messages",
    "messages_of": "model.messages.messages",
    "repair": "model.messages.repair",
}
"""Maps public names to modules. They are imported lazily: a program that needs only the client does not load
the engine and its stores."""


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("turnledger.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'turnledger' has no attribute {name!r}")
    found = getattr(import_module(f"turnledger.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
