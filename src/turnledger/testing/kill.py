"""Free the coroutines of a killed process without running or reporting any of their code."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import sysconfig
from collections import deque
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MethodType
from typing import Any

_SUSPENDED_CODE = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})
_LEADS_TO_CODE = _SUSPENDED_CODE | {MethodType, tuple, deque, dict}


def require_supported_interpreter() -> None:
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotImplementedError("SimulatedLoop needs CPython with the GIL, to drop code without running it")


def discard(handle: asyncio.Handle) -> None:
    """Drop a handle of a dead process; an exception it carried is not reported."""
    for arg in handle._args or ():
        if isinstance(arg, asyncio.Future):
            arg._log_traceback = False


def free_without_running(roots: list[Any]) -> None:
    """Make the interpreter free these coroutines, and those suspended below, without running any code.

    Below are the awaitables they wait for and the generators of their open context managers. CPython closes a
    suspended coroutine when freeing it, unless it is marked as finalized. Surplus marks are harmless.
    """
    pending, seen = list(roots), set[int]()
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        kind = type(thing)
        if kind in _SUSPENDED_CODE:
            _mark_finalized(thing)
        if kind in _LEADS_TO_CODE or hasattr(kind, "__exit__") or hasattr(kind, "__aexit__"):
            pending.extend(gc.get_referents(thing))


def _mark_finalized(code: object) -> None:
    # PyGC_Head is the two words before the object; bit 0 of its second word means that the finalizer ran.
    flags = ctypes.c_size_t.from_address(id(code) - ctypes.sizeof(ctypes.c_size_t))
    flags.value |= 1
    assert gc.is_finalized(code)
