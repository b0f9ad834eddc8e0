"""The reference of the Python client, from what `turnledger.client` exports and what that leads to."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cached_property
from itertools import pairwise
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from tools.reference.markdown import code, head, prose, sections, table
from tools.reference.python_signatures import signatures, value
from turnledger.errors import TurnledgerError

PACKAGE = "turnledger.client"
SAYS = (
    "Everything that `turnledger.client` offers (`pip install 'turnledger[client]'`). How it is used: "
    "[the Python client](../python-client.md). Of a class for asyncio, only what its twin has not is told."
)


MADE_BY_USERS = ("Client", "AsyncClient")
"""All others are given out by something else, or are plain values with the fields that are listed."""


def page() -> str:
    """The whole page."""
    package = importlib.import_module(PACKAGE)
    kinds = list(reachable(package, PACKAGE))
    parts = [section(kind, kinds) for kind in kinds if not issubclass(kind, TurnledgerError)]
    return sections([head("Reference: the Python client", SAYS), *_others(package), *parts, _errors()])


def _others(package: ModuleType) -> Iterator[str]:
    """What is exported and no class: functions."""
    for name in package.__all__:
        if isinstance(exported := getattr(package, name), FunctionType):
            yield sections([f"## {name}", code(signatures(name, exported), "py"), _says(exported)])


def reachable(package: ModuleType, within: str) -> Iterator[type]:
    """The classes that a package exports, each followed by those that its public members lead to."""
    seen: set[type] = set()
    waiting = [kind for name in package.__all__ if isinstance(kind := getattr(package, name), type)]
    while waiting:
        kind = waiting.pop(0)
        if kind in seen:
            continue
        seen.add(kind)
        yield kind
        waiting[:0] = [each for each in _named_by(kind) if each.__module__.startswith(within)]


def _named_by(kind: type) -> Iterator[type]:
    """The classes that stand in the annotations of what a class has."""
    for owner, name, member in members(kind):
        function = _function_of(member)
        told = list(getattr(function, "__annotations__", {}).values()) if function else []
        told.append(inspect.get_annotations(owner).get(name, ""))
        for word in re.findall(r"\w+", " ".join(map(str, told))):
            found = getattr(sys.modules[owner.__module__], word, None)
            if isinstance(found, type) and not word.startswith("_"):
                yield found


def members(kind: type) -> Iterator[tuple[type, str, Any]]:
    """The public members of a class, also inherited ones, in the order in which they stand: whose each is,
    its name, and what it is; None for a field without a value."""
    told: set[str] = set()
    for owner in kind.__mro__:
        if owner.__module__.partition(".")[0] in ("builtins", "msgspec", "abc", "typing", "enum"):
            continue
        for name in [*inspect.get_annotations(owner), *vars(owner)]:
            if not name.startswith("_") and name not in told:
                told.add(name)
                yield owner, name, vars(owner).get(name)


def section(kind: type, kinds: Sequence[type]) -> str:
    """What is to be said of a class."""
    title = f"## {kind.__name__}"
    made = (
        code(signatures(kind.__name__, vars(kind)["__init__"]), "py")
        if kind.__name__ in MADE_BY_USERS
        else ""
    )
    twin = next((each for each in kinds if f"Async{each.__name__}" == kind.__name__), None)
    if twin is not None:
        return sections([title, made, _says(kind), _differences(kind, twin)])
    fields, methods = [], []
    for owner, name, member in members(kind):
        function = _function_of(member)
        if isinstance(member, property | cached_property):
            fields.append((f"`{name}`", _returned(function), _says(function)))
        elif function is not None:
            methods.append(_method(kind, name, function))
        else:
            fields.append(_field(kind, owner, name))
    return sections([title, made, _says(kind), table(["", "", ""], fields), *methods])


def _method(kind: type, name: str, function: Any) -> str:
    return sections([f"### {kind.__name__}.{name}", code(signatures(name, function), "py"), _says(function)])


def _field(kind: type, owner: type, name: str) -> tuple[str, str, str]:
    annotation = inspect.get_annotations(owner).get(name, "")
    shown = str(getattr(annotation, "__forward_arg__", annotation))
    if issubclass(kind, msgspec.Struct):
        fields = {each.name: each for each in msgspec.structs.fields(kind)}
        default = fields[name].default if name in fields else msgspec.NODEFAULT
        shown += f" = {value(default)}" if default is not msgspec.NODEFAULT else ""
    elif issubclass(kind, Enum):
        shown = value(kind[name].value)
    return f"`{name}`", f"`{shown}`" if shown else "", field_docs(owner).get(name, "")


def field_docs(kind: type) -> dict[str, str]:
    """What stands below the fields of a class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - it is the source of a class
    docs = {}
    for field, below in pairwise(body.body):
        if isinstance(field, ast.AnnAssign):
            names = [ast.unparse(field.target)]
        else:
            names = [ast.unparse(each) for each in field.targets] if isinstance(field, ast.Assign) else []
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and names:
            docs.update(dict.fromkeys(names, inspect.cleandoc(str(below.value.value))))
    return docs


def _function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member if isinstance(member, FunctionType) else None


def _returned(function: Any) -> str:
    told = str(getattr(function, "__annotations__", {}).get("return", "")).strip("'\"")
    return f"`{told}`" if told else ""


def _says(told: Any) -> str:
    return prose(inspect.cleandoc(told.__doc__ or ""))


def _differences(kind: type, twin: type) -> str:
    """The members that only one of the two has."""
    own, others = ({name for _, name, _ in members(each)} for each in (kind, twin))
    said = f"The members of [{twin.__name__}](#{twin.__name__.lower()}), for asyncio."
    alone = [f"`{name}`" for name in sorted(own - others)]
    missing = [f"`{name}`" for name in sorted(others - own)]
    if alone:
        said += f" It alone has {', '.join(alone)}."
    if missing:
        said += f" It has no {', '.join(missing)}."
    return said


def _errors() -> str:
    """The tree of errors, with their codes."""
    rows = [
        (f"{'· ' * depth}`{kind.__name__}`", f"`{kind.code}`", _says(kind))
        for depth, kind in _tree(TurnledgerError, 0)
    ]
    told = (
        "All are in `turnledger.errors`. Each has a `code`; `status` and `request_id` are of the answer that "
        "told it, and None where there was none."
    )
    return sections(["## Errors", told, table(["error", "code", ""], rows)])


def _tree(kind: type[TurnledgerError], depth: int) -> Iterator[tuple[int, type[TurnledgerError]]]:
    yield depth, kind
    for below in kind.__subclasses__():
        if below.__module__ == TurnledgerError.__module__:
            yield from _tree(below, depth + 1)
