"""The page of all errors: each code with its class and status, and every message that the code raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.reference.markdown import head, table
from turnledger import errors
from turnledger.server.errors import KINDS, RequestRefused

PACKAGE = Path(errors.__file__).parent
NOT_RAISED = ("testing",)
"""Rooms whose errors no user of the product meets."""


class Message(NamedTuple):
    error: str
    """The name of its class, or the code of a RequestRefused."""
    text: str
    module: str
    line: int


def page() -> str:
    classes = list(_tree(errors.TurnledgerError))
    codes = [
        (
            f"`{each.code}`",
            f"`{each.__name__}`",
            str(KINDS[each].status) if each in KINDS else "",
            _default(each),
        )
        for each in classes
    ]
    raised: dict[str, set[str]] = {}
    for message in messages():
        raised.setdefault(message.error, set()).add(message.text)
    rows = [(f"`{name}`", text) for name in sorted(raised) for text in sorted(raised[name])]
    return (
        head(
            "Reference: errors",
            "Every error of the library, its HTTP status at the server, and its message unless a more exact "
            "one is given. Clients raise the same classes. `…` stands for a value.",
        )
        + "\n"
        + table(("code", "class", "status", "message"), codes)
        + "\n## Messages\n\nEvery message, by class; by code where the server refuses a request.\n\n"
        + table(("error", "message"), rows)
    )


def messages() -> Iterator[Message]:
    """Find the text of every error that the product makes: given as it is, or by a name assigned before."""
    names = {each.__name__ for each in _tree(errors.TurnledgerError)} | {RequestRefused.__name__}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        if not module.startswith(NOT_RAISED):
            assigned: dict[str, str] = {}
            for node in _in_order(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Assign):
                    assigned |= {_name(target): _literal(node.value) for target in node.targets}
                elif isinstance(node, ast.Call) and (name := _name(node.func)) in names:
                    yield from _made(node, name, module, assigned)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for each in ast.iter_child_nodes(node):
        yield from _in_order(each)


def _made(call: ast.Call, name: str, module: str, assigned: dict[str, str]) -> Iterator[Message]:
    texts = [_literal(each) or assigned.get(_name(each), "") for each in call.args]
    if name == RequestRefused.__name__ and len(texts) > 2:
        name, texts = texts[1] or name, texts[2:]
    if texts and " " in texts[0]:
        yield Message(name, texts[0], module, call.lineno)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def _tree(error: type[errors.TurnledgerError]) -> Iterator[type[errors.TurnledgerError]]:
    if error.__module__ == errors.__name__:
        yield error
        for each in error.__subclasses__():
            yield from _tree(each)


def _default(error: type[errors.TurnledgerError]) -> str:
    return " ".join((error.__doc__ or "").split())
