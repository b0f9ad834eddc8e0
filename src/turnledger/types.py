"""The types that methods of a ledger take and return, besides those at the top of the package."""

from __future__ import annotations

from turnledger.chats import Chats
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.outcome import TurnStatus
from turnledger.engine.conversations.read import ChatPage, SetAsideAttempt
from turnledger.engine.conversations.search import Hit, SearchPage
from turnledger.engine.lifecycle.moves import Sibling
from turnledger.engine.ports import Runner
from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.preview import ChatSnapshot
from turnledger.engine.turn.resent_request import OnDivergence
from turnledger.engine.turn.snapshot import ReducedContext
from turnledger.model.catalogue import ChatEntry, Page
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.check import Finding, Rule
from turnledger.model.conversation import Conversation, TitleSource, Usage
from turnledger.model.flags import Flags, HiddenItems
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.retention import Lifetime, Lifetimes, RetentionReport, RetiredConversation
from turnledger.model.transfer import ImportReport
from turnledger.model.turn import AttemptState, BeginKind, TurnKind

__all__ = [
    "AttemptState",
    "BeginKind",
    "ChangeKind",
    "ChatEntry",
    "ChatPage",
    "ChatSnapshot",
    "Chats",
    "Conversation",
    "Finding",
    "Flags",
    "HiddenItems",
    "Hit",
    "ImportReport",
    "Lifetime",
    "Lifetimes",
    "LiveChange",
    "OnDivergence",
    "Outcome",
    "Page",
    "ReducedContext",
    "ResetPolicy",
    "RetentionReport",
    "RetiredConversation",
    "Rule",
    "Runner",
    "SearchPage",
    "SentMessages",
    "SetAsideAttempt",
    "Sibling",
    "TitleSource",
    "TurnBlock",
    "TurnKind",
    "TurnStatus",
    "Usage",
]
