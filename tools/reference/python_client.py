"""The reference of the Python client: what `turnledger.client` exports, and the classes that leads to."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, is_dataclass
from dataclasses import fields as fields_of
from enum import Enum
from functools import cached_property
from types import FunctionType, ModuleType, NoneType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from tools.reference.markdown import code, head, prose, sections, table
from tools.reference.python_signatures import signatures, value
from tools.reference.python_source import aliases, field_docs, set_when_made
from turnledger.errors import TurnledgerError

PACKAGE = "turnledger.client"
SHAPES = "turnledger.api"
PACKAGES = (
    PACKAGE,
    "turnledger.api",
    *(f"turnledger.model.{name}" for name in ("attempt", "event", "item", "turn")),
)
"""The packages whose classes the page explains."""
INTRODUCTION = (
    "Everything that `turnledger.client` offers (`pip install '.[client]'` in the clone). "
    "Guarantees: [the Python client](../python-client.md). Of a class "
    "for asyncio, the page lists only the differences from its twin."
)


MADE_BY_USERS = ("Client", "AsyncClient", "ChatRunner", "DemoModel", "Upstream")
"""All others are returned by something else, or are plain values with the listed fields."""


def page() -> str:
    package = importlib.import_module(PACKAGE)
    kinds = sorted(reachable(package, PACKAGES), key=_rank)
    parts = [section(kind, kinds) for kind in kinds if not issubclass(kind, TurnledgerError)]
    return sections(
        [
            head("Reference: the Python client", INTRODUCTION),
            *parts,
            *_functions(package),
            short_names(parts, PACKAGE),
            _errors(),
        ]
    )


def reachable(package: ModuleType, within: tuple[str, ...]) -> Iterator[type]:
    """Yield the exported classes, each followed by those that its public members lead to; those that users
    create are first."""
    seen: set[type] = set()
    names = [*filter(package.__all__.__contains__, MADE_BY_USERS), *package.__all__]
    waiting = [kind for name in names if isinstance(kind := getattr(package, name), type)]
    while waiting:
        kind = waiting.pop(0)
        if kind not in seen:
            seen.add(kind)
            yield kind
            waiting[:0] = [each for each in _annotated_classes(kind) if each.__module__.startswith(within)]


def _rank(kind: type) -> int:
    """Order classes to work with first, then their asyncio twins, then values."""
    if kind.__name__.startswith("Async"):
        return 1
    return 2 if issubclass(kind, msgspec.Struct | Enum | dict) else 0


def _annotated_classes(kind: type) -> Iterator[type]:
    """Yield the classes in the annotations of a class's members."""
    for owner, name, member in members(kind):
        annotations = [inspect.get_annotations(owner).get(name, "")]
        annotations += getattr(_function_of(member), "__annotations__", {}).values()
        yield from _classes(owner, " ".join(map(str, annotations)))
    for _, made, _ in set_when_made(kind):
        yield from _classes(kind, made)


def _classes(owner: type, annotations: str) -> Iterator[type]:
    for word in re.findall(r"\w+", annotations):
        found = getattr(sys.modules[owner.__module__], word, None)
        if isinstance(found, type) and not word.startswith("_"):
            yield found


def members(kind: type, without: type = object) -> Iterator[tuple[type, str, Any]]:
    """Yield the public members of a class, also inherited ones except those of `without`, in source order:
    owner, name and value; None for a field without one."""
    seen: set[str] = set()
    for owner in kind.__mro__[: kind.__mro__.index(without)]:
        if owner.__module__.partition(".")[0] in ("builtins", "msgspec", "abc", "typing", "enum"):
            continue
        # Enums order their members differently from one Python to the next.
        first = getattr(owner, "__members__", {})
        for name in [*first, *inspect.get_annotations(owner), *vars(owner)]:
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield owner, name, vars(owner).get(name)


def section(kind: type, kinds: Sequence[type], without: type = object) -> str:
    title = f"## {kind.__name__}"
    made = (
        code(signatures(kind.__name__, vars(kind)["__init__"]), "py")
        if kind.__name__ in MADE_BY_USERS
        else ""
    )
    twin = next((each for each in kinds if f"Async{each.__name__}" == kind.__name__), None)
    if twin is not None:
        return sections([title, made, _docs(kind), _differences(kind, twin)])
    declared = {name for _, name, _ in members(kind)}
    fields = [
        (f"`{name}`", f"`{made}`" if made else "", prose(description))
        for name, made, description in set_when_made(kind)
        if name not in declared
    ]
    methods = []
    for owner, name, member in members(kind, without):
        function = _function_of(member)
        if isinstance(member, property | cached_property):
            fields.append((f"`{name}`", _returned(function), _docs(function)))
        elif function is not None:
            methods.append(_method(kind, name, function))
        else:
            fields.append(_field(kind, owner, name))
    return sections([title, made, _docs(kind), table(["", "", ""], fields), *methods])


def _method(kind: type, name: str, function: Any) -> str:
    return sections([f"### {kind.__name__}.{name}", code(signatures(name, function), "py"), _docs(function)])


def _field(kind: type, owner: type, name: str) -> tuple[str, str, str]:
    annotation = inspect.get_annotations(owner).get(name, "")
    shown = str(getattr(annotation, "__forward_arg__", annotation))
    if issubclass(kind, msgspec.Struct):
        fields = {each.name: each for each in msgspec.structs.fields(kind)}
        default, described = msgspec.NODEFAULT, ""
        if name in fields:
            default, described = fields[name].default, _description(fields[name].type)
        if owner.__module__.startswith(SHAPES):
            shown = _plain(get_type_hints(kind)[name])
        shown += f" = {value(default)}" if default is not msgspec.NODEFAULT else ""
        return f"`{name}`", f"`{shown}`", described or field_docs(owner).get(name, "")
    if issubclass(kind, Enum):
        shown = value(kind[name].value)
    if is_dataclass(owner) and name in (defaults := {each.name: each.default for each in fields_of(owner)}):
        shown += f" = {value(defaults[name])}" if defaults[name] is not MISSING else ""
    return f"`{name}`", f"`{shown}`" if shown else "", field_docs(owner).get(name, "")


def _plain(annotation: Any) -> str:
    """Format a type without the modules of its names."""
    if get_origin(annotation) is Union:
        return " | ".join(map(_plain, get_args(annotation)))
    shown = "None" if annotation is NoneType else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(\w+)|[+~](\w+?)(?:_co)?\b", r"\1\2", shown)


def _description(annotation: Any) -> str:
    """Return the description in an annotation, or in a part of it."""
    descriptions = [each.description for each in getattr(annotation, "__metadata__", ()) if each.description]
    return (
        descriptions[-1] if descriptions else next(filter(None, map(_description, get_args(annotation))), "")
    )


def _function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member if isinstance(member, FunctionType) else None


def _returned(function: Any) -> str:
    annotation = str(getattr(function, "__annotations__", {}).get("return", "")).strip("'\"")
    return f"`{annotation}`" if annotation else ""


def _docs(documented: Any) -> str:
    return prose(inspect.cleandoc(documented.__doc__ or ""))


def _differences(kind: type, twin: type) -> str:
    """Describe the members that only one of the two has."""
    own, others = ({name for _, name, _ in members(each)} for each in (kind, twin))
    text = f"The members of [{twin.__name__}](#{twin.__name__.lower()}), for asyncio."
    alone = [f"`{name}`" for name in sorted(own - others)]
    missing = [f"`{name}`" for name in sorted(others - own)]
    if alone:
        text += f" It alone has {', '.join(alone)}."
    if missing:
        text += f" It has no {', '.join(missing)}."
    return text


def _functions(package: ModuleType) -> Iterator[str]:
    for name in package.__all__:
        if isinstance(exported := getattr(package, name), FunctionType):
            yield sections([f"## {name}", code(signatures(name, exported), "py"), _docs(exported)])


def short_names(parts: Sequence[str], *packages: str) -> str:
    """Explain the type aliases of some packages that the parts of a page use."""
    words = set(re.findall(r"\w+", " ".join(parts)))
    rows = [
        (f"`{name}`", f"`{stands_for}`", prose(description))
        for name, (stands_for, description) in sorted(
            pair for each in packages for pair in aliases(each).items()
        )
        if name in words and not name.startswith("_")
    ]
    return sections(["## Short names", table(["", "", ""], rows)]) if rows else ""


def _errors() -> str:
    rows = [
        (f"{'· ' * depth}`{kind.__name__}`", f"`{kind.code}`", _docs(kind))
        for depth, kind in _tree(TurnledgerError, 0)
    ]
    intro = (
        "All are in `turnledger.errors`. Each has a `code`; `status` and `request_id` are those of the "
        "response that reported it, and None without a response."
    )
    return sections(["## Errors", intro, table(["error", "code", ""], rows)])


def _tree(kind: type[TurnledgerError], depth: int) -> Iterator[tuple[int, type[TurnledgerError]]]:
    yield depth, kind
    for below in kind.__subclasses__():
        if below.__module__ == TurnledgerError.__module__:
            yield from _tree(below, depth + 1)
