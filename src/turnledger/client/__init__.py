"""The client of a server: survives lost connections and restarts, and never sends a turn twice.

client = Client("http://127.0.0.1:8383")
chat = client.chats.create()
for event in chat.send("Hello", stream=True):
    ...
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("httpx2") is None:  # it is loaded with the first client
    raise ModuleNotFoundError(
        "turnledger.client needs one more package, httpx2. Install it with: pip install 'turnledger[client]'",
        name="httpx2",
    )

from turnledger.api.access import ModelUsage, Share, Token
from turnledger.api.chats import ChatInfo, Deletion, Hit, Page
from turnledger.api.events import Change
from turnledger.api.turns import Attempt, Branch, ChatContext, Job, Sibling, Turn
from turnledger.client.core.exchange import Pacing, Retries, Timeouts
from turnledger.client.outbox.outbox import Outbox, UnsentMessage
from turnledger.client.shapes import Answer, ChatPage, Model, StopOutcome, TurnEvent, TurnRestarted
from turnledger.client.sync.access import Shares, Tokens
from turnledger.client.sync.chat import Chat, TurnStream
from turnledger.client.sync.client import Chats, Client
from turnledger.client.sync.outbox import UnsentMessages
from turnledger.client.sync.pages import Pages
from turnledger.client.sync.wire import Stream
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
from turnledger.model.transfer import ImportReport

if TYPE_CHECKING:
    from turnledger.client.aio.access import AsyncShares, AsyncTokens
    from turnledger.client.aio.chat import AsyncChat, AsyncTurnStream
    from turnledger.client.aio.client import AsyncChats, AsyncClient
    from turnledger.client.aio.outbox import AsyncUnsentMessages
    from turnledger.client.aio.pages import AsyncPages
    from turnledger.client.aio.wire import AsyncStream

__all__ = [
    "Answer",
    "ArgumentsDelta",
    "AsyncChat",
    "AsyncChats",
    "AsyncClient",
    "AsyncPages",
    "AsyncShares",
    "AsyncStream",
    "AsyncTokens",
    "AsyncTurnStream",
    "AsyncUnsentMessages",
    "Attempt",
    "Branch",
    "Change",
    "Chat",
    "ChatContext",
    "ChatInfo",
    "ChatPage",
    "Chats",
    "Client",
    "Deletion",
    "Hit",
    "ImportReport",
    "ItemAdded",
    "ItemDone",
    "Job",
    "Model",
    "ModelUsage",
    "Outbox",
    "Pacing",
    "Page",
    "Pages",
    "ReasoningDelta",
    "RefusalDelta",
    "Retries",
    "Share",
    "Shares",
    "Sibling",
    "StopOutcome",
    "Stream",
    "TextDelta",
    "Timeouts",
    "Token",
    "Tokens",
    "Turn",
    "TurnEvent",
    "TurnFinished",
    "TurnRestarted",
    "TurnResumed",
    "TurnStarted",
    "TurnStream",
    "UnsentMessage",
    "UnsentMessages",
]

_LAZY_MODULES = {
    "AsyncChat": "aio.chat",
    "AsyncChats": "aio.client",
    "AsyncClient": "aio.client",
    "AsyncPages": "aio.pages",
    "AsyncShares": "aio.access",
    "AsyncStream": "aio.wire",
    "AsyncTokens": "aio.access",
    "AsyncTurnStream": "aio.chat",
    "AsyncUnsentMessages": "aio.outbox",
}
"""Loaded at first use: the blocking client needs no asyncio, which takes a sixth of the import."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
