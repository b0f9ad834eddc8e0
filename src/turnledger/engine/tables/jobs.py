"""The jobs of an owner: requests of durable turns that wait or run."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from turnledger.model.ids import TurnId
from turnledger.model.job import TurnJob


class JobRows(Protocol):
    async def job(self, id: TurnId) -> TurnJob | None: ...
    async def jobs(self, after: TurnId | None, limit: int) -> list[TurnJob]:
        """All of the owner in order of their ids, after this one."""

    async def count_jobs(self) -> int: ...
    async def add_job(self, job: TurnJob) -> None:
        """Insert; its conversation must exist."""

    async def count_resume(self, id: TurnId) -> None:
        """Raise the number of its resumes."""

    async def drop_job(self, id: TurnId) -> None: ...


class ReadyJob(Struct, frozen=True):
    owner: str
    id: TurnId


class ReadyJobRows(Protocol):
    async def ready_jobs(self, limit: int) -> list[ReadyJob]:
        """Those that a process can take, oldest first: the first ticket of a free lane, and those that run
        under the lease NOBODY."""
