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
    from turnledger.engine.block import TurnBlock
    from turnledger.engine.context import Context
    from turnledger.engine.ending import Ended
    from turnledger.engine.limits import Limits
    from turnledger.engine.matching import Sent
    from turnledger.engine.moving import Sibling
    from turnledger.engine.ports import Runner
    from turnledger.engine.reading import SetAside
    from turnledger.engine.resending import OnDivergence
    from turnledger.engine.retries import Retry
    from turnledger.engine.searching import Hit, SearchPage
    from turnledger.engine.standing import Standing
    from turnledger.engine.tokens import Admission
    from turnledger.engine.transaction import RunningTurn
    from turnledger.ledger import Ledger
    from turnledger.model.attempt import AttemptState, Began, OnBusy, OnFailure, OnStop
    from turnledger.model.change import ChangeKind, LiveChange
    from turnledger.model.conversation import Conversation, NamedBy
    from turnledger.model.event import ItemDone, TextDelta, TurnFinished, TurnStarted
    from turnledger.model.finding import Finding, Rule
    from turnledger.model.flags import Flags
    from turnledger.model.item import Item
    from turnledger.model.listing import Listed, Page
    from turnledger.model.messages import items_of_messages, messages_of
    from turnledger.model.repair import Change, Pending, Repaired, repair
    from turnledger.model.reset_policy import ResetPolicy
    from turnledger.model.retention import Retained, Retired
    from turnledger.model.share import Share, ShareKind
    from turnledger.model.token import Token, TokenScope
    from turnledger.model.transfer_report import ImportReport
    from turnledger.model.turn import Turn, TurnKind
    from turnledger.model.usage import Usage
    from turnledger.model.within import Within
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
    "Admission": "engine.tokens",
    "AttemptState": "model.attempt",
    "Began": "model.attempt",
    "Catalogue": "catalogue",
    "Change": "model.repair",
    "ChangeKind": "model.change",
    "Chat": "chat",
    "Context": "engine.context",
    "Conversation": "model.conversation",
    "Ended": "engine.ending",
    "Finding": "model.finding",
    "Flags": "model.flags",
    "Hit": "engine.searching",
    "ImportReport": "model.transfer_report",
    "Item": "model.item",
    "ItemDone": "model.event",
    "Ledger": "ledger",
    "Limits": "engine.limits",
    "Listed": "model.listing",
    "LiveChange": "model.change",
    "NamedBy": "model.conversation",
    "OnBusy": "model.attempt",
    "OnDivergence": "engine.resending",
    "OnFailure": "model.attempt",
    "OnStop": "model.attempt",
    "Page": "model.listing",
    "Pending": "model.repair",
    "Repaired": "model.repair",
    "ResetPolicy": "model.reset_policy",
    "Retained": "model.retention",
    "Retired": "model.retention",
    "Retry": "engine.retries",
    "Rule": "model.finding",
    "Runner": "engine.ports",
    "RunningTurn": "engine.transaction",
    "SearchPage": "engine.searching",
    "Sent": "engine.matching",
    "SetAside": "engine.reading",
    "Share": "model.share",
    "ShareKind": "model.share",
    "Shares": "shares",
    "Sibling": "engine.moving",
    "Standing": "engine.standing",
    "TextDelta": "model.event",
    "Token": "model.token",
    "TokenScope": "model.token",
    "Tokens": "tokens",
    "Transfer": "transfer",
    "Turn": "model.turn",
    "TurnBlock": "engine.block",
    "TurnFinished": "model.event",
    "TurnKind": "model.turn",
    "TurnStarted": "model.event",
    "Usage": "model.usage",
    "Visit": "shares",
    "Within": "model.within",
    "items_of_messages": "model.messages",
    "messages_of": "model.messages",
    "repair": "model.repair",
}
"""In which module each name is at home. It is imported when it is asked for: who only wants the client does
not wait for the engine and its stores."""


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
