from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnledger.sync import Ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory:") as ledger:
        yield ledger
