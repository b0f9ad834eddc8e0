"""Upstream errors for visitors and narrowed tokens: only the kind of failure.

The upstream's message may name the operator's organisation, projects and limits; it goes to the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from turnledger.errors import MalformedAnswer, ModelError, ModelRefused, ModelTimeout, ModelUnavailable
from turnledger.model.turn import Failure, without_internals
from turnledger.runners.chat_model import (
    ChatModel,
    ModelRequest,
    chunk_of,
    completion_of,
    error_in,
    failure_of,
    finish_reasons_of,
)
from turnledger.server.ops.logs import log

_PUBLIC_CODES = frozenset({"context_length_exceeded", "rate_limit_exceeded", "content_policy_violation"})
"""Codes about the request itself, which programs match on."""
_KINDS = {each.code: each for each in (ModelError, ModelUnavailable, ModelTimeout, MalformedAnswer)}


class RedactedModel:
    """A chat model whose errors reveal nothing of its upstream."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.finish_reasons = finish_reasons_of(model)

    async def complete(self, request: ModelRequest) -> bytes:
        try:
            body = await self._model.complete(request)
            if b'"error"' in body and (error := error_in(completion_of(body))) is not None:
                raise failure_of(error)
        except ModelError as problem:
            raise redact(problem) from None
        return body

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        try:
            async with self._model.stream(request) as batches:
                yield _check_chunks(batches)
        except ModelError as problem:
            raise redact(problem) from None

    async def models(self) -> list[dict[str, Any]]:
        try:
            return await self._model.models()
        except ModelError as problem:
            raise redact(problem) from None

    async def close(self) -> None:
        await self._model.close()


async def _check_chunks(batches: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
    """Pass chunks on up to an error."""
    async for payloads in batches:
        for payload in payloads:
            if b'"error"' in payload and (error := error_in(chunk_of(payload))) is not None:
                raise failure_of(error)
        yield payloads


def redact(problem: ModelError) -> ModelError:
    """Log an error of an upstream; return it without the upstream's words."""
    log.warning("model_failed", code=problem.code, details=str(problem))
    if isinstance(problem, ModelRefused):
        # A runner that added a request for the usage recognises this, and retries without it.
        is_about_usage = "stream_options" in str(problem.error)
        error = {"param": "stream_options"} if is_about_usage else {}
        if problem.error.get("code") in _PUBLIC_CODES:
            error["code"] = problem.error["code"]
        redacted: ModelError = ModelRefused(problem.status, error)
    else:
        redacted = _KINDS.get(problem.code, ModelError)()
    redacted.should_retry, redacted.retry_after = problem.should_retry, problem.retry_after
    redacted.context_exceeded = problem.context_exceeded
    redacted.refuses_repeated_roles = problem.refuses_repeated_roles
    return redacted


def redact_failure(failure: Failure | None) -> Failure | None:
    """Return the failure of a turn without the upstream's message, or that of a bug."""
    if failure is None:
        return None
    if failure.code == ModelRefused.code:
        return Failure(failure.code, str(ModelError()))
    if failure.code in _KINDS:
        return Failure(failure.code, str(_KINDS[failure.code]()))
    return without_internals(failure)
