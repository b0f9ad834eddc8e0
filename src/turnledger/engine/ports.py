"""What the engine needs from outside: a store, a clock, a runner.

The engine's transactions are coroutines over `Tables`, written once for all stores (begin.py, commit.py,
end.py, …). A transaction awaits only its tables, so an embedded store can run it to the end at once, while a
networked one awaits its database. The tables read and write rows and decide nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from turnledger.engine.tables.access import AccessRows
from turnledger.engine.tables.changes import ChangeRows, TailRows
from turnledger.engine.tables.claims import ClaimRows
from turnledger.engine.tables.conversations import ConversationRows
from turnledger.engine.tables.inspection import InspectionRows
from turnledger.engine.tables.jobs import JobRows, ReadyJobRows
from turnledger.engine.tables.lanes import HeldRows, LaneRows
from turnledger.engine.tables.maintenance import IdRows, MaintenanceRows
from turnledger.engine.tables.search import SearchRows
from turnledger.engine.tables.turns import TurnRows
from turnledger.model.ids import ConversationId, LeaseId

if TYPE_CHECKING:
    from turnledger.engine.turn.running_turn import RunningTurn


class Tables(
    ConversationRows, TurnRows, LaneRows, JobRows, ClaimRows, SearchRows, ChangeRows, IdRows, Protocol
):
    """The rows of one owner inside one transaction.

    Rows of other owners do not exist here: lookups return None or nothing for them, and a write that names
    one changes nothing or raises StoreError. Only the leases of processes, and whether an id is taken,
    concern all owners (LeaseRows, IdRows).
    """

    @property
    def owner(self) -> str: ...


class WholeStore(HeldRows, ReadyJobRows, AccessRows, TailRows, MaintenanceRows, Protocol):
    """The rows that concern all owners, inside one transaction."""

    def of(self, owner: str) -> Tables:
        """Return the rows of an owner, in the same transaction."""


class Inspection(WholeStore, InspectionRows, Protocol):
    """All rows of a store, for a check."""


Request = TypeVar("Request")
Result = TypeVar("Result")
Operation: TypeAlias = Callable[[Tables, Request], Awaitable[Result]]
WholeOperation: TypeAlias = Callable[[WholeStore, Request], Awaitable[Result]]
InspectOperation: TypeAlias = Callable[[Inspection, Request], Awaitable[Result]]


class Sync(Enum):
    """What a write must survive once it is acknowledged."""

    DISK = "disk"  # power loss
    PROCESS = "process"  # death of the process; power loss may undo it with all later writes


class StoreReader(Protocol):
    """Reads from a store. An operation sees one consistent snapshot with all acknowledged writes."""

    async def read(self, operation: Operation[Request, Result], request: Request, owner: str) -> Result:
        """Run a reading operation on the rows of an owner."""

    async def read_whole(self, operation: WholeOperation[Request, Result], request: Request) -> Result:
        """Run a reading operation on the rows of all owners."""

    async def inspect(self, operation: InspectOperation[Request, Result], request: Request) -> Result:
        """Run a check."""

    async def close(self) -> None: ...


class Store(StoreReader, Protocol):
    """Stores the rows. Raises only errors of the tree in errors.py."""

    async def transact(
        self,
        operation: Operation[Request, Result],
        request: Request,
        owner: str,
        sync: Sync = Sync.DISK,
        about: ConversationId | None = None,
    ) -> Result:
        """Run a writing operation on the rows of an owner, atomically and in isolation.

        `about` is a conversation that this process has just used, for an operation that needs little else: a
        store that has its rows at hand may run the operation at once. A store may answer reads from what it
        knows to be current, and collect the writes of an operation until its end, if later reads see them.

        An error of the operation rolls it back and is raised here. Other StoreErrors mean that nothing was
        written, except OutcomeUnknown: the write may be there, or may appear until another write by this
        process has succeeded. When the caller is cancelled, the operation may still happen.
        """

    async def transact_whole(
        self, operation: WholeOperation[Request, Result], request: Request, sync: Sync = Sync.DISK
    ) -> Result:
        """As `transact`, on the rows of all owners."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the event loop soon after another process may have written. Only a hint: calls
        may be late, lost or needless."""

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        """Take the lease and renew it every `every` seconds, even if the event loop is blocked, until
        closed."""

    def is_holder_dead(self, id: LeaseId) -> bool:
        """Return whether the process of this lease is known to be dead. False means unknown."""

    async def close(self) -> None:
        """End the lease and release everything. Operations under way finish first."""


class Clock(Protocol):
    """Time. `now_ms` is the wall clock, and may jump. The others, in seconds, never do."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float:
        """May stand still while the machine sleeps."""

    def boot_time(self) -> float:
        """Seconds since boot, including sleep where the system counts it."""

    def boot_id(self) -> str:
        """Identifies the boot that `boot_time` counts from; empty if unknown."""


class Runner(Protocol):
    """Produces a draft: emits text and adds items to the running turn, and returns when it is complete."""

    def __call__(self, turn: RunningTurn, /) -> Awaitable[None]: ...
