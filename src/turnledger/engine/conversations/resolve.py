"""Conversations: resolve an id or a conversation_key to its row in one transaction; rename; the list entry.

A chat that a turn created is listed from its first committed turn on, and named by its first words unless it
has a title. After that, a commit updates only the time of the last interaction and the preview, in rows that
it writes anyway.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.feed import record_change
from turnledger.engine.limits import UNLIMITED, Quota, check_quota
from turnledger.engine.ports import Tables
from turnledger.engine.tables.lanes import Lane
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
)
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import (
    EVERYWHERE,
    Branch,
    Conversation,
    ConversationState,
    Ticket,
    TitleSource,
    Within,
)
from turnledger.model.flags import hidden_from_user
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.retention import NEVER, ResetPolicy
from turnledger.model.turn import Turn, first_words, preview_of

JOBS = 100
"""Jobs read at once."""
PREVIEW_TURNS = 16
"""Turns searched for a preview text, if the last ones are all calls, results or hidden."""
ENDS = 1_000
"""The most branches ending with one turn whose preview is updated when its items are hidden."""


def is_entry_complete(conversation: Conversation) -> bool:
    """Return whether a turn adds nothing to the list entry of its chat but the time of use."""
    return conversation.internal or (conversation.is_listed and conversation.title is not None)


async def update_entry(
    tables: Tables,
    id: ConversationId,
    branch: Branch,
    turn: Turn,
    at: int | None = None,
    hidden: Collection[int] = (),
) -> Conversation | None:
    """List the chat of a turn that was just added to a branch. Without a title, name it by its first words,
    hidden items left out. `at` is the time of the interaction, if it was one. The revision stays, since no
    user gave the name. A side branch names no chat. Return the chat as it was before."""
    found = await tables.conversation(id)
    if found is None:
        return None
    entered = replace(found, is_listed=True, touched_at=max(found.touched_at, at or 0))
    if found.title is None and not found.internal and not branch.is_side:
        entered = with_words_as_title(entered, await _first_words(tables, branch, turn, hidden))
    if entered != found:
        await tables.save_conversation(entered)
    if entered.title != found.title and found.is_listed:
        await record_change(tables, ChangeKind.CHAT_CHANGED, entered, turn.committed_at)
    return found


def with_words_as_title(conversation: Conversation, title: str | None) -> Conversation:
    return replace(conversation, title=title, named_by=None if title is None else TitleSource.WORDS)


async def _first_words(tables: Tables, branch: Branch, turn: Turn, hidden: Collection[int]) -> str | None:
    """Return the first words of the branch; if its first turn has none, those of this turn."""
    is_first = turn.number == branch.start + 1
    before = None if is_first else await first_words_of(tables, branch)
    return before or first_words(turn.input, hidden)


async def first_words_of(tables: Tables, branch: Branch) -> str | None:
    """Return the first visible words of the branch's own turns. Shared turns name the other branch."""
    first = await tables.turns(branch.id, branch.start, branch.start + 1, 1)
    return first_words(first[0].input, await hidden_of(tables, first[0])) if first else None


async def hidden_of(tables: Tables, turn: Turn) -> Collection[int]:
    return hidden_from_user(await tables.flags((turn.id,))).get(turn.id, ())


async def rename_by_words(
    tables: Tables, conversation: Conversation, turn: Turn, before: Collection[int], now: int
) -> None:
    """Rename a chat that was named by the words of a turn, after flags of that turn have changed; `before`
    are the places hidden until now. A chat without a name may get one."""
    if conversation.internal or conversation.named_by not in (None, TitleSource.WORDS):
        return
    if conversation.title not in (None, first_words(turn.input, before)):
        return
    branch = await tables.branch(conversation.branch)
    title = await first_words_of(tables, branch) if branch is not None else None
    if title == conversation.title:
        return
    named = with_words_as_title(conversation, title)
    await tables.save_conversation(named)
    if named.is_listed:
        await record_change(tables, ChangeKind.CHAT_CHANGED, named, now)


async def preview_at(tables: Tables, turn: Turn | None) -> str:
    """Return the preview of a branch that ends with this turn: the beginning of its last visible text, or
    that of an earlier turn."""
    for _ in range(PREVIEW_TURNS):
        if turn is None:
            break
        if preview := preview_of(turn, await hidden_of(tables, turn)):
            return preview
        turn = await tables.turn(turn.parent) if turn.parent is not None else None
    return ""


async def update_previews(tables: Tables, conversation: Conversation, turn: Turn) -> None:
    """Update previews after flags of a turn have changed: of its own branch, of the current one, and of
    branches that were made from it."""
    for id in dict.fromkeys((turn.branch, conversation.branch, *await tables.empty_branches_at(turn, ENDS))):
        branch = await tables.branch(id)
        if branch is None or branch.head is None:
            continue
        preview = await preview_at(tables, await tables.turn(branch.head))
        if branch.preview != preview:
            await tables.save_branch(replace(branch, preview=preview))


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
    owner: str,
    id: ConversationId,
    branch: BranchId,
    now: int,
    **details: Any,
) -> Conversation:
    return Conversation(id=id, owner=owner, branch=branch, created_at=now, touched_at=now, **details)


async def find(tables: Tables, target: Target) -> Conversation | None:
    """Return the conversation that the target names, in any state."""
    if target.id is not None:
        found = await tables.conversation(target.id)
        return found if found is not None and target.sees(found) else None
    if target.conversation_key is not None:
        found = await tables.conversation_by_key(target.scope, target.conversation_key)
        return found if found is not None and target.sees(found) else None
    # A new one may exist already, if the result of its creation was lost.
    return await tables.conversation(target.fresh.id) if target.fresh else None


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


async def live_conversation(tables: Tables, id: ConversationId, now: int) -> Conversation:
    """Return the conversation with this id; raises as `check_live` does."""
    return await check_live(tables, await tables.conversation(id), now)


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
