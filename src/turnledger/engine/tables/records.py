"""All rows of a store as records, for a copy into a store of another kind.

A record has the same columns and the same values in every store: ids instead of row numbers, the parent of
every turn, the owner of every row. What a store derives from the rows (its search index) or binds to itself
(its secret, the positions of changes) is in no record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from turnledger.model.ids import LeaseId

StoreRecord: TypeAlias = tuple[Any, ...]

_COLUMNS = {
    "owner": "owner flag_version admission bytes chats",
    "conversation": """
        id owner branch conversation_key state internal title metadata revision created_at touched_at
        expires_after swept reset_policy former_conversation_key switches scope tags pinned archived named_by
        listed purge_at forgotten""",
    "conversation_tag": "owner tag conversation",
    "branch": """
        id owner conversation previous fence head length running unsettled pending start settled last_ticket
        cleared instructed bytes preview used_at""",
    "origin": "owner branch conversation base source through line",
    "turn": "id owner branch number parent kind created_at committed_at body log checksum",
    "item_flag": "owner turn place to_model to_user branch number",
    "token": """
        id digest owner name scopes chat_scope models created_at expires_at revoked_at used_at parent
        conversation share bounds defaults""",
    "share": """
        id digest owner name chat_scope conversation models max_uses uses per_minute visitor_lifetime
        created_at expires_at revoked_at parent bounds bytes chats""",
    "attempt": """
        id owner conversation branch lease fence state base fork input on_stop on_failure idempotency_key stop
        failure_code failure_message partial journaled created_at ended_at interaction bytes reads ended""",
    "journal": "owner attempt number record",
    "event_log": "owner attempt number chunk",
    "ticket": """
        attempt owner conversation branch number front lease deadline idempotency_key fingerprint claimed
        interaction""",
    "job": "id owner conversation created_at resumes body",
    "claim": "owner idempotency_key fingerprint conversation attempt expires_at retries lost sender",
    "lease": "id beat",
    "clock": "id boot boot_at since trusted_at",
}
TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: tuple(columns.split()) for name, columns in _COLUMNS.items()}
)
"""The columns of all records, in the order in which tables are copied: a table refers to earlier ones only.

A branch has the `previous` one of its conversation: branches of a conversation are in an order. The `line` of
an origin consists of stretches: the id of a branch, and two numbers. Leases are those that are not buried.
"""


class RecordPage(Struct, frozen=True):
    records: list[StoreRecord]
    after: bytes
    """The place of the last record, for the next page. Opaque."""


class Holders(Struct, frozen=True):
    """The processes that may use a store."""

    living: int
    """How many are known to live."""
    unknown: Mapping[LeaseId, int]
    """The beats of others that are not known to be dead."""


class StoreState(Struct, frozen=True):
    identity: str
    """Identifies the store, and its backups."""
    last_change: str
    """Differs after the store was used, but for uses that leave few traces."""


class RecordSource(Protocol):
    """Reads a store as it is at one moment: all calls see one snapshot."""

    @property
    def place(self) -> str:
        """Where the store is, without secrets: for messages."""

    async def renew(self) -> None:
        """See the store as it is now."""

    async def state(self) -> StoreState: ...
    async def holders(self) -> Holders: ...

    async def count(self, table: str) -> int: ...
    async def read(self, table: str, after: bytes | None, max_bytes: int) -> RecordPage:
        """The next records of a table; none at its end. Ends when `max_bytes` are reached, so that only the
        last record may exceed them. Raises StoreCorrupt for a row that belongs to nothing."""

    async def close(self) -> None: ...


class CopyProgress(Struct, frozen=True):
    """Stored in the target, with the records themselves."""

    source: StoreState
    table: str
    after: bytes | None = None
    """The place of the last copied record of this table. Earlier tables are complete."""
    target: StoreState | None = None
    """Of the target, when the copy was complete; None until then."""


class RecordTarget(Protocol):
    """A store that records are copied into. While it is incomplete, no other process can open it."""

    @property
    def place(self) -> str: ...
    async def progress(self) -> CopyProgress | None:
        """None for a store that no copy was begun into."""

    async def begin(self, progress: CopyProgress) -> bool:
        """Mark the store as incomplete. False, and nothing changed, if it has any records."""

    async def write(
        self, table: str, records: Sequence[StoreRecord], old: CopyProgress, new: CopyProgress
    ) -> None:
        """Insert records and save the progress, all or nothing. Raises StoreUnavailable if the saved progress
        is not the old one: another process copies, too."""

    async def finish(self, old: CopyProgress) -> None:
        """Make the store usable: its search index is rebuilt when a server opens it, and those who follow its
        changes read anew. Saves the state of the target."""

    async def snapshot(self) -> RecordSource:
        """Return what it contains now."""

    async def close(self) -> None: ...
