"""All readable state of a store, by the names of the machines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from operator import attrgetter
from typing import Any, TypeAlias

from tests.stateful.names import (
    BRANCHES,
    CONVERSATION_KEYS,
    CONVERSATIONS,
    IDEMPOTENCY_KEYS,
    LEASES,
    OWNERS,
    SCOPES,
    TAGS,
    TIMES,
    TOKENS,
    TURNS,
)
from turnledger.engine.attempt.idempotency import claim_name
from turnledger.engine.history import line
from turnledger.engine.ports import Tables, WholeStore
from turnledger.errors import StoreCorrupt
from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import Branch, Within
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn

ALL = 1_000
CHOICES: tuple[dict[str, Any], ...] = (
    {"archived": None},
    {"archived": True},
    {"archived": None, "scope": SCOPES[1]},
    {"pinned": True},
    {"pinned": False, "archived": None},
    {"deleted": True, "archived": None},
    *({"tag": tag} for tag in TAGS),
    {"tag": TAGS[0], "archived": None, "pinned": True, "scope": SCOPES[1]},
    {"tag": TAGS[0], "archived": None, "deleted": True},
)
See: TypeAlias = Callable[[str, Any], None]
"""Takes the name and the result of a read."""
STRETCHES = ((0, ALL, ALL), (0, ALL, 2), (1, 3, ALL), (0, 2, 1), (2, 2, ALL))


async def everything(whole: WholeStore, _: None) -> dict[str, Any]:
    """Read the whole state, by names of the reads; missing rows are left out."""
    seen: dict[str, Any] = {}

    def see(name: str, found: Any) -> None:
        if found is not None and found != []:
            assert name not in seen, f"two owners have {name}"
            seen[name] = found

    for owner in OWNERS:
        await _of_owner(see, whole.of(owner))
        await _of_history(see, whole.of(owner))
    # The tables guarantee no order for these.
    for number, lease in enumerate(LEASES, 1):
        see(f"lease {number}", await whole.lease(lease))
        see(f"running of {number}", sorted(await whole.running_attempts(lease), key=attrgetter("id")))
        held = await whole.held_tickets(lease)
        see(f"tickets of lease {number}", sorted(held, key=lambda each: each.ticket.attempt))
    see("leases", sorted(await whole.leases(), key=attrgetter("id")))
    await _of_tokens(see, whole)
    return seen


async def _of_history(see: See, tables: Tables) -> None:
    """Read rows that only their owner finds, by names without the owner."""
    for number, id in enumerate(CONVERSATIONS, 1):
        see(f"attempts of {number}", await tables.attempts(id, ALL))
        see(f"newest attempt of {number}", await tables.attempts(id, 1))
        see(f"first branch of {number}", await tables.first_branch(id))
    bases: set[TurnId | None] = {None}
    for number, branch in enumerate(BRANCHES, 1):
        origin = await tables.origin(branch)
        bases.add(origin.base if origin is not None else None)
        see(f"origin {number}", origin)
        await _of_branch(see, tables, number, branch)
    for number, id in enumerate(CONVERSATIONS, 1):
        for base in bases:
            see(f"origins of {number} at {base}", await tables.origins(id, base, ALL))
            see(f"first origin of {number} at {base}", await tables.origins(id, base, 1))
    for number, turn in enumerate(TURNS, 1):
        see(f"turn log {number}", await tables.turn_log(turn) or None)
        see(f"ticket {number}", await tables.ticket(turn))


async def _of_branch(see: See, tables: Tables, number: int, id: BranchId) -> None:
    branch = await tables.branch(id)
    see(f"branch {number}", branch)
    for stretch in STRETCHES:
        see(f"turns {stretch} of {number}", await tables.turns(id, *stretch))
    see(f"tickets of {number}", await tables.tickets(id))
    if branch is not None:
        see(f"line of {number}", await _line(tables, branch, 0, ALL, ALL))
        see(f"page of {number}", await _line(tables, branch, 1, branch.length - 1, 2))
        see(f"settled on {number}", await line.effects_of(tables, branch, 0))


async def _line(tables: Tables, branch: Branch, after: int, through: int, limit: int) -> list[Turn]:
    """Return the turns of a line, or none if rows are missing during a purge."""
    try:
        return await line.turns_of(tables, branch, after, through, limit)
    except StoreCorrupt:
        return []


async def _of_owner(see: See, tables: Tables) -> None:
    owner = tables.owner
    for number, id in enumerate(CONVERSATIONS, 1):
        found = await tables.conversation(id)
        see(f"{owner}'s lane {number}", await tables.lane(id, LEASES[0]))
        see(f"{owner}'s conversation {number}", found)
        # Also after an unlisted one, which may have been listed when its page was read.
        if found is not None:
            place = ListPosition(found.touched_at, found.id)
            see(f"{owner}'s page after {number}", await tables.listed_chats(ChatFilter(), place, 2))
    for scope, key in product(SCOPES, CONVERSATION_KEYS):
        named = await tables.conversation_by_key(scope, key)
        see(f"{owner}'s conversation {key!r} in {scope!r}", named)
    for within, size in product((None, *SCOPES), (1, 2, ALL)):
        listed = await _paged(tables, ChatFilter(scope=within), size)
        see(f"{owner}'s list of {within!r} by {size}", listed)
    for chosen in CHOICES:
        see(f"{owner}'s list of {chosen}", await _paged(tables, ChatFilter(**chosen), 2))
    for number, turn in enumerate(TURNS, 1):
        see(f"{owner}'s turn {number}", await tables.turn(turn))
        see(f"{owner}'s attempt {number}", await tables.attempt(turn))
        see(f"{owner}'s journal {number}", await tables.journal(turn))
        for first, limit in ((0, ALL), (1, 1)):
            see(f"{owner}'s log {number} from {first}", await tables.log_chunks(turn, first, limit))
    see(f"{owner}'s flags", await tables.flags(TURNS) or None)
    see(f"{owner}'s flag version", await tables.flag_version())
    see(f"{owner}'s bytes", await tables.usage())
    for key, within in product(IDEMPOTENCY_KEYS, (None, *SCOPES)):
        name = claim_name(key, Within(within))
        see(f"{owner}'s claim {name!r}", await tables.claim(name))


async def _of_tokens(see: See, whole: WholeStore) -> None:
    for now in TIMES:
        see(f"due at {now}", await whole.due_conversations(now, now, ALL))
        see(f"number of those due at {now}", len(await whole.due_conversations(now, now, 1)))
    for number, id in enumerate(TOKENS, 1):
        token = await whole.token(None, id)
        see(f"token {number}", token)
        see(f"minted by {number}", await whole.child_tokens(id))
        see(f"tokens before {number}", await whole.tokens(None, id, 2))
        if token is not None:
            see(f"found as {number}", await whole.token_by_digest(token.digest))
    see("tokens", await whole.tokens(None, None, ALL))
    for owner in OWNERS:
        see(f"{owner}'s tokens", await whole.tokens(owner, None, ALL))
        see(f"{owner}'s tokens before", await whole.tokens(owner, TOKENS[3], 1))
        see(f"{owner}'s admission", await whole.of(owner).admission())
        for now in TIMES:
            see(f"{owner}'s valid tokens at {now}", await whole.count_tokens(owner, now, 3))


async def _paged(tables: Tables, wanted: ChatFilter, size: int) -> list[ChatEntry]:
    listed: list[ChatEntry] = []
    page = await tables.listed_chats(wanted, None, size)
    while page:
        listed += page
        page = await tables.listed_chats(wanted, ListPosition.after(page[-1]), size)
    return listed
