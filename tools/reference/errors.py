"""The page of all errors: each code with its class and status, and every message that the code raises."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

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
    """Which error a call makes, and of which of its arguments."""

    error: str
    message: int
    code: int | None = None
    status: str = ""


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
    return value, the argument of a function that makes the error, or the text made in `__init__`."""
    names = {each.__name__ for each in _tree(errors.TurnledgerError)} | {RequestRefused.__name__}
    for path in sorted(PACKAGE.rglob("*.py")):
        module, text = path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")
        if not module.startswith(NOT_RAISED) and any(f"{name}(" in text for name in names):
            yield from _Source(module, ast.parse(text), names).messages()


class _Source:
    """One module, and its functions that make errors or their messages."""

    def __init__(self, module: str, tree: ast.Module, names: set[str]) -> None:
        self._module = module
        name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._imported = import_module(f"{errors.__package__}.{name}")
        self._tree = tree
        self._names = names
        self._assigned: dict[str, list[str]] = {}
        self._functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        self._makers = {name: found for name, each in self._functions.items() if (found := self._maker(each))}

    def messages(self) -> Iterator[Message]:
        for node in self._tree.body:
            self._assign(node)
        constants, error = dict(self._assigned), ""
        for node in _in_order(self._tree):
            self._assign(node)
            if isinstance(node, ast.ClassDef):
                error = node.name
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._assigned = dict(constants)
            elif isinstance(node, ast.Call):
                name = _name(node.func)
                if name == "__init__" and error in self._names:
                    yield from self._messages(node, Maker(error, 0))
                elif name in self._names:
                    yield from self._messages(node, self._called(node, name))
                elif name in self._makers:
                    yield from self._messages(node, self._makers[name])

    def _assign(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            self._assigned |= {_name(target): self._texts(node.value) for target in node.targets}

    def _maker(self, function: ast.FunctionDef) -> Maker | None:
        """Return the error that a function makes of its arguments."""
        arguments = [each.arg for each in function.args.args if each.arg != "self"]
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and _name(node.func) in self._names:
                called = self._called(node, _name(node.func))
                for each in ast.walk(node.args[called.message]) if len(node.args) > called.message else ():
                    if isinstance(each, ast.Name) and each.id == "message" and each.id in arguments:
                        code = _name(node.args[called.code]) if called.code is not None else ""
                        places = {name: place for place, name in enumerate(arguments)}
                        return called._replace(message=places["message"], code=places.get(code))
        return None

    def _part(self, node: ast.expr) -> str:
        """Return a part of an f-string: its text, that of a name assigned before, or `…` for a value."""
        known = self._texts(node.value) if isinstance(node, ast.FormattedValue) else []
        return _literal(node) or (known[0] if len(known) == 1 else "…")

    def _called(self, call: ast.Call, name: str) -> Maker:
        if name != RequestRefused.__name__ or len(call.args) < 3:
            return Maker(name, 0)
        status = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
        return Maker(next(iter(self._texts(call.args[1])), name), 2, 1, str(status))

    def _messages(self, call: ast.Call, made: Maker) -> Iterator[Message]:
        if len(call.args) > made.message:
            codes = self._texts(call.args[made.code]) if made.code is not None else []
            for text in self._texts(call.args[made.message]):
                if len(_words(text)) > 1:
                    error = next(iter(codes), made.error)
                    yield Message(error, text, self._module, call.lineno, made.status)

    def _texts(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.IfExp):
            return self._texts(node.body) + self._texts(node.orelse)
        if isinstance(node, ast.Name):
            imported = getattr(self._imported, node.id, None)
            return self._assigned.get(node.id) or ([imported] if isinstance(imported, str) else [])
        if isinstance(node, ast.JoinedStr):
            return ["".join(map(self._part, node.values))]
        if isinstance(node, ast.Call) and _name(node.func) == "plain":
            return self._texts(node.args[0])
        if isinstance(node, ast.Call) and (function := self._functions.get(_name(node.func))):
            returns = [each for each in ast.walk(function) if isinstance(each, ast.Return)]
            return [text for each in returns if each.value for text in [_literal(each.value)] if text]
        return [text] if (text := _literal(node)) else []


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    rest = [node]
    while rest:
        node = rest.pop()
        yield node
        rest += reversed(list(ast.iter_child_nodes(node)))


def _name(node: ast.expr) -> str:
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
