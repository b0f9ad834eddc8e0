"""Admission: make a change only while its caller is still authorized.

Begin compares the admission version itself; this module serves operations of a single transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from turnledger.engine.ports import Operation, Tables
from turnledger.errors import AdmissionMoved
from turnledger.model.ids import TokenId

if TYPE_CHECKING:
    from turnledger.engine.process import Process

Readmit: TypeAlias = Callable[[], Awaitable[int]]
"""Authorize the caller again; return its admission version, or raise."""


class Authorization(Struct, frozen=True):
    """How a caller was authorized. What they ask for begins only while this holds."""

    version: int
    """The admission version of the owner: it changes when a token is revoked. See Tokens.find."""
    until: int | None = None
    """The end of the authorization, in milliseconds since 1970."""
    readmit: Readmit | None = None
    """Called when it no longer holds, to authorize the caller again: a turn then keeps its place in the
    queue. Without it, AdmissionMoved is raised."""
    token: TokenId | None = None
    """The token of the caller: durable work, which outlives `readmit`, runs only while this is valid."""


class AdmittedRequest(Protocol):
    """A request that names the admission version under which its caller was authorized; None: not checked."""

    @property
    def admitted(self) -> int | None: ...


AnyRequest = TypeVar("AnyRequest", bound=AdmittedRequest)
Result = TypeVar("Result")


async def check_admitted(tables: Tables, admitted: int | None) -> None:
    """Raise AdmissionMoved if tokens have changed since the caller was authorized. Call it first, so that a
    revoked caller learns nothing else."""
    if admitted is not None and admitted != await tables.admission():
        raise AdmissionMoved


async def persist_admitted(
    process: Process,
    operation: Operation[AnyRequest, Result],
    request: AnyRequest,
    owner: str,
    authorization: Authorization | None,
) -> Result:
    """Run an operation that checks admission; if it has moved, authorize the caller and repeat."""
    while True:
        try:
            return await process.persist(operation, request, owner)
        except AdmissionMoved:
            version = await readmitted(authorization, request.admitted)
            request = replace(request, admitted=version)  # type: ignore[type-var]


async def readmitted(authorization: Authorization | None, admitted: int | None) -> int:
    """Authorize the caller again, and return the new version. Raises AdmissionMoved if that is not possible,
    and what `readmit` raises."""
    readmit = authorization.readmit if authorization is not None else None
    version = None if readmit is None else await readmit()
    if version is None or version == admitted:  # the same version would fail for ever
        raise AdmissionMoved
    return version
