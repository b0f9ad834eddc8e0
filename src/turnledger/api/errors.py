"""Errors as the API sends them."""

from __future__ import annotations

from msgspec import Struct


class ErrorDetails(Struct, frozen=True, kw_only=True):
    """The details of an error; programs match on `code`."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Error(Struct, frozen=True, kw_only=True):
    """The one shape of errors, as in the OpenAI API."""

    error: ErrorDetails
