"""Standing: where a turn stands, and the chat around it, in one look."""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.engine.ending import Ended
from turnledger.engine.looking import Waits
from turnledger.engine.outcome import SoughtRequest, sought
from turnledger.engine.ports import Tables
from turnledger.engine.reading import InfoRequest, summary
from turnledger.errors import TurnNotFound
from turnledger.model.attempt import AttemptState, Failure
from turnledger.model.listing import Listed
from turnledger.model.turn import Turn

QUEUED = "queued"
"""Where a turn stands that is no attempt yet."""


@dataclass(frozen=True)
class Standing:
    """Where a turn stands, and its chat at the same moment."""

    state: str
    """One of AttemptState, or QUEUED."""
    turn: Turn | None
    """None unless it is committed."""
    failure: Failure | None
    chat: Listed


async def standing(tables: Tables, request: SoughtRequest) -> Standing:
    """Tell where a turn of a conversation stands; waits for nothing, and ends nothing. Raises TurnNotFound,
    ConversationDeleted and its like."""
    found = await sought(tables, request)
    if found is None:
        raise TurnNotFound
    chat = await summary(tables, InfoRequest(request.owner, request.conversation, request.now))
    if isinstance(found, Ended):
        return Standing(found.state, found.turn, found.failure, chat)
    return Standing(QUEUED if isinstance(found, Waits) else AttemptState.RUNNING, None, None, chat)
