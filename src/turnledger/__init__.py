"""Turnledger keeps conversations for chat apps and agents: every turn is a transaction.

ledger = await Ledger.open("sqlite:///chats.db")
chat = await ledger.conversation(conversation_key="user-42/support")
async with chat.turn("Where is my order?") as turn:
    async for text in call_model(turn.messages):
        turn.emit(text)
"""

import logging

from turnledger import errors
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Runner
from turnledger.engine.transaction import RunningTurn
from turnledger.ledger import Chat, Ledger
from turnledger.model.attempt import AttemptState, OnBusy, OnFailure, OnStop
from turnledger.model.conversation import Conversation
from turnledger.model.finding import Finding, Rule
from turnledger.model.item import Item
from turnledger.model.turn import Turn, TurnKind

# A library is silent unless its user configures logging.
logging.getLogger("turnledger").addHandler(logging.NullHandler())

__all__ = [
    "AttemptState",
    "Chat",
    "Conversation",
    "Finding",
    "Item",
    "Ledger",
    "Limits",
    "OnBusy",
    "OnFailure",
    "OnStop",
    "Rule",
    "Runner",
    "RunningTurn",
    "Turn",
    "TurnKind",
    "errors",
]
