"""Conversations: from an id or a conversation_key to the row in one atomic step; rename and list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.conversations.entry import named_by_words, words_of
from turnledger.engine.feed.changes import tell
from turnledger.engine.limits import BOUNDLESS, Room, check_room
from turnledger.engine.ports import Tables
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
    RevisionConflict,
)
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import EVERYWHERE, Branch, Conversation, ConversationState, NamedBy, Within
from turnledger.model.ids import BranchId, ConversationId, LeaseId
from turnledger.model.retention import NEVER, ResetPolicy
from turnledger.model.usage import of_details


class Target(Struct, frozen=True):
    """Which conversation: an id, or a conversation_key, or neither (a new one).

    `fresh` names the row to insert where the key or nothing is there yet, or where what the key names is
    over by its policy; without it, nothing is created. `reset_policy` is what the key shall have from now
    on; without it, it keeps what it has. A key is looked up in `scope`. What is not
    `within` what the caller may see does not exist.
    """

    owner: str
    id: ConversationId | None = None
    conversation_key: str | None = None
    fresh: Conversation | None = None
    reset_policy: ResetPolicy | None = None
    scope: str = ""
    within: Within = EVERYWHERE

    def at(self, id: ConversationId) -> Target:
        """The same request, sent to a conversation that is there already."""
        return Target(self.owner, id, within=self.within)

    def sees(self, conversation: Conversation) -> bool:
        """Whether the conversation exists for who asks."""
        return self.within.sees(conversation)

    def may_mean(self, conversation: Conversation) -> bool:
        """Whether a request to this target can be a repetition of one that went to the conversation: it names
        its id, or a conversation_key that names it or did so until a reset, or nothing, in its scope."""
        if self.id is not None and self.id == conversation.id:
            return True
        if self.scope != conversation.scope:
            return False
        if self.conversation_key is not None and self.conversation_key in keys_of(conversation):
            return True
        return self.id is None and self.conversation_key is None

    def is_plainly(self, conversation: Conversation) -> bool:
        """Whether its conversation_key names the conversation, and no policy could change that: a key names
        one at a time, so nothing else need be looked at."""
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
    """The conversation_key that names it, and the one that did so until a reset."""
    return conversation.conversation_key, conversation.former_conversation_key


def new_conversation(
    owner: str,
    id: ConversationId,
    branch: BranchId,
    now: int,
    **details: Any,
) -> Conversation:
    """A conversation that is not stored yet."""
    return Conversation(id=id, owner=owner, branch=branch, created_at=now, touched_at=now, **details)


async def find(tables: Tables, target: Target) -> Conversation | None:
    """The conversation that the target names, in whatever state it is."""
    if target.id is not None:
        found = await tables.conversation(target.owner, target.id)
        return found if found is not None and target.sees(found) else None
    if target.conversation_key is not None:
        found = await tables.conversation_by_key(target.owner, target.scope, target.conversation_key)
        return found if found is not None and target.sees(found) else None
    # A new one may be there already, if the answer that told of it was lost.
    return await tables.conversation(target.owner, target.fresh.id) if target.fresh else None


async def resolve(
    tables: Tables, target: Target, now: int, *, is_interaction: bool = True, room: Room = BOUNDLESS
) -> Conversation:
    """Return the live conversation that the target names, inserting it where it may. One that is over by its
    reset policy is replaced by an interaction, and by nothing else.
    Raises ConversationNotFound, ConversationDeleted or ConversationExpired, and StorageFull where it would
    insert one for which there is no room; never starts one empty."""
    found = await find(tables, target)
    if found is None and target.fresh is not None and target.id is None:
        return await insert(tables, target.fresh, room)
    if found is not None and is_interaction and await is_stale(tables, target, found, now):
        assert target.fresh is not None  # noqa: S101 - else it is not stale
        return await succeed(tables, found, target.fresh, target.reset_policy or found.reset_policy, room)
    found = await check_live(tables, found, now)
    if changes_policy(target, found):
        found = replace(found, reset_policy=target.reset_policy)
        await tables.save_conversation(found)
    return found


async def seen_lane(
    tables: Tables, target: Target, seen: ConversationId | None, lease: LeaseId
) -> tuple[Conversation, Branch, bool, int, int] | None:
    """The lane of a conversation that was seen under the target's conversation_key, if that still names it:
    one look in place of two, for most requests that name a key."""
    if seen is None or target.conversation_key is None or target.id is not None:
        return None
    found = await tables.lane(target.owner, seen, lease)
    return found if found is not None and target.is_plainly(found[0]) else None


async def insert(tables: Tables, fresh: Conversation, room: Room = BOUNDLESS) -> Conversation:
    await check_room(tables, fresh.owner, room, adds_chat=True)
    await tables.add_conversation(fresh)
    await tables.add_branch(Branch(id=fresh.branch, conversation=fresh.id))
    if fresh.is_listed:
        await tell(tables, ChangeKind.CHAT_CREATED, fresh, fresh.created_at)
    return fresh


async def succeed(
    tables: Tables,
    before: Conversation,
    fresh: Conversation,
    reset_policy: ResetPolicy,
    room: Room = BOUNDLESS,
) -> Conversation:
    """Give the conversation_key of one conversation to a fresh one, which takes over its settings. The old
    one stays as it is, with all that runs and waits there, and remembers which key it had."""
    key = before.conversation_key
    await tables.save_conversation(replace(before, conversation_key=None, former_conversation_key=key))
    after = replace(
        fresh,
        internal=before.internal or fresh.internal,
        expires_after=before.expires_after if fresh.expires_after is None else fresh.expires_after,
        reset_policy=reset_policy,
    )
    return await insert(tables, after, room)


async def is_stale(tables: Tables, target: Target, found: Conversation, now: int) -> bool:
    """Whether the conversation_key has to move on: its conversation is over by policy, and not in use."""
    policy = target.reset_policy or found.reset_policy
    if policy is NEVER or target.conversation_key is None or target.fresh is None or target.id is not None:
        return False
    if found.id == target.fresh.id or not policy.is_over(found.created_at, found.touched_at, now):
        return False
    return not await is_in_use(tables, found)


async def is_in_use(tables: Tables, found: Conversation) -> bool:
    """Whether a turn runs or waits there: that is an interaction in progress."""
    branch = await tables.branch(found.branch)
    return branch is not None and (branch.running is not None or bool(await tables.tickets(branch.id)))


def changes_policy(target: Target, found: Conversation) -> bool:
    return target.reset_policy is not None and target.reset_policy != found.reset_policy


async def check_live(tables: Tables, found: Conversation | None, now: int) -> Conversation:
    """Return the conversation if it is there and live; while it is in use, it does not expire."""
    if found is None:
        raise ConversationNotFound
    if found.is_deleted:
        raise ConversationDeleted(restorable_until=found.purge_at)
    if await has_expired(tables, found, now):
        raise ConversationExpired
    return found


async def has_expired(tables: Tables, found: Conversation, now: int) -> bool:
    """Whether its time without interaction is over, and it is not in use."""
    if found.state is ConversationState.EXPIRED:
        return True
    return found.is_expired(now) and not await is_in_use(tables, found)


@dataclass(frozen=True)
class ResolveRequest:
    target: Target
    now: int
    room: Room = BOUNDLESS
    """What the owner may store."""


async def resolve_now(tables: Tables, request: ResolveRequest) -> Conversation:
    """Resolve as an operation of its own."""
    return await resolve(tables, request.target, request.now, room=request.room)


async def resolve_settled(tables: Tables, request: ResolveRequest) -> Conversation | None:
    """Resolve by reading alone; None where only a writing resolve can answer."""
    target = request.target
    found = await find(tables, target)
    if found is None and target.fresh is not None:
        return None
    if found is not None and await is_stale(tables, target, found, request.now):
        return None
    live = await check_live(tables, found, request.now)
    return None if changes_policy(target, live) else live


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    """What a person or program says of a conversation; what is None stays as it is."""

    owner: str
    id: ConversationId
    title: str | None = None
    """Empty to take back the name: it is then named by its first words."""
    metadata: Mapping[str, str] | None = None
    tags: tuple[str, ...] | None = None
    pinned: bool | None = None
    archived: bool | None = None
    revision: int | None = None
    """The one that was read, if it matters."""
    now: int
    due: int
    """What is over by then is over; see clock."""
    room: Room = BOUNDLESS
    """What the owner may store."""


async def update(tables: Tables, request: UpdateRequest) -> Conversation:
    """Set what is given, all of it or nothing, if the revision is still the one that was read.
    A metadata write: it disturbs no running turn and moves no interaction time. What is so already is left
    as it is, so it can be repeated when its answer was lost: its own change is no conflict."""
    found = await check_live(tables, await tables.conversation(request.owner, request.id), request.due)
    changed = replace(
        await _renamed(tables, found, request.title),
        metadata=found.metadata if request.metadata is None else dict(request.metadata),
        tags=found.tags if request.tags is None else request.tags,
        pinned=found.pinned if request.pinned is None else request.pinned,
        archived=found.archived if request.archived is None else request.archived,
    )
    is_so = changed == found
    expected = (found.revision, found.revision - 1) if is_so else (found.revision,)
    if request.revision is not None and request.revision not in expected:
        raise RevisionConflict(found.revision)
    if is_so:
        return found
    if of_details(changed) > of_details(found):
        await check_room(tables, request.owner, request.room)
    changed = replace(changed, revision=found.revision + 1)
    await tables.save_conversation(changed)
    if changed.is_listed:  # else nobody was told that it is there
        await tell(tables, ChangeKind.CHAT_CHANGED, changed, request.now)
    return changed


async def _renamed(tables: Tables, found: Conversation, title: str | None) -> Conversation:
    """The conversation under the name that a person gives it, or takes back."""
    if title is None:
        return found
    if title.strip():  # of blanks alone it is no name: nobody could see it, or find it again
        return replace(found, title=title, named_by=NamedBy.PERSON)
    if found.named_by is NamedBy.WORDS:
        return found
    branch = await tables.branch(found.branch)
    words = await words_of(tables, found.owner, branch) if branch is not None else None
    return named_by_words(found, words)
