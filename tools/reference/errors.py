"""The page of all errors: each code with its class and status, and every message that the code raises."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import NamedTuple, TypeGuard

from tools.reference.markdown import head, table
from turnledger import errors
from turnledger.server.config import file
from turnledger.server.errors import KINDS, PASSED_ON, RequestRefused
from turnledger.server.listen import socket, supervisor
from turnledger.server.requests import turn

_words = re.compile(r"[A-Za-z]{2,}").findall
PACKAGE = Path(errors.__file__).parent
NOT_RAISED = ("testing",)
"""Rooms whose errors no user of the product meets."""
MODULES = {each.__name__ for each in (errors, file, socket, supervisor, turn)}
"""Modules that define errors."""
IN_RESPONSES = {turn.__name__}
"""Modules whose errors have the status of their base class."""


class Message(NamedTuple):
    error: str
    """The name of its class, or the code of a RequestRefused."""
    text: str
    module: str
    line: int
    status: str = ""
    """That of a RequestRefused."""


class Maker(NamedTuple):
    """A function that returns an error whose message it makes of its arguments."""

    arguments: list[str]
    defaults: dict[str, ast.expr]
    call: ast.Call
    """What it returns: the error, or a call of another such function."""


Bound = Mapping[str, list[str]]
"""The texts of arguments, by name."""
UNBOUND: Bound = MappingProxyType({})


def page() -> str:
    classes = list(_tree(errors.TurnledgerError))
    codes = [
        (
            f"`{each.code}`",
            f"`{each.__name__}`",
            _status(each),
            _default(each),
        )
        for each in classes
    ]
    raised = sorted({(message.error, message.status, message.text) for message in messages()})
    rows = [(f"`{name}`", status, text) for name, status, text in raised]
    return (
        head(
            "Reference: errors",
            "Every error of the library, its HTTP status at the server, and its message unless a more exact "
            "one is given. Clients raise the same classes. `…` stands for a value.",
        )
        + "\n"
        + table(("code", "class", "status", "message"), codes)
        + "\n## Messages\n\nEvery message, by class, or by code where the server refuses a request.\n\n"
        + table(("error", "status", "message"), rows)
    )


def defaults() -> Iterator[Message]:
    """Return the message of each class that is used when none is given."""
    for each in _tree(errors.TurnledgerError):
        line = inspect.getsourcelines(each)[1]
        yield Message(each.__name__, _default(each), each.__module__, line)


def messages() -> Iterator[Message]:
    """Find the text of every error that the product makes: a literal, a name assigned before, a function's
    return value, the argument of a function of any module that makes the error, or the text made in
    `__init__`."""
    names = {each.__name__ for each in _tree(errors.TurnledgerError)} | {RequestRefused.__name__}
    sources: dict[str, _Source] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module, text = path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")
        if not module.startswith(NOT_RAISED):
            source = _Source(module, ast.parse(text), names, sources)
            sources[source.name] = source
    for source in sources.values():
        if source.makes_errors:
            yield from source.messages()


class _Source:
    """One module, and its functions that make errors or their messages."""

    def __init__(
        self, module: str, tree: ast.Module, names: set[str], sources: Mapping[str, _Source]
    ) -> None:
        self._module = module
        name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.name = f"{errors.__package__}.{name}"
        self._tree = tree
        self._names = names
        self._sources = sources
        self._assigned: dict[str, list[str]] = {}
        self._makers: dict[str, Maker | None] = {}
        self._nodes = list(ast.walk(tree))
        self._functions = {each.name: each for each in self._nodes if isinstance(each, ast.FunctionDef)}
        self._from = {
            each.asname or each.name: (node.module, each.name)
            for node in self._nodes
            if isinstance(node, ast.ImportFrom) and node.module
            for each in node.names
        }

    @property
    def makes_errors(self) -> bool:
        called = {_name(node.func) for node in self._nodes if isinstance(node, ast.Call)}
        makes_own = called & {*self._names, "__init__"}
        return bool(makes_own) or any(self.maker(name) for name in called & self._from.keys())

    @cached_property
    def _imported(self) -> ModuleType:
        return import_module(self.name)

    def messages(self) -> Iterator[Message]:
        for statement in self._tree.body:
            self._assign(statement)
        constants, error = dict(self._assigned), ""
        for node in _in_order(self._tree):
            self._assign(node)
            if isinstance(node, ast.ClassDef):
                error = node.name
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._assigned = dict(constants)
            elif isinstance(node, ast.Call):
                if _name(node.func) == "__init__" and error in self._names:
                    made = self._made(error, node.args, UNBOUND)
                else:
                    made = self._errors(node, UNBOUND)
                for name, status, text in made:
                    if len(_words(text)) > 1:
                        yield Message(name, text, self._module, node.lineno, status)

    def _assign(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            self._assigned |= {_name(target): self._texts(node.value) for target in node.targets}

    def maker(self, name: str) -> tuple[_Source, Maker] | None:
        """Return the function of this name that makes errors, and its module."""
        source, function = self._function(name)
        if source is None or function is None:
            return None
        if function.name not in source._makers:
            source._makers[function.name] = source._maker(function)
        maker = source._makers[function.name]
        return None if maker is None else (source, maker)

    def _function(self, name: str) -> tuple[_Source | None, ast.FunctionDef | None]:
        """Return a function of this module, or one that it imports, and its module."""
        if name in self._functions:
            return self, self._functions[name]
        module, original = self._from.get(name, ("", ""))
        source = self._sources.get(module)
        return source, None if source is None else source._functions.get(original)

    def _maker(self, function: ast.FunctionDef) -> Maker | None:
        arguments = [each.arg for each in function.args.args if each.arg != "self"]
        texts = {each.arg for each in function.args.args if _name(each.annotation) == "str"}
        optional = function.args.defaults
        defaults = dict(zip(arguments[len(arguments) - len(optional) :], optional, strict=True))
        for node in ast.walk(function):
            # One that raises is found at its `raise`.
            call = node.value if isinstance(node, ast.Return) else None
            if isinstance(call, ast.Call) and self._makes_error(call, function.name):
                used = {each.id for argument in call.args for each in ast.walk(argument) if _is_name(each)}
                if used & texts:
                    return Maker(arguments, defaults, call)
        return None

    def _makes_error(self, call: ast.Call, caller: str) -> bool:
        name = _name(call.func)
        if name in self._names:
            return True
        return name != caller and isinstance(call.func, ast.Name) and self.maker(name) is not None

    def _errors(self, call: ast.Call, bound: Bound) -> Iterator[tuple[str, str, str]]:
        """Yield name, status and text of each error that a call makes."""
        name = _name(call.func)
        if name in self._names:
            yield from self._made(name, call.args, bound)
        elif (found := self.maker(name)) is not None:
            source, maker = found
            given = dict(maker.defaults) | dict(zip(maker.arguments, call.args, strict=False))
            given |= {each.arg: each.value for each in call.keywords if each.arg}
            texts = {each: self._texts(value, bound) for each, value in given.items()}
            yield from source._errors(maker.call, texts)

    def _made(self, name: str, given: Sequence[ast.expr], bound: Bound) -> Iterator[tuple[str, str, str]]:
        status = ""
        if name == RequestRefused.__name__ and len(given) > 2:
            status = str(given[0].value) if isinstance(given[0], ast.Constant) else ""
            name = next(iter(self._texts(given[1], bound)), name)
            given = given[2:]
        for text in self._texts(given[0], bound) if given else ():
            yield name, status, text

    def _part(self, node: ast.expr, bound: Bound) -> str:
        """Return a part of an f-string: its text, that of a name known before, or `…` for a value."""
        known = self._texts(node.value, bound) if isinstance(node, ast.FormattedValue) else []
        return _literal(node) or (known[0] if len(known) == 1 else "…")

    def _texts(self, node: ast.expr, bound: Bound = UNBOUND) -> list[str]:
        if isinstance(node, ast.IfExp):
            return self._texts(node.body, bound) + self._texts(node.orelse, bound)
        if isinstance(node, ast.Name):
            if node.id in bound:
                return bound[node.id]
            imported = getattr(self._imported, node.id, None)
            return self._assigned.get(node.id) or ([imported] if isinstance(imported, str) else [])
        if isinstance(node, ast.JoinedStr):
            return [
                "".join(self._part(each, chosen) for each in node.values) for chosen in _each(bound, node)
            ]
        if isinstance(node, ast.Call) and _name(node.func) == "plain":
            return self._texts(node.args[0], bound)
        if isinstance(node, ast.Call) and (function := self._function(_name(node.func))[1]):
            returns = [each for each in ast.walk(function) if isinstance(each, ast.Return)]
            return [text for each in returns if each.value for text in [_literal(each.value)] if text]
        return [text] if (text := _literal(node)) else []


def _each(bound: Bound, node: ast.JoinedStr) -> Iterator[Bound]:
    """Yield the arguments of an f-string with one text each: a value may be one of several."""
    used = [each for each in bound if any(_is_name(part, each) for part in ast.walk(node))]
    for texts in product(*(bound[each] or [""] for each in used)):
        yield {name: [text] if text else [] for name, text in zip(used, texts, strict=True)}


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    rest = [node]
    while rest:
        node = rest.pop()
        yield node
        rest += reversed(list(ast.iter_child_nodes(node)))


def _is_name(node: ast.AST, name: str = "") -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and name in ("", node.id)


def _name(node: ast.expr | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def _tree(error: type[errors.TurnledgerError]) -> Iterator[type[errors.TurnledgerError]]:
    """Return the class and those below it, in the order of their modules: that of imports may differ."""
    if error.__module__ in MODULES and getattr(sys.modules[error.__module__], error.__name__, None) is error:
        yield error
        for each in sorted(error.__subclasses__(), key=lambda each: each.__module__):
            yield from _tree(each)


def _status(error: type[errors.TurnledgerError]) -> str:
    """Return its HTTP status; an empty text if no response has it."""
    if error is errors.ModelRefused:
        return ", ".join(map(str, sorted({*PASSED_ON, KINDS[error].status})))
    bases = error.__mro__ if error.__module__ in IN_RESPONSES else (error,)
    return next((str(KINDS[each].status) for each in bases if each in KINDS), "")


def _default(error: type[errors.TurnledgerError]) -> str:
    return " ".join((error.__doc__ or "").split())
