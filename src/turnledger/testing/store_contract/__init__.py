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

import pytest

PARTS = (
    "admissions",
    "all_or_nothing",
    "attaching",
    "beginnings",
    "branch_rows",
    "busy",
    "cancellations",
    "catalogue",
    "changes",
    "clocks",
    "context",
    "flags",
    "event_ends",
    "events",
    "crossing",
    "deleting",
    "editing",
    "effects",
    "everything",
    "forgotten",
    "forks",
    "house_keeping",
    "instructions",
    "interaction",
    "keyless_retries",
    "made_once",
    "metadata",
    "moved_once",
    "moving",
    "once",
    "one_at_a_time",
    "one_chat",
    "one_key",
    "power_loss",
    "resets",
    "readers",
    "resent",
    "resent_races",
    "resuming",
    "retention",
    "rows",
    "scopes",
    "shares",
    "search",
    "stage",
    "stops",
    "superseded",
    "tokens",
    "transfer",
    "unfinished_edits",
    "unknown_outcome",
    "usage",
    "well_formed",
    "what_happened",
    "yours_only",
)
# Before they are imported, so that a failing assertion shows what it compared.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in PARTS))

from turnledger.testing.store_contract.admissions import Admissions  # noqa: E402
from turnledger.testing.store_contract.all_or_nothing import AllOrNothing  # noqa: E402
from turnledger.testing.store_contract.attaching import Attaching  # noqa: E402
from turnledger.testing.store_contract.beginnings import Beginnings  # noqa: E402
from turnledger.testing.store_contract.branch_rows import BranchRows  # noqa: E402
from turnledger.testing.store_contract.busy import Busy  # noqa: E402
from turnledger.testing.store_contract.cancellations import Cancellations  # noqa: E402
from turnledger.testing.store_contract.catalogue import (  # noqa: E402
    Chosen,
    ListedWhenCommitted,
    NamedByWords,
    PagedWhileChatsChange,
    Previewed,
)
from turnledger.testing.store_contract.changes import ChangeRows, Changes  # noqa: E402
from turnledger.testing.store_contract.clocks import Clocks  # noqa: E402
from turnledger.testing.store_contract.context import ContextShown  # noqa: E402
from turnledger.testing.store_contract.crossing import Crossing  # noqa: E402
from turnledger.testing.store_contract.deleting import Deleting  # noqa: E402
from turnledger.testing.store_contract.editing import Editing  # noqa: E402
from turnledger.testing.store_contract.effects import EffectsGoAlong  # noqa: E402
from turnledger.testing.store_contract.event_ends import EventEnds  # noqa: E402
from turnledger.testing.store_contract.events import Events  # noqa: E402
from turnledger.testing.store_contract.everything import Everything  # noqa: E402
from turnledger.testing.store_contract.flags import Flagged  # noqa: E402
from turnledger.testing.store_contract.forgotten import NothingForgotten  # noqa: E402
from turnledger.testing.store_contract.forks import Forks  # noqa: E402
from turnledger.testing.store_contract.house_keeping import HouseKeeping  # noqa: E402
from turnledger.testing.store_contract.instructions import InstructionsInForce  # noqa: E402
from turnledger.testing.store_contract.interaction import Interaction  # noqa: E402
from turnledger.testing.store_contract.keyless_retries import KeylessRetries  # noqa: E402
from turnledger.testing.store_contract.made_once import MadeOnce  # noqa: E402
from turnledger.testing.store_contract.metadata import Metadata  # noqa: E402
from turnledger.testing.store_contract.moved_once import (  # noqa: E402
    ChangedByWhoIsLetIn,
    ForkedOnce,
    SwitchedOnce,
    UndoneOnce,
)
from turnledger.testing.store_contract.moving import Moving  # noqa: E402
from turnledger.testing.store_contract.once import Once  # noqa: E402
from turnledger.testing.store_contract.one_at_a_time import OneAtATime  # noqa: E402
from turnledger.testing.store_contract.one_chat import OneChat  # noqa: E402
from turnledger.testing.store_contract.one_key import OneKey  # noqa: E402
from turnledger.testing.store_contract.power_loss import PowerLoss  # noqa: E402
from turnledger.testing.store_contract.resent import Resent, ResentInstructions, ResentTools  # noqa: E402
from turnledger.testing.store_contract.resent_races import ResentInBetween, ResentOnce  # noqa: E402
from turnledger.testing.store_contract.resets import Resets  # noqa: E402
from turnledger.testing.store_contract.resuming import Resuming  # noqa: E402
from turnledger.testing.store_contract.retention import Retention  # noqa: E402
from turnledger.testing.store_contract.rows import Rows  # noqa: E402
from turnledger.testing.store_contract.scopes import ScopedOnce, Scopes  # noqa: E402
from turnledger.testing.store_contract.search import Search  # noqa: E402
from turnledger.testing.store_contract.shares import SharesKept  # noqa: E402
from turnledger.testing.store_contract.stage import Capabilities, OpenStore  # noqa: E402
from turnledger.testing.store_contract.stops import Stops  # noqa: E402
from turnledger.testing.store_contract.superseded import Superseding  # noqa: E402
from turnledger.testing.store_contract.tokens import TokensKept  # noqa: E402
from turnledger.testing.store_contract.transfer import Transferred  # noqa: E402
from turnledger.testing.store_contract.unfinished_edits import UnfinishedEdits  # noqa: E402
from turnledger.testing.store_contract.unknown_outcome import UnknownOutcome  # noqa: E402
from turnledger.testing.store_contract.usage import Bounded, Counting, OfLinks  # noqa: E402
from turnledger.testing.store_contract.well_formed import WellFormed  # noqa: E402
from turnledger.testing.store_contract.what_happened import WhatHappened  # noqa: E402
from turnledger.testing.store_contract.yours_only import YoursOnly  # noqa: E402

__all__ = ["Capabilities", "OpenStore", "StoreContract"]


class StoreContract(
    Admissions,
    AllOrNothing,
    Attaching,
    Beginnings,
    BranchRows,
    Bounded,
    OfLinks,
    Busy,
    Cancellations,
    ChangedByWhoIsLetIn,
    ChangeRows,
    Changes,
    Chosen,
    ContextShown,
    Flagged,
    EventEnds,
    Events,
    Counting,
    Crossing,
    Deleting,
    Editing,
    EffectsGoAlong,
    ForkedOnce,
    Forks,
    Everything,
    NothingForgotten,
    Clocks,
    HouseKeeping,
    Interaction,
    InstructionsInForce,
    KeylessRetries,
    ListedWhenCommitted,
    MadeOnce,
    Metadata,
    Moving,
    NamedByWords,
    Once,
    OneAtATime,
    OneChat,
    OneKey,
    PowerLoss,
    PagedWhileChatsChange,
    Previewed,
    Resent,
    ResentInBetween,
    ResentInstructions,
    ResentOnce,
    ResentTools,
    Resets,
    Resuming,
    Retention,
    Rows,
    ScopedOnce,
    Scopes,
    SharesKept,
    Search,
    Stops,
    Superseding,
    SwitchedOnce,
    TokensKept,
    Transferred,
    UndoneOnce,
    UnfinishedEdits,
    UnknownOutcome,
    WellFormed,
    WhatHappened,
    YoursOnly,
):
    """All parts of the contract."""
