"""All rows of a store, read by the engine's own tables: what two equal stores have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from turnledger.engine.ports import Inspection, Tables
from turnledger.model.catalogue import ChatFilter, ListPosition
from turnledger.model.conversation import Conversation
from turnledger.model.ids import TurnId
from turnledger.stores.url import open_read_only

PAGE = 7


async def all_rows(url: str) -> dict[str, Any]:
    """Read the whole store, by names."""
    visit = await open_read_only(url)
    try:
        return await visit.inspect(read, None)
    finally:
        await visit.close()


async def read(rows: Inspection, _: None) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    attempts: set[TurnId] = set()
    for owned in await _paged(rows.all_conversations):
        tables = rows.of(owned.owner)
        conversation = await tables.conversation(owned.row)
        seen[f"conversation {owned.row}"] = conversation
        seen[f"switches {owned.row}"] = await tables.switches(owned.row)
        seen[f"forgotten {owned.row}"] = await tables.forgotten(owned.row)
        await _read_branches(seen, tables, conversation)
    for owned in await _paged(rows.all_attempts):
        tables, id = rows.of(owned.owner), owned.row
        attempts.add(id)
        seen[f"attempt {id}"] = await tables.attempt(id)
        seen[f"journal {id}"] = await tables.journal(id)
        seen[f"log {id}"] = await tables.log_chunks(id, 0, 1_000)
    for owned in await _paged(rows.all_tickets, lambda row: row.attempt):
        seen[f"ticket {owned.row.attempt}"] = owned
    for owned in await _paged(rows.all_jobs, lambda row: row.id):
        seen[f"job {owned.row.id}"] = owned
    after = None
    while page := await rows.all_claims(after, PAGE):
        seen |= {f"claim {claim.owner} {claim.idempotency_key}": claim for claim in page}
        after = page[-1]
    seen["tokens"] = await rows.tokens(None, None, 1_000)
    seen["shares"] = await rows.shares(None, None, 1_000)
    seen["leases"] = await rows.leases()
    seen["clock"] = await rows.clock_mark()
    for owner in await rows.owners(None, 1_000):
        await _read_owner(seen, rows.of(owner))
    return seen


async def _paged(
    read: Callable[[Any, int], Awaitable[list[Any]]], id_of: Callable[[Any], Any] = lambda row: row
) -> list[Any]:
    found: list[Any] = []
    while page := await read(id_of(found[-1].row) if found else None, PAGE):
        found += page
    return found


async def _read_branches(seen: dict[str, Any], tables: Tables, conversation: Conversation | None) -> None:
    assert conversation is not None
    branches = await tables.branches(conversation.id, None, 1_000)
    seen[f"branches {conversation.id}"] = branches  # in their order
    for branch in branches:
        seen[f"origin {branch.id}"] = await tables.origin(branch.id)
        turns = await tables.turns(branch.id, 0, branch.length, branch.length + 1)
        seen[f"turns {branch.id}"] = turns
        seen[f"flags {branch.id}"] = await tables.flags([turn.id for turn in turns])
        seen[f"logs {branch.id}"] = [await tables.turn_log(turn.id) for turn in turns]


async def _read_owner(seen: dict[str, Any], tables: Tables) -> None:
    owner = tables.owner
    seen[f"usage of {owner}"] = await tables.usage()
    seen[f"versions of {owner}"] = await tables.flag_version(), await tables.admission()
    for wanted in (
        ChatFilter(archived=None),
        ChatFilter(pinned=True),
        ChatFilter(tag="x"),
        ChatFilter(archived=None, scope="desk"),
        ChatFilter(deleted=True, archived=None),
    ):
        listed: list[Any] = []
        while page := await tables.listed_chats(
            wanted, (listed and ListPosition.after(listed[-1])) or None, 2
        ):
            listed += page
        seen[f"list of {owner}: {wanted}"] = listed
