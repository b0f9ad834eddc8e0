"""Showing a conversation to its user: its items without those hidden from them, and what is in force."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from turnledger.engine.line import flags_of, turn_at, turns_of
from turnledger.engine.ports import Store, Tables
from turnledger.engine.reading import InfoRequest, PageRequest, info
from turnledger.model.conversation import Branch
from turnledger.model.flags import Flags, FlagsOf, gone_in, hidden_from_user, without_hidden
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.turn import Turn


class PageOfLine(Struct, frozen=True):
    """Asks for turns of the line that a conversation showed when its first page was read: what is switched,
    undone or edited since is no matter."""

    page: PageRequest
    branch: Branch | None = None


class FlaggedPage(Struct, frozen=True):
    """Turns in order, and the flags of their items, as they were at one moment; and the line they are of."""

    turns: list[Turn]
    flags: FlagsOf
    branch: Branch | None


async def flagged_page(tables: Tables, request: PageOfLine) -> FlaggedPage:
    """A page of turns with their flags."""
    page = request.page
    conversation = await info(tables, InfoRequest(page.owner, page.conversation, page.now))
    branch = request.branch or await tables.branch(conversation.branch)
    if branch is None:
        return FlaggedPage([], {}, None)
    through = branch.length if page.before is None else page.before - 1
    turns = await turns_of(tables, branch, 0, through, page.limit)
    if not turns or not await tables.flag_version(page.owner):
        return FlaggedPage(turns, {}, branch)
    flags = await flags_of(tables, page.owner, branch, turns[0].number - 1, turns[-1].number)
    return FlaggedPage(turns, flags, branch)


def shown_to_user(turns: Sequence[Turn], flags: FlagsOf) -> list[Item]:
    """The items of these turns that their user sees. What is hidden takes its other half along."""
    parts = [turn.items for turn in turns]
    hidden = hidden_from_user(flags)
    if hidden:
        parts = without_hidden(parts, [hidden.get(turn.id, ()) for turn in turns])
    return [item for part in parts for item in part]


class ReadTurns(Struct, frozen=True):
    """Turns that were read through their conversation."""

    owner: str
    turns: tuple[TurnId, ...]


async def flags_of_read(tables: Tables, request: ReadTurns) -> FlagsOf:
    """The flags of these turns, where there are any. Whose they are was checked when they were read."""
    if not await tables.flag_version(request.owner):
        return {}
    return await tables.flags(request.owner, request.turns)


async def hidden_in(store: Store, owner: str, turns: Sequence[Turn], page: int) -> list[tuple[int, ...]]:
    """Of each turn the places among its items that its user does not see, in order; read so many at once."""
    hidden: dict[TurnId, Collection[int]] = {}
    for start in range(0, len(turns), page):
        read = ReadTurns(owner, tuple(turn.id for turn in turns[start : start + page]))
        hidden |= hidden_from_user(await store.read(flags_of_read, read))
    if not hidden:
        return [()] * len(turns)
    gone = gone_in([turn.items for turn in turns], [hidden.get(turn.id, ()) for turn in turns])
    return [tuple(sorted(places)) for places in gone]


async def whole_history(store: Store, page_before: Callable[[int | None], PageRequest]) -> list[Item]:
    """All items that their user sees, read in pages, the last one first."""
    turns: list[Turn] = []
    flags: dict[TurnId, Mapping[int, Flags]] = {}
    before: int | None = None
    line: Branch | None = None
    while before is None or before > 1:
        page = await store.read(flagged_page, PageOfLine(page_before(before), line))
        turns[:0] = page.turns
        flags |= page.flags
        line = page.branch
        before = page.turns[0].number if page.turns else 1
    return shown_to_user(turns, flags)


async def in_force(tables: Tables, request: InfoRequest) -> tuple[Item, ...]:
    """The instructions in force at the head of a conversation."""
    conversation = await info(tables, request)
    branch = await tables.branch(conversation.branch)
    if branch is None or not branch.instructed:
        return ()
    found = await turn_at(tables, branch, branch.instructed)
    return (found.instructions or ()) if found else ()
