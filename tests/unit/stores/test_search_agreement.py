"""Search returns the same from both stores for any operations and any query."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.long_form import IS_LONG
from turnledger import Chat, Ledger, Limits
from turnledger.engine.ports import Store
from turnledger.errors import TurnledgerError
from turnledger.stores.memory import MemoryStore
from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.fake_clock import FakeClock

WORDS = [
    "heron",
    "Herons",
    "HERON",
    "e-mail",
    "Zürich",
    "zu\u0308rich",
    "東京",
    "京",
    "ﬁn",
    "fin",
    "don't",
    "한국",
    "a",
]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join) | st.text(
    min_size=1, max_size=20
)
TYPED = (
    st.lists(st.sampled_from([*WORDS, "her", "zur", '"', "“", "-", "*", "OR", "NEAR("]), max_size=5).map(
        " ".join
    )
    | st.text(max_size=20)
    | st.text('"a 東*(', max_size=8)
)
EXAMPLES = int(os.environ.get("SEARCH_EXAMPLES", "500" if IS_LONG else "20"))
NUMBER = st.integers(0, 3)
DEEDS = st.one_of(
    st.tuples(st.just("open"), st.none() | TEXTS, st.sampled_from(["", "shop"])),
    st.tuples(st.just("run"), NUMBER, TEXTS, TEXTS),
    st.tuples(st.just("run"), NUMBER, TEXTS, TEXTS),
    st.tuples(st.just("name"), NUMBER, TEXTS),
    st.tuples(st.just("hide"), NUMBER, NUMBER, st.booleans()),
    st.tuples(st.just("fork"), NUMBER),
    st.tuples(st.just("undo"), NUMBER),
    st.tuples(st.just("delete"), NUMBER, st.booleans()),
    st.tuples(st.just("restore"), NUMBER),
    st.tuples(st.just("search"), TYPED),
    st.tuples(st.just("tend")),
)


class Life:
    """Runs operations on one store, with chats and turns numbered in order of creation."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.chats: list[Chat] = []
        self.outcomes: list[Any] = []

    async def do(self, deed: tuple[Any, ...]) -> None:
        name, *details = deed
        try:
            await getattr(self, name)(*details)
        except TurnledgerError as error:
            self.outcomes.append(error.code)

    async def open(self, title: str | None, scope: str) -> None:
        self.chats.append(await self.ledger.for_owner("local", scope=scope).conversation(title=title))

    async def run(self, number: int, question: str, answer: str) -> None:
        if number < len(self.chats):
            async with self.chats[number].turn(question) as turn:
                turn.emit(answer)

    async def name(self, number: int, title: str) -> None:
        if number < len(self.chats):
            await self.chats[number].update(title=title)

    async def hide(self, number: int, place: int, is_shown: bool) -> None:
        if number < len(self.chats) and (turns := await self.chats[number].turns()):
            await self.chats[number].flag(turns[place % len(turns)].id, [place % 2], to_user=is_shown)

    async def fork(self, number: int) -> None:
        if number < len(self.chats):
            self.chats.append(await self.chats[number].fork())

    async def undo(self, number: int) -> None:
        if number < len(self.chats):
            await self.chats[number].undo()

    async def delete(self, number: int, is_purged: bool) -> None:
        if number < len(self.chats):
            await self.chats[number].delete(purge=is_purged)

    async def restore(self, number: int) -> None:
        if number < len(self.chats):
            await self.ledger.restore(self.chats[number].id)

    async def tend(self) -> None:
        await self.ledger._recovery.run_round()

    async def search(self, typed: str, scope: str | None = None, limit: int = 2) -> None:
        cursor = None
        while True:
            page = await self.ledger.for_owner("local", scope=scope).search(typed, cursor=cursor, limit=limit)
            assert page.is_complete
            self.outcomes.append(
                [(hit.conversation.id, hit.turn, hit.branch, hit.snippet, hit.marks) for hit in page.hits]
            )
            cursor = page.next
            if cursor is None:
                return


async def live(store: Store, deeds: list[tuple[Any, ...]], typed: list[str]) -> list[Any]:
    ledger = await Ledger.over(store, clock=FakeClock(), random=Random(1), limits=Limits(lease_time=600.0))
    async with ledger:
        life = Life(ledger)
        for deed in [("open", "A heron", ""), ("run", 0, "heron", "egret"), *deeds]:
            await life.do(deed)
        for text in typed:
            await life.search(text)
            await life.search(text, scope="shop", limit=50)
        return life.outcomes


async def both(deeds: list[tuple[Any, ...]], typed: list[str]) -> tuple[list[Any], list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = await SqliteStore.open(Path(folder, "chats.db"), inline=True)
        return await live(MemoryStore(), deeds, typed), await live(file, deeds, typed)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(deeds=st.lists(DEEDS, max_size=14), typed=st.lists(TYPED, min_size=1, max_size=4))
def test_search_of_any_text_returns_the_same_from_both_stores(
    deeds: list[tuple[Any, ...]], typed: list[str]
) -> None:
    in_memory, in_file = asyncio.run(both(deeds, [*typed, "her"]))
    assert in_memory == in_file
    assert any(isinstance(each, list) for each in in_memory)
