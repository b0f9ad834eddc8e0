"""Turnledger keeps conversations for chat apps and agents: every turn is a transaction.

ledger = await Ledger.open("sqlite:///chats.db")
chat = await ledger.conversation(conversation_key="user-42/support")
async with chat.turn("Where is my order?") as turn:
    async for text in call_model(turn.messages):
        turn.emit(text)

Beside these names: `turnledger.types` (what methods take and return), `turnledger.messages` (chat messages),
`turnledger.hosting` (for servers), `turnledger.client` (for programs that talk to one), `turnledger.sync`
(the same without `await`), `turnledger.asgi` (turns as responses of Starlette and FastAPI).
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnledger import errors
    from turnledger.chat import Chat
    from turnledger.engine.history.context import Context
    from turnledger.engine.limits import Limits
    from turnledger.engine.turn.running_turn import RunningTurn
    from turnledger.ledger import Ledger
    from turnledger.model.event import (
        ArgumentsDelta,
        ItemAdded,
        ItemDone,
        ReasoningDelta,
        RefusalDelta,
        TextDelta,
        TurnFinished,
        TurnResumed,
        TurnStarted,
    )
    from turnledger.model.item import Item
    from turnledger.model.turn import OnBusy, OnFailure, OnStop, Turn

# A library is silent unless its user configures logging.
logging.getLogger("turnledger").addHandler(logging.NullHandler())

__all__ = [
    "ArgumentsDelta",
    "Chat",
    "Context",
    "Item",
    "ItemAdded",
    "ItemDone",
    "Ledger",
    "Limits",
    "OnBusy",
    "OnFailure",
    "OnStop",
    "ReasoningDelta",
    "RefusalDelta",
    "RunningTurn",
    "TextDelta",
    "Turn",
    "TurnFinished",
    "TurnResumed",
    "TurnStarted",
    "errors",
]

_HOMES = {
    "ArgumentsDelta": "model.event",
    "Chat": "chat",
    "Context": "engine.history.context",
    "Item": "model.item",
    "ItemAdded": "model.event",
    "ItemDone": "model.event",
    "Ledger": "ledger",
    "Limits": "engine.limits",
    "OnBusy": "model.turn",
    "OnFailure": "model.turn",
    "OnStop": "model.turn",
    "ReasoningDelta": "model.event",
    "RefusalDelta": "model.event",
    "RunningTurn": "engine.turn.running_turn",
    "TextDelta": "model.event",
    "Turn": "model.turn",
    "TurnFinished": "model.event",
    "TurnResumed": "model.event",
    "TurnStarted": "model.event",
}
"""Maps public names to modules, which are imported lazily: the client alone needs no engine and no store."""


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
