"""Signatures of Python functions, for the reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, get_overloads

from tools.reference.markdown import WIDTH

_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def signatures(name: str, function: Callable[..., Any]) -> str:
    """Return all overloads, a line or a block for each."""
    ways = list(get_overloads(function)) or [function]
    returned = [str(each.__annotations__.get("return")) for each in ways if hasattr(each, "__annotations__")]
    lines = [
        _signature(name, each)
        for each in ways
        if len(ways) < 3 or each.__annotations__.get("return") != " | ".join(returned[:-1])
    ]
    return "\n".join(dict.fromkeys(lines))


def _signature(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    returned = (
        "" if signature.return_annotation is signature.empty else _annotation(signature.return_annotation)
    )
    arrow = f" -> {returned}" if returned and not name[0].isupper() else ""
    begun = "async " if inspect.iscoroutinefunction(function) else ""
    pieces = list(_pieces(parameters))
    line = f"{begun}{name}({', '.join(pieces)}){arrow}"
    if len(line) <= WIDTH:
        return line
    return f"{begun}{name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){arrow}"


def _pieces(parameters: Iterable[inspect.Parameter]) -> Iterable[str]:
    is_named = False
    for each in parameters:
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            is_named = True
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not is_named:
            is_named = True
            yield "*"
        stars = _STARS.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        yield f"{stars}{each.name}{kind}{_default(each)}"


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    unpacked = text.removeprefix("Unpack[")
    return unpacked.removesuffix("]") if unpacked != text else text.strip("'\"")


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return ""
    return f" = {value(parameter.default)}"


def value(default: object) -> str:
    """Return a default as it would be written; an ellipsis if it cannot be."""
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    text = f'"{default}"' if isinstance(default, str) and '"' not in default else repr(default)
    return "…" if default is ... or text.startswith("<") else text
