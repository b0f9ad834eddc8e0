"""Tell damage in stored rows, and values that no store can hold, from bugs."""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from traceback import walk_tb
from types import CodeType
from typing import Any, TypeVar

import msgspec

from turnledger.model import codec
from turnledger.model.ids import Id

UNSTORABLE = (UnicodeEncodeError, OverflowError)
"""Raised by drivers for values that a database cannot hold: half a surrogate pair, an integer beyond 64
bits."""

UNREADABLE = (
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    StructError,
    msgspec.MsgspecError,
)
"""The errors of a row with values that no version writes: damage that the database cannot see."""

Decoder = TypeVar("Decoder", bound=Callable[..., Any])

_CODES: set[CodeType] = {vars(Id)["trusted"].__func__.__code__, codec.decode.__code__}


def decoder(function: Decoder) -> Decoder:
    """Mark a function whose arguments are values of a row, and not of a caller."""
    _CODES.add(function.__code__)
    return function


def is_from_decoder(error: BaseException) -> bool:
    """Return whether the error was raised while decoding stored bytes."""
    return isinstance(error, UnicodeDecodeError) or any(
        frame.f_code in _CODES for frame, _ in walk_tb(error.__traceback__)
    )
