"""The store contract: the promises of the ledger that depend on a store, as tests.

To run it against your own store:

    import pytest
    from turnledger.testing.store_contract import Capabilities, StoreContract

    class TestMyStore(StoreContract):
        capabilities = Capabilities(survives_restart=True)

        @pytest.fixture
        def open_store(self, tmp_path):
            async def open_store():
                return await MyStore.open(tmp_path / "chats")
            return open_store

To test power loss too, override the fixture `machine`; see `turnledger.testing.machine`.

`open_store` is called once for each simulated process and returns a new handle with its own lease. The tests
need the pytest plugin of anyio and run on asyncio.
"""

import pkgutil

import pytest

# Must precede the imports, or failing assertions do not show the values they compared.
pytest.register_assert_rewrite(*(f"{__name__}.{part.name}" for part in pkgutil.iter_modules(__path__)))

from turnledger.testing.store_contract import (  # noqa: E402
    atomicity,
    branches,
    catalogue,
    conversation_keys,
    deletion,
    effects,
    handles,
    idempotency,
    isolation,
    lanes,
    missing_conversations,
    parallel,
    power_loss,
    readers,
    search,
    tokens,
    transfer,
    usage,
    work,
)
from turnledger.testing.store_contract.rows import access as row_access  # noqa: E402
from turnledger.testing.store_contract.rows import changes as row_changes  # noqa: E402
from turnledger.testing.store_contract.rows import claims as row_claims  # noqa: E402
from turnledger.testing.store_contract.rows import conversations as row_conversations  # noqa: E402
from turnledger.testing.store_contract.rows import foreign as row_foreign  # noqa: E402
from turnledger.testing.store_contract.rows import inspection as row_inspection  # noqa: E402
from turnledger.testing.store_contract.rows import lanes as row_lanes  # noqa: E402
from turnledger.testing.store_contract.rows import maintenance as row_maintenance  # noqa: E402
from turnledger.testing.store_contract.rows import search as row_search  # noqa: E402
from turnledger.testing.store_contract.rows import transactions as row_transactions  # noqa: E402
from turnledger.testing.store_contract.rows import turns as row_turns  # noqa: E402
from turnledger.testing.store_contract.stage import Capabilities, OpenStore  # noqa: E402

__all__ = ["Capabilities", "OpenStore", "RowContract", "StoreContract"]


class RowContract(
    row_access.LinkRows,
    row_access.TokenRows,
    row_changes.StoredChanges,
    row_claims.StoredClaims,
    row_conversations.ConversationsWhoseTimeIsOver,
    row_conversations.StoredAmounts,
    row_conversations.StoredConversations,
    row_foreign.ForeignRows,
    row_inspection.InspectedRows,
    row_lanes.StoredAttempts,
    row_lanes.StoredJobs,
    row_lanes.StoredLeases,
    row_lanes.StoredTickets,
    row_maintenance.StoreUpkeep,
    row_search.StoredTexts,
    row_transactions.Transactions,
    row_turns.StoredBranches,
    row_turns.StoredFlags,
    row_turns.StoredTurns,
):
    """The part about rows: begin with it when you write a store."""


class StoreContract(
    RowContract,
    atomicity.Atomicity,
    branches.NestedEdits,
    branches.SharedTurns,
    catalogue.CatalogueEntries,
    catalogue.CatalogueFilters,
    catalogue.CataloguePages,
    deletion.Deletion,
    deletion.Retention,
    deletion.Purges,
    missing_conversations.MissingConversations,
    handles.Handles,
    idempotency.Idempotency,
    idempotency.UnknownOutcome,
    lanes.Lanes,
    lanes.Fences,
    conversation_keys.ConversationKeys,
    conversation_keys.ConversationCreation,
    conversation_keys.ConcurrentResets,
    parallel.ParallelTurns,
    parallel.LostParallelTurns,
    parallel.ParallelEffects,
    parallel.ParallelLives,
    power_loss.PowerLoss,
    power_loss.Restarts,
    search.Search,
    tokens.StoredTokens,
    tokens.ShareLinks,
    transfer.ChatTransfer,
    usage.UsedModels,
    usage.StoredBytes,
    usage.LinkUsage,
    effects.Effects,
    readers.Events,
    isolation.OwnerIsolation,
    isolation.ScopeIsolation,
    isolation.ScopedIdempotency,
    isolation.ChatIsolation,
    readers.UnreadTurns,
    work.DurableWork,
):
    """Subclass this and override the fixture `open_store`."""
