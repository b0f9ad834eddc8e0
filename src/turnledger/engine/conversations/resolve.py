"""Resolve an id or a conversation_key to the row of its conversation, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.feed import record_change
from turnledger.engine.limits import UNLIMITED, Quota, check_quota
from turnledger.engine.ports import Tables
from turnledger.engine.tables.lanes import Lane
from turnledger.errors import BranchNotFound, ConversationDeleted, ConversationExpired, ConversationNotFound
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import (
    EVERYWHERE,
    Branch,
    Conversation,
    ConversationState,
    Ticket,
    Within,
)
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.reset_policy import NEVER, ResetPolicy

JOBS = 100
"""Jobs read at once."""


class Target(Struct, frozen=True):
    """Names a conversation: by id, by conversation_key, or by neither (a new one).

    `fresh` is the row to insert if there is none yet, or if the reset policy of the key demands a new one;
    without it, nothing is created. `reset_policy` replaces that of the key; None keeps it. A key is looked up
    in `scope`. A conversation outside `within` does not exist for the caller.
    """

    owner: str
    id: ConversationId | None = None
    conversation_key: str | None = None
    fresh: Conversation | None = None
    reset_policy: ResetPolicy | None = None
    scope: str = ""
    within: Within = EVERYWHERE
    expires_after: int | None = None
    """As the caller chose it; `fresh` may have that of its scope."""

    def at(self, id: ConversationId) -> Target:
        """Return the same request, addressed to an existing conversation."""
        return Target(self.owner, id, within=self.within)

    def sees(self, conversation: Conversation) -> bool:
        return self.within.sees(conversation)

    def may_repeat(self, conversation: Conversation) -> bool:
        """Return whether a request to this target can repeat one that went to the conversation. It names its
        id, or, in the same scope, its conversation_key, the one it had before a reset, or neither."""
        if self.id is not None and self.id == conversation.id:
            return True
        if self.scope != conversation.scope:
            return False
        if self.conversation_key is not None and self.conversation_key in keys_of(conversation):
            return True
        return self.id is None and self.conversation_key is None

    def is_unambiguous(self, conversation: Conversation) -> bool:
        """Return whether its conversation_key names the conversation, and no policy could change that. A key
        names one at a time, so no other needs to be read."""
        return (
            self.conversation_key is not None
            and self.conversation_key == conversation.conversation_key
            and self.scope == conversation.scope
            and (self.within.chat is None or self.within.chat == conversation.id)
            and not conversation.is_deleted
            and conversation.reset_policy is NEVER
            and self.reset_policy is None
        )


def keys_of(conversation: Conversation) -> tuple[str | None, str | None]:
    """Return its conversation_key, and the one it had before a reset."""
    return conversation.conversation_key, conversation.former_conversation_key


def new_conversation(
    owner: str, id: ConversationId, branch: BranchId, now: int, **details: Any
) -> Conversation:
    return Conversation(id=id, owner=owner, branch=branch, created_at=now, touched_at=now, **details)


async def find(tables: Tables, target: Target) -> Conversation | None:
    """Return the conversation that the target names, in any state."""
    if target.id is not None:
        found = await tables.conversation(target.id)
    elif target.conversation_key is not None:
        found = await tables.conversation_by_key(target.scope, target.conversation_key)
    else:  # a new one may exist already, if the result of its creation was lost
        return await tables.conversation(target.fresh.id) if target.fresh else None
    return found if found is not None and target.sees(found) else None


async def resolve(
    tables: Tables, target: Target, now: int, *, is_interaction: bool = True, quota: Quota = UNLIMITED
) -> Conversation:
    """Return the live conversation that the target names; insert it if allowed. If its reset policy is due,
    an interaction replaces it, and nothing else does.

    Raises ConversationNotFound, ConversationDeleted or ConversationExpired, and StorageFull if there is no
    room to insert it."""
    found = await find(tables, target)
    if found is None and target.fresh is not None and target.id is None:
        return await insert(tables, target.fresh, quota)
    if found is not None and is_interaction and await is_stale(tables, target, found, now):
        assert target.fresh is not None  # noqa: S101 - else it is not stale
        policy = target.reset_policy or found.reset_policy
        return await hand_over_key(tables, found, target.fresh, policy, quota, target.expires_after)
    found = await check_live(tables, found, now)
    if changes_policy(target, found):
        found = replace(found, reset_policy=target.reset_policy)
        await tables.save_conversation(found)
    return found


async def seen_lane(
    tables: Tables, target: Target, seen: ConversationId | None, lease: LeaseId
) -> Lane | None:
    """Return the lane of a conversation that was found earlier under the target's conversation_key, if the
    key still names it. Saves most requests with a key one lookup."""
    if seen is None or target.conversation_key is None or target.id is not None:
        return None
    found = await tables.lane(seen, lease)
    return found if found is not None and target.is_unambiguous(found.conversation) else None


async def insert(tables: Tables, fresh: Conversation, quota: Quota = UNLIMITED) -> Conversation:
    await check_quota(tables, quota, adds_chat=True)
    await tables.add_conversation(fresh)
    await tables.add_branch(Branch(id=fresh.branch, conversation=fresh.id))
    if fresh.is_listed:
        await record_change(tables, ChangeKind.CHAT_CREATED, fresh, fresh.created_at)
    return fresh


async def hand_over_key(
    tables: Tables,
    before: Conversation,
    fresh: Conversation,
    reset_policy: ResetPolicy,
    quota: Quota = UNLIMITED,
    expires_after: int | None = None,
) -> Conversation:
    """Give the conversation_key to a fresh conversation, which inherits the settings, and the expiry unless
    the caller chose one. The old one stays, with its running and queued turns, and records the key it had."""
    if expires_after is None:
        expires_after = before.expires_after
    key = before.conversation_key
    await tables.save_conversation(replace(before, conversation_key=None, former_conversation_key=key))
    after = replace(
        fresh,
        internal=before.internal or fresh.internal,
        expires_after=fresh.expires_after if expires_after is None else expires_after,
        reset_policy=reset_policy,
    )
    return await insert(tables, after, quota)


async def is_stale(tables: Tables, target: Target, found: Conversation, now: int) -> bool:
    """Return whether the conversation_key must move on: its conversation is over by policy and unused."""
    policy = target.reset_policy or found.reset_policy
    if policy is NEVER or target.conversation_key is None or target.fresh is None or target.id is not None:
        return False
    if found.id == target.fresh.id or not policy.is_over(found.created_at, found.touched_at, now):
        return False
    return not await is_in_use(tables, found)


async def is_in_use(tables: Tables, found: Conversation) -> bool:
    """Return whether a turn runs or waits there, on any branch, which is an interaction in progress."""
    if await tables.tickets(found.branch) or await tables.running_in(found.id):
        return True
    return bool(await tickets_beside(tables, found))


async def tickets_beside(tables: Tables, conversation: Conversation) -> list[Ticket]:
    """Return the tickets of durable work that waits on side branches: an owner has few jobs."""
    found: list[Ticket] = []
    after: TurnId | None = None
    while page := await tables.jobs(after, JOBS):
        for job in page:
            if job.conversation == conversation.id and (ticket := await tables.ticket(job.id)) is not None:
                found += [ticket] if ticket.branch != conversation.branch else []
        after = page[-1].id
    return found


def changes_policy(target: Target, found: Conversation) -> bool:
    return target.reset_policy is not None and target.reset_policy != found.reset_policy


async def check_live(tables: Tables, found: Conversation | None, now: int) -> Conversation:
    """Return the conversation if it is live; while in use, it does not expire."""
    if found is None:
        raise ConversationNotFound
    if found.is_deleted:
        raise ConversationDeleted(restorable_until=found.purge_at)
    if await has_expired(tables, found, now):
        raise ConversationExpired
    return found


async def live_conversation(
    tables: Tables, id: ConversationId, now: int, within: Within = EVERYWHERE
) -> Conversation:
    """Return the conversation with this id, if the caller sees it; raises as `check_live` does."""
    found = await tables.conversation(id)
    return await check_live(tables, found if found is not None and within.sees(found) else None, now)


async def branch_shown(tables: Tables, conversation: Conversation) -> Branch:
    """Return the current branch of a conversation."""
    branch = await tables.branch(conversation.branch)
    if branch is None:
        raise BranchNotFound
    return branch


async def has_expired(tables: Tables, found: Conversation, now: int) -> bool:
    """Return whether its time without interaction is over, and it is not in use."""
    if found.state is ConversationState.EXPIRED:
        return True
    return found.is_expired(now) and not await is_in_use(tables, found)


@dataclass(frozen=True)
class ResolveRequest:
    target: Target
    now: int
    quota: Quota = UNLIMITED


async def resolve_now(tables: Tables, request: ResolveRequest) -> Conversation:
    return await resolve(tables, request.target, request.now, quota=request.quota)


async def resolve_settled(tables: Tables, request: ResolveRequest) -> Conversation | None:
    """Resolve by reading alone; return None if that needs a write."""
    target = request.target
    found = await find(tables, target)
    if found is None and target.fresh is not None:
        return None
    if found is not None and await is_stale(tables, target, found, request.now):
        return None
    live = await check_live(tables, found, request.now)
    return None if changes_policy(target, live) else live
