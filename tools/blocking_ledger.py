"""Generate the classes of turnledger.sync from the awaiting ones: the same signatures and documentation, each
method handed to the loop of the ledger. `make twins` writes them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "src" / "turnledger"
TARGET = PACKAGE / "sync"
PROSE = {
    r"\basync (with|for)\b": r"\1",
    r"\bawait (?=\w+\.)": "",
    r"\btask(s?)\b": r"thread\1",
}


class Source(NamedTuple):
    """A class to be generated from one of this module."""

    module: str
    name: str
    imports: str
    left_out: frozenset[str] = frozenset()
    is_shared: bool = False
    """Whether the loop changes the object, so that properties are read there, too."""


SOURCES = (
    Source("chat", "Chat", "from turnledger.sync.block import AnyRunner, TurnBlock\n"),
    Source(
        "chats",
        "Chats",
        "from turnledger.sync.block import AnyRunner, TurnBlock\nfrom turnledger.sync.chat import Chat\n",
    ),
    Source(
        "engine.turn.running_turn",
        "RunningTurn",
        "",
        left_out=frozenset({"task"}),  # of asyncio
        is_shared=True,
    ),
)
WRAPPED = {"Chat", "TurnBlock"}
"""Results that have a blocking class."""


def modules() -> dict[Path, str]:
    """Return each generated module, not yet formatted."""
    return {TARGET / f"{each.module.rpartition('.')[2]}.py": _module(each) for each in SOURCES}


def _module(source: Source) -> str:
    tree = ast.parse((PACKAGE / f"{source.module.replace('.', '/')}.py").read_text("utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == source.name]
    replaced = {*re.findall(r"import (.*)", source.imports)}
    names = {name.strip() for each in replaced for name in each.split(",")}
    imports = [
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and not names & {each.name for each in node.names}
    ]
    members = [_attribute(*each) for each in _attributes(found)]
    members += [
        _member(source, node)
        for node in found.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and node.name not in source.left_out
    ]
    return "\n".join(
        [
            f"# Generated from {source.module.replace('.', '/')}.py by `make twins`. Edit that.",
            f'"""{source.name} for blocking programs: the methods of the awaiting one, without `await`."""',
            *imports,
            "from collections.abc import Iterator",
            f"from turnledger.{source.module} import {source.name} as Awaiting{source.name}",
            "from turnledger.sync.loop import Caller, LedgerLoop",
            source.imports,
            f"class {source.name}:",
            _indented(_doc(found)),
            f"    def __init__(self, loop: LedgerLoop, inner: Awaiting{source.name}) -> None:",
            "        self._loop = loop",
            "        self._inner = inner",
            "",
            "    def __repr__(self) -> str:",
            "        return repr(self._inner)",
            "",
            *members,
        ]
    )


def _attributes(found: ast.ClassDef) -> list[tuple[str, str, str]]:
    """Return the public attributes that the class is made with, as name, type and documentation."""
    [init] = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    listed = []
    for node, following in zip(init.body, [*init.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            is_doc = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            doc = f'"""{following.value.value}"""' if is_doc else ""  # type: ignore[union-attr]
            if not node.target.attr.startswith("_"):
                listed.append((node.target.attr, ast.unparse(node.annotation), doc))
    return listed


def _attribute(name: str, kind: str, doc: str) -> str:
    lines = ["@property", f"def {name}(self) -> {kind}:", f"    return self._inner.{name}"]
    return _indented("\n".join([*lines[:2], *([f"    {_prose(doc)}"] if doc else []), lines[2]])) + "\n"


def _member(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    decorators = [f"@{ast.unparse(each)}" for each in node.decorator_list]
    signature = f"def {node.name}({_parameters(node.args)}) -> {_result(node)}:"
    lines = [*decorators, signature, _indented(_doc(node)), f"    {_body(source, node)}"]
    return _indented("\n".join(filter(None, lines))) + "\n"


def _parameters(arguments: ast.arguments) -> str:
    text = ast.unparse(arguments)
    text = text.replace("runner: Runner", "runner: AnyRunner")
    text = text.replace("AsyncIterable[bytes] | Iterable[bytes]", "Iterable[bytes]")
    return re.sub(r"Awaitable\[(\w+)\]", r"\1", text)


def _result(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return _annotation(node.returns).replace("AsyncIterator", "Iterator")


def _body(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    result = _annotation(node.returns)
    if node.decorator_list:
        return _property(source, node)
    inner = f"self._inner.{node.name}({_passed(node.args)})"
    if "runner" in {each.arg for each in node.args.args}:
        turn = inner.replace(".run(runner, ", ".turn(")
        return f"return TurnBlock(self._loop, self._loop.call(lambda: {turn})).run(runner)"
    if "caller." in inner:
        does = "iterate" if result.startswith("AsyncIterator") else "run"
        return f"caller = Caller(self._loop)\n    return caller.{does}({inner})"
    if result.startswith("AsyncIterator"):
        return f"return self._loop.iterate({inner})"
    is_awaiting = isinstance(node, ast.AsyncFunctionDef)
    done = f"self._loop.run({inner})" if is_awaiting else f"self._loop.call(lambda: {inner})"
    return f"return {result}(self._loop, {done})" if result in WRAPPED else f"return {done}"


def _property(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if node.args.args[1:]:
        return f"self._inner.{node.name} = {node.args.args[1].arg}"
    read = f"self._inner.{node.name}"
    return f"return self._loop.call(lambda: {read})" if source.is_shared else f"return {read}"


def _passed(arguments: ast.arguments) -> str:
    """Return the arguments of a method as it passes them on. Functions and iterables that a caller gives are
    used in its own thread."""
    passed = [_handed(each) for each in arguments.args[1:]]
    passed += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    passed += [f"{each.arg}={_handed(each)}" for each in arguments.kwonlyargs]
    passed += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join(passed)


def _handed(argument: ast.arg) -> str:
    kind = _annotation(argument.annotation)
    if "AsyncIterable" in kind:
        return f"caller.pull({argument.arg})"
    return f"caller.hand_back({argument.arg})" if "Awaitable" in kind else argument.arg


def _annotation(node: ast.expr | None) -> str:
    return ast.unparse(node) if node is not None else ""


def _doc(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    text = ast.get_docstring(node)
    return _prose(f'"""{text}\n"""' if text and "\n" in text else f'"""{text}"""') if text else ""


def _prose(text: str) -> str:
    for pattern, replacement in PROSE.items():
        text = re.sub(pattern, replacement, text)
    return text


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))
