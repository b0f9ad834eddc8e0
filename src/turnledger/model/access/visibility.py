"""What somebody may see of an owner's conversations: all, those of one scope, or a single one."""

from __future__ import annotations

from msgspec import Struct

from turnledger.model.conversation import Conversation
from turnledger.model.ids import ConversationId

ONE_CHAT = "\x03"
"""What the name of a single conversation begins with, and that of no scope."""


class Within(Struct, frozen=True):
    """How a caller is narrowed. What lies beyond does not exist for him; None narrows nothing."""

    scope: str | None = None
    """The only scope of conversations that there is; empty: those that are in none."""
    chat: ConversationId | None = None
    """The only conversation that there is."""

    @property
    def is_everything(self) -> bool:
        """Whether he sees all that the owner has."""
        return self.scope is None and self.chat is None

    def sees(self, conversation: Conversation) -> bool:
        """Whether the conversation exists for him."""
        is_in_scope = self.scope is None or self.scope == conversation.scope
        return is_in_scope and (self.chat is None or self.chat == conversation.id)

    def reaches(self, scope: str, chat: ConversationId) -> bool:
        """Whether what is in this scope and conversation exists for him."""
        return (self.scope is None or self.scope == scope) and (self.chat is None or self.chat == chat)

    def covers(self, other: Within) -> bool:
        """Whether somebody who is narrowed so sees nothing that he does not see."""
        return self.scope in (None, other.scope) and self.chat in (None, other.chat)

    @property
    def label(self) -> str | None:
        """A name that nobody shares who sees something else; None for who sees everything."""
        return self.scope if self.chat is None else ONE_CHAT + self.chat

    @classmethod
    def labelled(cls, label: str | None) -> Within:
        """Who has this label."""
        if label is not None and label.startswith(ONE_CHAT):
            return cls(chat=ConversationId(label[len(ONE_CHAT) :]))
        return cls(label)


EVERYWHERE = Within()
"""How callers are narrowed that nobody narrows."""
