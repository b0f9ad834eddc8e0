"""Functions that turn stored bytes into values: what they raise is damage of the file, not a bug."""

from __future__ import annotations

from collections.abc import Callable
from traceback import walk_tb
from types import CodeType
from typing import Any, TypeVar

from turnledger.model import codec
from turnledger.model.ids import Id

Decoder = TypeVar("Decoder", bound=Callable[..., Any])

_CODES: set[CodeType] = {vars(Id)["trusted"].__func__.__code__, codec.decode.__code__}


def decoder(function: Decoder) -> Decoder:
    """Mark a function that is given values of a row, and nothing that a caller could get wrong."""
    _CODES.add(function.__code__)
    return function


def is_from_decoder(error: BaseException) -> bool:
    """Whether the error was raised while stored bytes were turned into values, by a decoder or by apsw."""
    return isinstance(error, UnicodeDecodeError) or any(
        frame.f_code in _CODES for frame, _ in walk_tb(error.__traceback__)
    )
