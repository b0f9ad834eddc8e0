"""What is sealed is opened by whoever has the secret, for the same purpose, and means nothing to others."""

from __future__ import annotations

import pytest

from turnledger import Ledger
from turnledger.server.access.cursors import LENGTH, Seal, ServerSeal

TEXTS = ["", "1", "fffffffffffffff-ffffffff"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_sealed_is_opened(text: str) -> None:
    seal = Seal(bytes(32))
    assert len(text) <= LENGTH
    assert Seal(bytes(32)).open(b"a", seal.close(b"a", text)) == text


def test_the_same_looks_different_each_time_and_as_long_as_any_other() -> None:
    seal = Seal(bytes(32))
    told = {seal.close(b"a", text) for text in TEXTS for _ in range(10)}
    assert (len(told), {len(each) for each in told}) == (30, {56})


def test_nothing_else_is_opened() -> None:
    seal = Seal(bytes(32))
    good = seal.close(b"a", "text")
    assert seal.open(b"b", good) is None
    assert Seal(b"x" * 32).open(b"a", good) is None
    for place in range(len(good)):
        for other in ("A" if good[place] != "A" else "B", "=", "é", " "):
            assert seal.open(b"a", good[:place] + other + good[place + 1 :]) is None
    for other in ("", good[:-1], good + "A", good[:-4] + "====", "\n" * 56):
        assert seal.open(b"a", other) is None


async def test_the_secret_is_the_stores_own() -> None:
    async with await Ledger.open() as ledger, await Ledger.open() as other:
        sealed = (await ServerSeal(ledger.tokens).seal()).close(b"a", "text")
        assert (await ServerSeal(ledger.tokens).seal()).open(b"a", sealed) == "text"
        assert (await ServerSeal(other.tokens).seal()).open(b"a", sealed) is None
