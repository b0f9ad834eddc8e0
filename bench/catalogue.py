"""A page of the list and of a search for an owner with very many chats, against one with few."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from statistics import median

from bench.measures import Line
from turnledger import Ledger
from turnledger.engine.ports import Tables
from turnledger.engine.searching import AT_ONCE, make_findable
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import message
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores.opening import open_store

MANY, FEW = "many", "few"
"""The two owners."""
PAGE = 20
RARE = 40
"""Chats of each owner that have a rare word."""
FILLED_AT_ONCE = 1_000
WORDS = 20_000
"""That people use: the n-th so often as n-th words are."""
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
SEARCHES = {
    "a common word": "always",
    "a rare word": "heron",
    "two words": "always heron",
    "the beginning of a word": "her",
    "a phrase": '"always there"',
    "in a scope": "always",
}


@dataclass(frozen=True)
class Filling:
    """Chats to be made: their rows."""

    owner: str
    first: int
    last: int
    rows: list[tuple[Conversation, Turn]]


async def fill(tables: Tables, filling: Filling) -> None:
    """Write conversations with a turn each, as a commit would have left them."""
    for conversation, turn in filling.rows:
        await tables.add_conversation(conversation)
        await tables.add_branch(
            Branch(id=conversation.branch, conversation=conversation.id, head=turn.id, length=1)
        )
        await tables.add_turn(turn)


@cache
def language() -> tuple[list[str], list[float]]:
    """Words, and how often they come, added up."""
    dice = random.Random(0)
    words = ["".join(dice.choices(LETTERS, range(26, 0, -1), k=dice.randint(2, 9))) for _ in range(WORDS)]
    return words, list(accumulate(1 / (place + 2) for place in range(WORDS)))


def rows_of(owner: str, first: int, last: int, count: int, dice: random.Random) -> Filling:
    """Chats numbered from `first`, of so many in all."""
    vocabulary, often = language()
    made = []
    for number in range(first, last):
        ids = [kind.trusted(dice.randbytes(16)) for kind in (ConversationId, BranchId, TurnId)]
        id, branch, turn = ids
        words = dice.choices(vocabulary, cum_weights=often, k=120)
        words[10:12] = ["always", "there"]
        if number % max(1, count // RARE) == 0:
            words[30] = "heron"
        scope = "shop" if number % 2 else ""
        at = 1_700_000_000_000 + number
        conversation = Conversation(
            id=id, owner=owner, branch=branch, created_at=at, touched_at=at, scope=scope
        )
        said = message("user", " ".join(words[:20])), message("assistant", " ".join(words[20:]))
        committed = Turn.of(
            id=turn,
            branch=branch,
            number=1,
            parent=None,
            kind=TurnKind.COMPLETED,
            created_at=at,
            committed_at=at,
            input=said[:1],
            output=said[1:],
        )
        made.append((conversation, committed))
    return Filling(owner, first, last, made)


async def filled(folder: Path, many: int, few: int) -> Ledger:
    """A ledger with both owners, whose chats were made in turns, and all of it findable."""
    store = await open_store(f"sqlite:///{folder}/catalogue.db")
    dice = random.Random(1)
    for first in range(0, many, FILLED_AT_ONCE):
        last = min(many, first + FILLED_AT_ONCE)
        await store.transact(fill, rows_of(MANY, first, last, many, dice))
        part = rows_of(FEW, first * few // many, last * few // many, few, dice)
        await store.transact(fill, part)
    await make_findable(store, (many + few) // AT_ONCE + 2)
    return await Ledger.over(store)


async def catalogue(folder: Path, many: int, few: int, rounds: int) -> list[Line]:
    """Pages of both owners, in turns."""
    ledger = await filled(folder, many, few)
    lines = []
    for name, text in SEARCHES.items():
        scope = "shop" if name == "in a scope" else None

        async def page(owner: str, text: str = text, scope: str | None = scope) -> None:
            found = await ledger.search(text, owner=owner, scope=scope, limit=PAGE)
            assert len(found.hits) == PAGE

        ratio = await _compare(page, rounds)
        lines.append(Line(f"search for {name}, {many} chats, p50, of {few}", ratio, 3.0))
    await ledger.close()
    return lines


async def _compare(page: Callable[[str], Awaitable[None]], rounds: int) -> float:
    took: dict[str, list[float]] = {MANY: [], FEW: []}
    for _ in range(rounds):
        for owner, times in took.items():
            started = time.perf_counter()
            await page(owner)
            times.append(time.perf_counter() - started)
    print({k: f"{median(v) * 1000:.2f}" for k, v in took.items()})
    return median(took[MANY]) / median(took[FEW])
