"""The rows of claims: what an idempotency_key refers to."""

from __future__ import annotations

from turnledger.engine.ports import Store
from turnledger.model.ids import TurnId
from turnledger.testing.store_contract.rows.kit import IDS, LATE, TEXT, claim, do, read_all, write
from turnledger.testing.store_contract.stage import Contract


class StoredClaims(Contract):
    async def test_claim_is_read_as_saved(self, here: Store, there: Store) -> None:
        plain = claim()
        full = claim(
            idempotency_key=TEXT,
            fingerprint=b"\x00\xff",
            expires_at=LATE,
            retries=0,
            is_lost=True,
            sender=IDS.new(TurnId),
        )
        await write(here, do("save_claim", plain), do("save_claim", full))
        assert await read_all(there, "claim", ("i",), (TEXT,), ("I",)) == [plain, full, None]

    async def test_save_claim_replaces_that_of_the_same_key(self, here: Store, there: Store) -> None:
        beside = claim(idempotency_key="other")
        await write(here, do("save_claim", claim(expires_at=5, retries=2)), do("save_claim", beside))
        for again in (claim(expires_at=LATE, is_lost=True, sender=IDS.new(TurnId)), claim()):
            await write(there, do("save_claim", again))
            assert await read_all(here, "claim", ("i",), ("other",)) == [again, beside]

    async def test_drop_claim_removes_only_that_of_the_key(self, here: Store, there: Store) -> None:
        made = [claim(), claim(idempotency_key="other")]
        await write(here, *(do("save_claim", each) for each in made))
        await write(there, do("drop_claim", "other"), do("drop_claim", "unknown"))
        assert await read_all(here, "claim", ("i",), ("other",)) == [made[0], None]
