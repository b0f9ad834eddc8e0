"""Title, metadata, tags, pin and archive of a chat: what they may be, and how they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any
from unicodedata import normalize

from msgspec.structs import replace

from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.conversations.title import renamed, save_details
from turnledger.engine.limits import UNLIMITED, Quota, check_quota
from turnledger.engine.ports import Tables
from turnledger.errors import InvalidInput, RevisionConflict
from turnledger.model.conversation import (
    LONGEST,
    METADATA_PAIRS,
    TAG_LENGTH,
    TAGS,
    TEXT_LENGTH,
    Conversation,
    TitleSource,
    details_bytes,
)
from turnledger.model.ids import ConversationId
from turnledger.model.item import is_unicode
from turnledger.model.turn import one_line


def check_details(title: str | None, metadata: Mapping[str, str] | None) -> None:
    """Raise InvalidInput for a title or metadata beyond their limits."""
    pairs = (metadata or {}).items()
    if title is not None and len(title) > TEXT_LENGTH:
        raise InvalidInput(f"A title has at most {TEXT_LENGTH} characters.", param="title")
    if len(pairs) > METADATA_PAIRS or any(
        len(name) > 64 or len(value) > TEXT_LENGTH for name, value in pairs
    ):
        raise InvalidInput(
            f"Metadata has at most {METADATA_PAIRS} pairs; names have up to 64 characters, values up to "
            f"{TEXT_LENGTH}.",
            param="metadata",
        )
    for param, texts in (("title", [title or ""]), ("metadata", chain.from_iterable(pairs))):
        if not all(map(is_unicode, texts)):
            raise InvalidInput(f"{param} must be Unicode text.", param=param)


def tags_of(tags: Iterable[object]) -> tuple[str, ...]:
    """Return the tags as stored: stripped, each once, in order. Raises InvalidInput beyond their limits."""
    if isinstance(tags, str):
        raise InvalidInput("tags must be a list of texts.", param="tags")
    given = list(tags)
    # Count before comparing: the list may be very long.
    kept = tuple(dict.fromkeys(map(tag_of, given))) if len(given) <= 10 * TAGS else ()
    if len(kept) > TAGS or len(given) > 10 * TAGS:
        raise InvalidInput(f"A conversation has at most {TAGS} tags.", param="tags")
    return kept


def tag_of(tag: object) -> str:
    """Return a tag as stored; raise InvalidInput for an invalid one."""
    kept = normalize("NFC", tag.strip()) if isinstance(tag, str) and is_unicode(tag) else ""
    if not 0 < len(kept) <= TAG_LENGTH or one_line(kept, TAG_LENGTH) != kept:
        raise InvalidInput(
            f"A tag is a text of 1 to {TAG_LENGTH} characters, without control characters.", param="tags"
        )
    return kept


def details_of(
    title: str | None,
    metadata: Mapping[str, str] | None,
    *,
    internal: bool,
    expires_after: float | None,
    tags: Iterable[str] = (),
) -> dict[str, Any]:
    check_details(title, metadata)
    if expires_after is not None and not 0 < expires_after <= LONGEST:
        raise InvalidInput(
            f"expires_after must be above 0 and at most {LONGEST:g} seconds.", param="expires_after"
        )
    named = title if title and title.strip() else None
    return {
        "title": named,
        "named_by": TitleSource.PERSON if named else None,
        "metadata": dict(metadata or {}),
        "tags": tags_of(tags),
        "internal": internal,
        "expires_after": None if expires_after is None else round(expires_after * 1000),
    }


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    """Changes to a conversation; None leaves a field unchanged."""

    id: ConversationId
    title: str | None = None
    """Empty to remove the name: its first words name it again."""
    metadata: Mapping[str, str] | None = None
    tags: tuple[str, ...] | None = None
    pinned: bool | None = None
    archived: bool | None = None
    revision: int | None = None
    """The revision that the caller has read, if the update depends on it."""
    now: int
    due: int
    quota: Quota = UNLIMITED


async def update(tables: Tables, request: UpdateRequest) -> Conversation:
    """Update the given fields in one transaction, if the revision is still the one that was read. Disturbs no
    running turn and does not count as interaction. A repetition after a lost result does not conflict."""
    found = await live_conversation(tables, request.id, request.due)
    changed = replace(
        await renamed(tables, found, request.title),
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
    if details_bytes(changed) > details_bytes(found):
        await check_quota(tables, request.quota)
    return await save_details(tables, replace(changed, revision=found.revision + 1), request.now)
