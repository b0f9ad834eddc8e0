"""Admitting: what changes something is done for who is let in at that moment, not for who was a moment ago.

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
"""Returns the admission version under which the caller is still let in, or raises what he is to be told."""


class Admitted(Protocol):
    """A request that names the admission version under which its caller was let in; None: it matters to
    nobody."""

    @property
    def admitted(self) -> int | None: ...


AnyRequest = TypeVar("AnyRequest", bound=Admitted)
Result = TypeVar("Result")


async def check_admitted(tables: Tables, owner: str, admitted: int | None) -> None:
    """Raise AdmissionMoved if it has changed who is let in since the caller was: he has to be looked up
    again. First of all, so that who is shut out learns nothing else."""
    if admitted is not None and admitted != await tables.admission(owner):
        raise AdmissionMoved


async def persist_admitted(
    process: Process, operation: Operation[AnyRequest, Result], request: AnyRequest, readmit: Readmit | None
) -> Result:
    """Run an operation that checks its caller's admission, and once more whenever he had to be looked up
    again. Raises what he is told if he is not let in any more."""
    while True:
        try:
            return await process.persist(operation, request)
        except AdmissionMoved:
            version = None if readmit is None else await readmit()
            if version in (None, request.admitted):  # looking again would never end
                raise
            request = replace(request, admitted=version)  # type: ignore[type-var]
