"""What the idempotency_keys of an owner refer to."""

from __future__ import annotations

from typing import Protocol

from turnledger.model.conversation import Claim


class ClaimRows(Protocol):
    async def claim(self, idempotency_key: str) -> Claim | None: ...
    async def save_claim(self, claim: Claim) -> None:
        """Insert, or replace that of the same idempotency_key."""

    async def drop_claim(self, idempotency_key: str) -> None: ...
