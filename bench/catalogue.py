"""The cost of lists and search: `python -m bench.catalogue [--quick]`. Prints a table of ratios.

One file holds an owner with very many chats and one with few; pages of both are read alternately. Then turns
that write the rows for lists and followers alternate with turns that do not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from bench.measures import one_turn
from bench.table import Line, alternate, show
from turnledger import Ledger
from turnledger.engine.conversations.search import AT_ONCE, index_texts
from turnledger.engine.ports import WholeStore
from turnledger.engine.turn import commit
from turnledger.hosting import Host
from turnledger.model.conversation import Branch, Conversation, TitleSource
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import message
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores.url import open_store

MANY, FEW = "many", "few"
PAGE = 20
RARE = 40
"""Chats of each owner with the rare word and the rare tag."""
FILLED_AT_ONCE = 1_000
WORDS = 20_000
"""Distributed as in a natural language."""
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
LISTS: dict[str, dict[str, Any]] = {
    "all": {},
    "of a scope": {"scope": "shop"},
    "with a common tag": {"tag": "work"},
    "with a rare tag": {"tag": "birds"},
}
SEARCHES: dict[str, dict[str, Any]] = {
    "a word of every chat": {"text": '"always"'},
    "the beginning of a word of every title": {"text": "title"},
    "a rare word": {"text": '"heron"'},
    "both": {"text": '"always" "heron"'},
    "the beginning of a word of every chat": {"text": "alw"},
    "a phrase of every chat": {"text": '"always there"'},
    "a word of every chat, in a scope": {"text": '"always"', "scope": "shop"},
}


@cache
def language() -> tuple[list[str], list[float]]:
    """Return words, and their cumulative weights."""
    dice = random.Random(0)
    words = ["".join(dice.choices(LETTERS, range(26, 0, -1), k=dice.randint(2, 9))) for _ in range(WORDS)]
    return words, list(accumulate(1 / (place + 2) for place in range(WORDS)))


def row_of(owner: str, number: int, count: int, dice: random.Random) -> tuple[Conversation, Turn]:
    id = ConversationId.trusted(dice.randbytes(16))
    branch, turn = BranchId.trusted(dice.randbytes(16)), TurnId.trusted(dice.randbytes(16))
    vocabulary, often = language()
    words = dice.choices(vocabulary, cum_weights=often, k=120)
    words[10:12] = ["always", "there"]
    is_rare = number % max(1, count // RARE) == 0
    if is_rare:
        words[30] = "heron"
    at = 1_700_000_000_000 + number
    conversation = Conversation(
        id=id,
        owner=owner,
        branch=branch,
        created_at=at,
        touched_at=at,
        scope="shop" if number % 2 else "",
        tags=("birds", "work") if is_rare else ("work",),
        title=" ".join(("titled", *words[:7])),
        named_by=TitleSource.MODEL,
    )
    committed = Turn.of(
        id=turn,
        branch=conversation.branch,
        number=1,
        parent=None,
        kind=TurnKind.COMPLETED,
        created_at=at,
        committed_at=at,
        input=(message("user", " ".join(words[:20])),),
        output=(message("assistant", " ".join(words[20:])),),
    )
    return conversation, committed


async def fill(whole: WholeStore, rows: Sequence[tuple[Conversation, Turn]]) -> None:
    """Write chats as commits would have left them."""
    for conversation, turn in rows:
        tables = whole.of(conversation.owner)
        await tables.add_conversation(conversation)
        await tables.add_branch(
            Branch(
                id=conversation.branch,
                conversation=conversation.id,
                head=turn.id,
                length=1,
                preview=turn.text[:160],
            )
        )
        await tables.add_turn(turn)


async def filled(folder: Path, many: int, few: int) -> Ledger:
    """Return a ledger with both owners, fully indexed for search."""
    store = await open_store(f"sqlite:///{folder}/catalogue.db")
    dice = random.Random(1)
    for first in range(0, many, FILLED_AT_ONCE):
        last = min(many, first + FILLED_AT_ONCE)
        rows = [row_of(MANY, number, many, dice) for number in range(first, last)]
        rows += [row_of(FEW, number, few, dice) for number in range(first * few // many, last * few // many)]
        await store.transact_whole(fill, rows)
    await index_texts(store, 2 * (many + few) // AT_ONCE + 2)  # turns, and titles
    return await Ledger.over(store)


async def pages(folder: Path, many: int, few: int, rounds: int) -> list[Line]:
    ledger = await filled(folder, many, few)
    lines = []
    for name, wanted in LISTS.items():
        ratio = await _compare(partial(_list, ledger, wanted), rounds)
        lines.append(Line(f"list {name}, {many} chats, p50, of {few}", ratio, 3.0))
    ratio = await _compare(partial(_list_oldest, Host(ledger)), rounds)
    lines.append(Line(f"list all, the oldest first, {many} chats, p50, of {few}", ratio, 3.0))
    for name, sent in SEARCHES.items():
        ratio = await _compare(partial(_search, ledger, sent), rounds)
        lines.append(Line(f"search for {name}, {many} chats, p50, of {few}", ratio, 3.0))
    await ledger.close()
    return lines


async def _list(ledger: Ledger, wanted: dict[str, Any], owner: str) -> None:
    page = await ledger.for_owner(owner, scope=wanted.get("scope")).list(limit=PAGE, tag=wanted.get("tag"))
    assert len(page.chats) == PAGE


async def _list_oldest(host: Host, owner: str) -> None:
    page = await host.least_recent(host.ledger.for_owner(owner), limit=PAGE)
    assert len(page.chats) == PAGE


async def _search(ledger: Ledger, sent: dict[str, Any], owner: str) -> None:
    page = await ledger.for_owner(owner, scope=sent.get("scope")).search(sent["text"], limit=PAGE)
    assert len(page.hits) == PAGE


async def _compare(page: Callable[[str], Awaitable[None]], rounds: int) -> float:
    many, few = await alternate(rounds, partial(page, MANY), partial(page, FEW))
    return many / few


async def share_of_a_commit(folder: Path, rounds: int) -> list[Line]:
    """Measure the share of preview and change feed in a commit, in a chat that has its title."""
    ledger = await Ledger.open(f"sqlite:///{folder}/commits.db")
    chat = await ledger.conversation(title="Named")
    await one_turn(chat)
    originals = commit.preview_of, commit.record_commit
    took: tuple[list[float], list[float]] = ([], [])
    for run in range(2 * rounds):
        side = run % 2
        commit.preview_of, commit.record_commit = originals if side else (_no_preview, _record_nothing)  # type: ignore[assignment]
        took[side].append((await one_turn(chat))[1])
    commit.preview_of, commit.record_commit = originals
    await ledger.close()
    share = 1 - median(took[0]) / median(took[1])
    return [Line("the catalogue, of a commit, p50", share, 0.15)]


def _no_preview(*_: Any) -> str:
    return ""


async def _record_nothing(*_: Any, **__: Any) -> None:
    return None


async def measure(folder: Path, *, quick: bool) -> list[Line]:
    lines = await share_of_a_commit(folder, 20 if quick else 2_000)
    return await pages(folder, 500 if quick else 100_000, 100, 3 if quick else 200) + lines


if __name__ == "__main__":
    show("bench.catalogue", __doc__, measure, asyncio.run)
