"""Check what time ends: never a conversation in use or used a moment ago by true time, and nothing that is
kept for a day, since a schedule takes minutes. A lost answer is kept for minutes only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from turnledger.engine.conversations.resolve import ResolveRequest
from turnledger.engine.lifecycle.delete import EndDueRequest
from turnledger.engine.lifecycle.purge import PurgeRequest
from turnledger.engine.ports import Inspection, Tables
from turnledger.engine.turn.begin import BeginRequest
from turnledger.ledger import OWNER
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import ConversationId, TurnId
from turnledger.testing.simulation.world import World

MOST = 1_000
PERIOD = 150.0
"""Seconds without use after which conversations expire or are reset."""
LONG_TURN = 800.0
"""Seconds of a step of slow models: longer than PERIOD."""
USED_LATELY = 60.0
"""Seconds within which a use counts, whatever the clocks of processes show."""


@dataclass(frozen=True)
class Expirable:
    """Rows before a transaction that may end them by time."""

    conversations: Mapping[ConversationId, Conversation]
    in_use: frozenset[ConversationId]
    claims: frozenset[tuple[str, str]]
    attempts: Mapping[TurnId, ConversationId]


async def read_expirable(whole: Inspection, request: Any) -> Expirable | None:
    """Read the rows; None if the request ends nothing by time."""
    if not isinstance(request, BeginRequest | ResolveRequest | EndDueRequest | PurgeRequest):
        return None
    tables = whole.of(OWNER)
    found = [await tables.conversation(each.row) for each in await whole.all_conversations(None, MOST)]
    conversations = {each.id: each for each in found if each is not None}
    in_use = [each.id for each in conversations.values() if await _is_in_use(tables, each)]
    claims = frozenset(
        (each.owner, each.idempotency_key) for each in await whole.all_claims(None, MOST) if not each.is_lost
    )
    attempts = [await tables.attempt(each.row) for each in await whole.all_attempts(None, MOST)]
    of = {each.id: each.conversation for each in attempts if each is not None}
    return Expirable(conversations, frozenset(in_use), claims, of)


async def _is_in_use(tables: Tables, conversation: Conversation) -> bool:
    running = [await tables.branch(each.branch) for each in await tables.attempts(conversation.id, MOST)]
    is_running = any(each is not None and each.running is not None for each in running)
    return is_running or bool(await tables.tickets(conversation.branch))


async def check_ends(whole: Inspection, request: Any, before: Expirable, world: World) -> AsyncIterator[str]:
    """Find rows that this transaction ended too early."""
    after = await read_expirable(whole, request)
    assert after is not None
    for id, was in before.conversations.items():
        now = after.conversations[id]
        has_moved_on = was.conversation_key is not None and now.conversation_key is None
        if was.state is ConversationState.LIVE and (now.state is ConversationState.EXPIRED or has_moved_on):
            what = "moved on from" if has_moved_on else "expired"
            if id in before.in_use:
                yield f"{id} {what} while a turn ran or waited there"
            elif _was_used_lately(world, id):
                yield f"{id} {what} although it was used a moment ago"
        elif was.state is not now.state and now.state is ConversationState.PURGED:
            yield f"{id} was {was.state} and was purged before its time"
    for id, now in after.conversations.items():
        if world.ttl_ms is not None and now.expires_after != world.ttl_ms:
            yield f"{id} does not have the ttl of its store"
    if not isinstance(request, PurgeRequest):
        return
    for owner, key in before.claims - after.claims:
        yield f"the idempotency_key {key!r} of {owner} was forgotten before its time"
    for attempt in before.attempts.keys() - after.attempts.keys():
        home = after.conversations[before.attempts[attempt]]
        if home.state in (ConversationState.LIVE, ConversationState.DELETED):
            yield f"{attempt} was removed before its time"


def check_begin(
    before: Expirable, request: BeginRequest, begun_in: ConversationId, world: World
) -> list[str]:
    """Report a turn that began in a conversation after its `ttl`."""
    found = before.conversations.get(begun_in)
    if world.ttl_ms is None or found is None or begun_in in before.in_use:
        return []
    is_over = found.touched_at + world.ttl_ms <= request.round.due
    return [f"{request.attempt} began in {begun_in} although its ttl was over"] if is_over else []


def check_refusal(before: Expirable, request: Any, world: World) -> list[str]:
    """Report a wrong refusal of a conversation as expired."""
    id = request.target.id if isinstance(request, BeginRequest | ResolveRequest) else None
    key = request.key if isinstance(request, BeginRequest) else None
    if key is not None and (request.target.owner, key.text) in before.claims:
        return []  # a retry belongs where it first began
    found = before.conversations.get(id) if id is not None else None
    if found is None or found.state is not ConversationState.LIVE:
        return []
    if found.id in before.in_use:
        return [f"{id} was refused as expired while a turn ran or waited there"]
    if _was_used_lately(world, found.id):
        return [f"{id} was refused as expired although it was used a moment ago"]
    return []


def _was_used_lately(world: World, id: ConversationId) -> bool:
    used = world.used_at.get(id)
    return used is not None and asyncio.get_running_loop().time() - used < USED_LATELY


def note_use(world: World, attempt: TurnId, conversation: ConversationId) -> None:
    """Record the begin or end of a turn as use, unless its request is no interaction."""
    request = world.requests.get(attempt)
    if request is None or request.is_interaction:
        world.used_at[conversation] = asyncio.get_running_loop().time()
