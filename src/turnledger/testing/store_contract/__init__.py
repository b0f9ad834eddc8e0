"""The contract that every store keeps: the promises of the ledger, as tests.

To run it against a store of your own, this is all that is needed:

    import pytest
    from turnledger.testing.store_contract import Capabilities, StoreContract

    class TestMyStore(StoreContract):
        capabilities = Capabilities(survives_restart=True)

        @pytest.fixture
        def open_store(self, tmp_path):
            async def open_store():
                return await MyStore.open(tmp_path / "chats")
            return open_store

To prove what power loss leaves of it, override the fixture `machine`, too; see `turnledger.testing.machine`.

`open_store` is called once for each process that shares the database of a test: it returns one more handle,
with a lease of its own. The tests are coroutines and run with the pytest plugin of anyio, on asyncio.
"""

import pkgutil

import pytest

# Before they are imported, so that a failing assertion shows what it compared.
pytest.register_assert_rewrite(*(f"{__name__}.{part.name}" for part in pkgutil.iter_modules(__path__)))

from turnledger.testing.store_contract import (  # noqa: E402
    all_or_nothing,
    branches,
    catalogue,
    deletion,
    forgotten,
    handles,
    once,
    one_at_a_time,
    one_key,
    power_loss,
    rows,
    search,
    tokens,
    transfer,
    usage,
    what_happened,
    yours_only,
)
from turnledger.testing.store_contract.stage import Capabilities, OpenStore  # noqa: E402

__all__ = ["Capabilities", "OpenStore", "StoreContract"]


class StoreContract(
    all_or_nothing.AllOrNothing,
    branches.BranchRows,
    branches.EffectRows,
    branches.NestedEdits,
    branches.SharedTurns,
    catalogue.ListedWhenCommitted,
    catalogue.Chosen,
    catalogue.PagedWhileChatsChange,
    deletion.Deletion,
    deletion.Retention,
    deletion.Purges,
    forgotten.NothingForgotten,
    handles.Handles,
    once.Once,
    once.UnknownOutcome,
    one_at_a_time.OneAtATime,
    one_at_a_time.Fences,
    one_key.OneKey,
    one_key.MadeOnce,
    one_key.ConcurrentResets,
    power_loss.PowerLoss,
    power_loss.Restarts,
    rows.Rows,
    rows.Overview,
    rows.FlagRows,
    rows.ChangeRows,
    rows.ClockRows,
    search.Search,
    tokens.TokensKept,
    tokens.SharesKept,
    transfer.TransferredChats,
    usage.Counting,
    usage.OfLinks,
    what_happened.WhatHappened,
    yours_only.YoursOnly,
    yours_only.Scopes,
    yours_only.ScopedOnce,
    yours_only.OneChat,
):
    """All parts of the contract."""
