"""The same ledger for blocking programs, on an event loop of its own in one thread.

ledger = Ledger.open("sqlite:///chats.db")
chat = ledger.conversation(conversation_key="user-42/support")
with chat.turn("Where is my order?") as turn:
    for text in call_model(turn.messages):
        turn.emit(text)

Its methods take and return what those of `turnledger.Ledger` do, without `await`.
"""

from turnledger.sync.block import BlockingRunner, TurnBlock
from turnledger.sync.chat import Chat
from turnledger.sync.chats import Chats
from turnledger.sync.ledger import Ledger
from turnledger.sync.running_turn import RunningTurn

__all__ = ["BlockingRunner", "Chat", "Chats", "Ledger", "RunningTurn", "TurnBlock"]
