"""Patterns (`expect`) and references (`$name.field`) of scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MATCHERS = frozenset({"any", "contains", "has", "length", "not", "at_least"})


def resolve(value: Any, remembered: Mapping[str, Any]) -> Any:
    """Replace the references in a value. Raises KeyError for an unknown one."""
    if isinstance(value, dict):
        return {name: resolve(each, remembered) for name, each in value.items()}
    if isinstance(value, list):
        return [resolve(each, remembered) for each in value]
    if isinstance(value, str) and value.startswith("$"):
        return _look_up(value[1:], remembered)
    return value


def _look_up(path: str, remembered: Mapping[str, Any]) -> Any:
    name, *fields = path.split(".")
    found = remembered[name]
    for field in fields:
        found = found[int(field)] if isinstance(found, list) else found[field]
    return found


def mismatch(pattern: Any, value: Any, at: str = "it") -> str | None:
    """Describe why the value does not match the pattern; None if it does."""
    if isinstance(pattern, dict):
        if len(pattern) == 1 and pattern.keys() <= MATCHERS:
            return _mismatch_of_matcher(*next(iter(pattern.items())), value, at)
        return _mismatch_of_fields(pattern, value, at)
    if isinstance(pattern, list):
        if not isinstance(value, list) or len(value) != len(pattern):
            return f"{at} is {value!r}, not {len(pattern)} like {pattern!r}"
        each = zip(pattern, value, strict=True)
        return next(filter(None, (mismatch(*pair, f"{at}.{n}") for n, pair in enumerate(each))), None)
    is_equal = type(pattern) is type(value) and pattern == value
    return None if is_equal else f"{at} is {value!r}, not {pattern!r}"


def _mismatch_of_fields(pattern: Mapping[str, Any], value: Any, at: str) -> str | None:
    if not isinstance(value, dict):
        return f"{at} is {value!r}, not an object"
    for name, wanted in pattern.items():
        if name not in value:
            return f"{at} has no {name}: {value!r}"
        if (problem := mismatch(wanted, value[name], f"{at}.{name}")) is not None:
            return problem
    return None


def _mismatch_of_matcher(word: str, wanted: Any, value: Any, at: str) -> str | None:
    if word == "any":
        return None if value is not None else f"{at} is null"
    if word == "contains":
        is_so = isinstance(value, str) and wanted in value
    elif word == "has":
        is_so = isinstance(value, list) and all(
            any(mismatch(one, each) is None for each in value) for one in wanted
        )
    elif word == "length":
        is_so = isinstance(value, list | str) and len(value) == wanted
    elif word == "not":
        is_so = mismatch(wanted, value) is not None
    else:
        is_so = isinstance(value, int) and value >= wanted
    return None if is_so else f"{at} is {value!r}, which does not match {word} {wanted!r}"
