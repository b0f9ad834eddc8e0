"""Admission: a change is made only for a caller that is authorized at that very moment.

A begin compares the admission version by itself; this is for what is one transaction and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from turnledger.engine.ports import Operation, Tables
from turnledger.errors import AdmissionMoved

if TYPE_CHECKING:
    from turnledger.engine.process import Process

Readmit: TypeAlias = Callable[[], Awaitable[int]]
"""Returns the admission version under which the caller is authorized now, or raises the error for it."""


class Admitted(Protocol):
    """A request that names the admission version under which its caller was authorized; None: not checked."""

    @property
    def admitted(self) -> int | None: ...


AnyRequest = TypeVar("AnyRequest", bound=Admitted)
Result = TypeVar("Result")


async def check_admitted(tables: Tables, owner: str, admitted: int | None) -> None:
    """Raise AdmissionMoved if tokens have changed since the caller was authorized. Called first, so that a
    revoked caller learns nothing else."""
    if admitted is not None and admitted != await tables.admission(owner):
        raise AdmissionMoved


async def persist_admitted(
    process: Process, operation: Operation[AnyRequest, Result], request: AnyRequest, readmit: Readmit | None
) -> Result:
    """Run an operation that checks its caller's admission, and again whenever the caller had to be authorized
    anew. Raises what `readmit` raises."""
    while True:
        try:
            return await process.persist(operation, request)
        except AdmissionMoved:
            version = None if readmit is None else await readmit()
            if version in (None, request.admitted):  # looking again would never end
                raise
            request = replace(request, admitted=version)  # type: ignore[type-var]
