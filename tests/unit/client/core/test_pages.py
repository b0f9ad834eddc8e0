"""Pages are read as they are needed, and no more of them."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.api.chats import SearchPage
from turnledger.client import AsyncPages, Page, Pages
from turnledger.client.core.steps import Steps
from turnledger.errors import InvalidInput


class Shelf:
    """A hundred and twenty numbers, and what was asked of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, int]] = []

    def look(self, cursor: str | None, limit: int) -> Steps[Page[int]]:
        yield from ()
        self.asked.append((cursor, limit))
        first = int(cursor or 0)
        numbers = tuple(range(first, min(first + limit, 120)))
        return SearchPage(numbers, str(first + limit) if first + limit < 120 else None, False)


def run(doing: Steps[Any]) -> Any:
    try:
        next(doing)
    except StopIteration as end:
        return end.value
    raise AssertionError


async def run_awaited(doing: Steps[Any]) -> Any:
    return run(doing)


def test_all_of_them() -> None:
    shelf = Shelf()
    assert list(Pages(run, shelf.look)) == list(range(120))
    assert shelf.asked == [(None, 50), ("50", 50), ("100", 50)]


def test_no_page_is_read_before_it_is_needed() -> None:
    shelf = Shelf()
    entries = iter(Pages(run, shelf.look))
    assert shelf.asked == []
    assert [next(entries) for _ in range(50)] == list(range(50))
    assert len(shelf.asked) == 1


@pytest.mark.parametrize(("limit", "asked"), [(3, [3]), (50, [50]), (60, [50, 10]), (500, [50, 50, 50])])
def test_at_most_so_many(limit: int, asked: list[int]) -> None:
    shelf = Shelf()
    assert list(Pages(run, shelf.look, limit)) == list(range(min(limit, 120)))
    assert [each for _, each in shelf.asked] == asked


def test_they_can_be_read_anew_and_page_by_page() -> None:
    pages = Pages(run, Shelf().look, 60)
    assert [len(page) for page in pages.pages()] == [50, 10]
    assert [page.complete for page in pages.pages()] == [False, False]


async def test_the_same_awaited() -> None:
    pages = AsyncPages(run_awaited, Shelf().look, 60)
    assert [entry async for entry in pages] == list(range(60))
    assert [len(page) async for page in pages.pages()] == [50, 10]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_one_at_least(limit: int) -> None:
    with pytest.raises(InvalidInput):
        Pages(run, Shelf().look, limit)
