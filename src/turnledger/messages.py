"""Chat messages as items and back, and the repair of histories that other programs kept."""

from __future__ import annotations

from turnledger.model.messages.messages import items_of_messages, messages_of
from turnledger.model.messages.repair import PendingPolicy, RepairChange, RepairedHistory, repair

__all__ = [
    "PendingPolicy",
    "RepairChange",
    "RepairedHistory",
    "items_of_messages",
    "messages_of",
    "repair",
]
